"""A group in one process, driven action by action: what happens is a list that replays, shrinks and fits into a file.

It runs the engine of production. The network, the journals and the applications are simulated here, and an oracle
(`crdtcast.checker`) watches the applications. Nothing depends on clocks or on PYTHONHASHSEED.
"""

from crdtcast.simulator.campaign import Outcome, run_schedule, run_seed
from crdtcast.simulator.faults import Faults
from crdtcast.simulator.schedule import Action, Schedule
from crdtcast.simulator.shrink import shrink
from crdtcast.simulator.world import World

__all__ = ["Action", "Faults", "Outcome", "Schedule", "World", "run_schedule", "run_seed", "shrink"]
