"""Keys of `--model` that change captured messages."""

from __future__ import annotations

import pytest

from rocescope.analyzer.errors import UsageError
from rocescope.replay.compare.specs.shape import parse_shape
from rocescope.replay.packets.captured import Shape


def test_what_is_given_is_changed() -> None:
    for text in ("", "buffer=1MB,offer=asap", "qps=1", "message-size=1x"):
        assert parse_shape(text) is None
    assert parse_shape("mtu=1024,ecn=80kB") == Shape(mtu_bytes=1024)
    assert parse_shape("qps=4,message-size=2.5x") == Shape(factor=2.5, queue_pairs=4)
    assert parse_shape("message-size=1MiB") == Shape(longest_bytes=1 << 20)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("qps=0", "qps must be 1 to 64, not 0"),
        ("qps=65", "qps must be 1 to 64, not 65"),
        ("qps=two", "qps=two is not a whole number"),
        ("message-size=0x", "message-size=0x: use 0.001x to 1000x"),
        ("message-size=nanx", "message-size=nanx: use"),
        ("message-size=big", "message-size 'big' is not a size"),
        ("mtu=0", "mtu must be more than 0"),
    ],
)
def test_mistakes_name_the_key(text: str, words: str) -> None:
    with pytest.raises(UsageError) as error:
        parse_shape(text)
    assert words in str(error.value) and "\n" not in str(error.value)
