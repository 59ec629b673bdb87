"""Classes of data: mistakes by name, quanta in proportion to weights."""

from __future__ import annotations

import numpy as np
import pytest

from rocescope.analyzer.errors import UsageError
from rocescope.replay.packets.model.classes import (
    MOST_CLASSES,
    TrafficClass,
    new_classes,
)
from rocescope.replay.packets.model.model import Model


def test_a_quantum_is_enough_for_a_packet() -> None:
    classes = (TrafficClass("a", 3), TrafficClass("b", 7, lossless=False), TrafficClass("c"))
    made = new_classes(classes, 5, np.array([0, 2], np.uint8), 4160)
    assert made.rules["quantum"].tolist() == [4160, 9707, 0]
    assert made.rules["lossless"].tolist() == [1, 0, 1]
    assert len(made.queues) == 15 and (made.queues["head"] == -1).all()
    with pytest.raises(UsageError, match="class 3, but there are 3"):
        new_classes(classes, 5, np.array([3], np.uint8), 4160)


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"name": "a b"}, "letters and digits, not 'a b'"),
        ({"name": "x\x1b[1m"}, "letters and digits"),
        ({"weight": 1001}, "weight must be 0 to 1000, not 1001"),
        ({"alpha": 1.0, "xoff_bytes": 7}, "cannot be combined"),
        ({"alpha": float("nan")}, "alpha must be 1/1024 to 64"),
        ({"xoff_bytes": -1}, "xoff_bytes must be"),
    ],
)
def test_mistakes_are_named(values: dict[str, object], words: str) -> None:
    with pytest.raises(UsageError, match=words):
        TrafficClass(**values)  # type: ignore[arg-type]


def test_models_with_classes() -> None:
    two = (TrafficClass("data", 7), TrafficClass("background", 3, lossless=False))
    told = Model(classes=two).described()["classes"]
    assert told == "data (weight 7), background (weight 3, lossy)"
    assert Model(classes=two).host_jitter == 0.01  # what drops has no phases
    assert "classes" not in Model().described()
    with pytest.raises(UsageError, match="buffer_bytes is for one class"):
        Model(classes=two, buffer_bytes=100_000)
    with pytest.raises(UsageError, match="background: thresholds need PFC"):
        Model(classes=two, pfc=None)
    with pytest.raises(UsageError, match="different names"):
        Model(classes=(TrafficClass(), TrafficClass()))
    with pytest.raises(UsageError, match="1 to 7, not 8"):
        Model(classes=tuple(TrafficClass(f"c{i}") for i in range(MOST_CLASSES + 1)))
