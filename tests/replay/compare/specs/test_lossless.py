"""`--lossless`: kinds, thresholds, and mistakes by the name of their key."""

from __future__ import annotations

import pytest

from rocescope.analyzer.errors import UsageError
from rocescope.replay.compare.specs.lossless import parse_lossless
from rocescope.replay.packets.model.queueing import Pfc


def test_kinds() -> None:
    assert parse_lossless("infinite") is None
    assert parse_lossless("pfc") == Pfc()
    found = parse_lossless("pfc:buffer=32MB,alpha=1/16,xon=0,headroom=100kB,reaction=1us")
    assert found == Pfc(32_000_000, 1 / 16, None, 0, 100_000, 1_000_000)
    assert parse_lossless("pfc:xoff=200kB") == Pfc(xoff_bytes=200_000)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "use infinite, pfc or pfc:"),
        ("infinite:xoff=1kB", "use infinite, pfc or pfc:"),
        ("pfc:kmin=1kB", "has no 'kmin'"),
        ("pfc:alpha=1/0", "alpha: '1/0' is not a number"),
        ("pfc:alpha=nan", "alpha must be"),
        ("pfc:alpha=1,xoff=1kB", "cannot be combined"),
        ("pfc:xoff=1kB,xon=2kB", "xon .* is above xoff"),
        ("pfc:headroom=much", "headroom"),
        ("pfc:reaction=2ms", "reaction must be at most 1 ms"),
    ],
)
def test_mistakes_name_the_key(text: str, words: str) -> None:
    with pytest.raises(UsageError, match=f"--lossless.*{words}"):
        parse_lossless(text)
