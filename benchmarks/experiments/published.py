"""What the thesis tells of its figures in words, for groups of 128 (Younes 2023, 8.4). Its plots have no tables."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Published:
    """One figure: the metric as a field of `runs.Row`, and the value in its unit. `said` is how exact it is."""

    experiment: str
    metric: str
    engine: str
    stability: bool
    value: float
    said: str
    figure: str
    members: int = 128


PUBLISHED = (
    Published("1", "dependencies", "graph", False, 80, "at worst", "28a"),
    Published("1", "dependencies", "twolevel", False, 256, "", "28a"),
    Published("2", "dependencies", "vectors", False, 128, "", "30a"),
    Published("1", "memory_words_bytes", "twolevel", False, 500e3, "more than", "28b"),
    Published("2", "memory_words_bytes", "vectors", False, 250e3, "more than", "30b"),
    Published("1", "memory_words_bytes", "twolevel", True, 40e6, "more than", "29a"),
    Published("2", "memory_words_bytes", "vectors", True, 20e6, "half of 29a", "32a"),
    Published("3", "memory_words_bytes", "vectors", True, 7e6, "around", "32b"),
    Published("1", "stable_us", "graph", True, 2500, "2 to 3 ms", "29b"),
    Published("1", "stable_us", "twolevel", True, 10e3, "above", "29b"),
    Published("2", "stable_us", "graph", True, 2500, "2 to 3 ms", "33a"),
    Published("2", "stable_us", "vectors", True, 10e3, "above", "33a"),
    Published("3", "stable_us", "graph", True, 2500, "2 to 3 ms", "33b"),
    Published("3", "stable_us", "vectors", True, 10e3, "above", "33b"),
    Published("2", "delivery_us", "vectors", False, 40, "in the order of", "34a"),
    Published("2", "delivery_us", "graph", False, 40, "in the order of", "34a"),
    Published("2", "delivery_us", "vectors", True, 37, "25 to 50", "34b"),
    Published("2", "delivery_us", "graph", True, 160, "50 to 270", "34b"),
    Published("3", "delivery_us", "vectors", False, 40, "in the order of", "35a"),
    Published("3", "delivery_us", "graph", False, 40, "in the order of", "35a"),
    Published("3", "delivery_us", "vectors", True, 25, "around", "35b"),
    Published("3", "delivery_us", "graph", True, 75, "around", "35b"),
    Published("2-slow", "delivery_us", "vectors", False, 11e3, "10 to 12 ms", "36a"),
    Published("2-slow", "delivery_us", "vectors", True, 1.7e6, "around", "36b"),
    Published("2-slow", "delivery_us", "graph", True, 50e3, "at most around", "36b"),
    Published("3-slow", "delivery_us", "vectors", False, 11e3, "around", "37a"),
    Published("3-slow", "delivery_us", "graph", False, 6e3, "around", "37a"),
    Published("3-slow", "delivery_us", "vectors", True, 2.2e6, "", "37b"),
    Published("3-slow", "delivery_us", "graph", True, 70e3, "around", "37b"),
)
