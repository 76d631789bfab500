"""The causal middleware's core, sans I/O: no sockets, no clock, no randomness, no threads (docs/protocol.md)."""

from crdtcast.engine.engine import Engine
from crdtcast.engine.state import Durability, EngineCounters, EngineState

__all__ = ["Durability", "Engine", "EngineCounters", "EngineState"]
