"""A group in one process, driven by a list of actions that can be replayed, shrunk and written to a file.

It runs the production engine. The network, the journals and the applications are simulated, and an oracle
(`crdtcast.simulator.oracle`) watches the applications. Nothing depends on clocks or on PYTHONHASHSEED.
"""
