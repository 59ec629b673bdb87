"""`--priority`: classes and mistakes by the name of their key."""

from __future__ import annotations

import pytest

from rocescope.analyzer.errors import UsageError
from rocescope.replay.compare.specs.classes import check_classes, parse_classes
from rocescope.replay.packets.model.queueing import TrafficClass


def test_classes() -> None:
    assert parse_classes([]) == (TrafficClass(),)
    assert parse_classes(["data:weight=70", "background:weight=30,lossless=no,alpha=1/16"]) == (
        TrafficClass("data", 70),
        TrafficClass("background", 30, lossless=False, alpha=1 / 16),
    )
    assert [one.dscps for one in parse_classes(["a:dscp=26+34", "b:dscp=8"])] == [(26, 34), (8,)]
    assert parse_classes(["a:xoff=20kB"]) == (TrafficClass("a", xoff_bytes=20_000),)


@pytest.mark.parametrize(
    ("texts", "words"),
    [
        (["a:weight=x"], "a: weight=x is not a whole number"),
        (["a:weight=2000"], "weight must be 0 to 1000"),
        (["a:lossless=maybe"], "lossless=maybe: use yes or no"),
        (["a:alpha=x"], "'x' is not a number"),
        (["a:alpha=1,xoff=1kB"], "alpha cannot be combined with xoff"),
        (["a:color=red"], "no 'color'; it has weight"),
        ([":weight=1"], "letters and digits"),
        (["a", "a"], "two classes a"),
        (["a:dscp=64"], "dscp must be 0 to 63, not 64"),
        (["a:dscp=26+x"], "dscp=x is not a whole number"),
        (["a:dscp=26", "b:dscp=8+26"], "DSCP 26 is given twice"),
        ([f"c{i}" for i in range(8)], "at most 7 classes, not 8"),
    ],
)
def test_mistakes(texts: list[str], words: str) -> None:
    with pytest.raises(UsageError, match=f"--priority.*{words}"):
        parse_classes(texts)


def test_classes_that_no_traffic_could_have() -> None:
    with pytest.raises(UsageError, match="--priority b: no captured flow would have this class"):
        check_classes(parse_classes(["a", "b"]), captures=True)
    with pytest.raises(UsageError, match="dscp needs captures"):
        check_classes(parse_classes(["a:dscp=8"]), captures=False)
    check_classes(parse_classes(["a", "b:dscp=8"]), captures=True)
    check_classes(parse_classes(["a", "b"]), captures=False)
