"""For tests of programs: what goes wrong between a producer and its broker, from a script or from a seed.

The pytest fixtures `kafka`, `kafka_session` and `kafka_cluster` are in the plug-in `pytest_fletchlog`, which pytest finds by itself.
"""

from fletchlog._core import Faults, Held

__all__ = ["Faults", "Held"]
