"""`--model`, for captures: other message sizes, MTUs and numbers of queue pairs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ....analyzer.errors import UsageError
from ....analyzer.key_values import parse_options
from ....analyzer.units import parse_size
from .values import whole

if TYPE_CHECKING:
    from ...packets.captured import Shape

SHAPE = ("message-size", "qps")
"""Keys for captures alone; `mtu` is one of generated traffic, too."""
MOST_QPS = 64


def parse_shape(text: str) -> Shape | None:
    """What `message-size=2x,qps=4,mtu=1024` changes; None: nothing. UsageError names the key."""
    given = parse_options(text, "--model")
    if not {"mtu", *SHAPE}.intersection(given):
        return None
    from ...packets.captured import Shape

    shape = Shape()
    if "mtu" in given:
        shape = shape._replace(mtu_bytes=parse_size(given["mtu"], "--model: mtu"))
    if "qps" in given:
        count = whole(given["qps"], "--model: qps")
        if not 1 <= count <= MOST_QPS:
            raise UsageError(f"--model: qps must be 1 to {MOST_QPS}, not {count}")
        shape = shape._replace(queue_pairs=count)
    size = given.get("message-size", "")
    if size.endswith("x"):
        shape = shape._replace(factor=_factor(size))
    elif size:
        shape = shape._replace(longest_bytes=parse_size(size, "--model: message-size"))
    return None if shape == Shape() else shape


def _factor(text: str) -> float:
    try:
        factor = float(text.removesuffix("x"))
    except ValueError:
        factor = -1.0
    if not 0.001 <= factor <= 1000:
        raise UsageError(f"--model: message-size={text}: use 0.001x to 1000x, or a size like 1MiB")
    return factor
