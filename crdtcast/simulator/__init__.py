"""A group in one process, driven action by action: what happens is a list that replays, shrinks and fits into a file.

It runs the engine of production. The network, the journals and the applications are simulated here, and an oracle
(`crdtcast.simulator.oracle`) watches the applications. Nothing depends on clocks or on PYTHONHASHSEED.
"""
