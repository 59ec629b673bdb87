"""`--lossless`: queues without a limit, or switches that pause their neighbours (PFC)."""

from __future__ import annotations

from typing import Any

from ....analyzer.errors import UsageError
from ....analyzer.key_values import parse_options
from ....analyzer.units import parse_size
from ...packets.model.pfc import Pfc
from .values import ratio, time_ps, whole
from .words import INFINITE, PFC

_SIZES = {
    "buffer": "shared_bytes",
    "xoff": "xoff_bytes",
    "xon": "xon_bytes",
    "headroom": "headroom_bytes",
}
KEYS = (*_SIZES, "alpha", "reaction", "quanta", "storm")


def parse_lossless(text: str) -> Pfc | None:
    """`infinite` (None), `pfc` or `pfc:buffer=32MB,alpha=1/8,headroom=100kB`; UsageError names the
    key."""
    kind, _, rest = text.partition(":")
    if kind == INFINITE and not rest:
        return None
    if kind != PFC:
        raise UsageError(f"--lossless {text}: use {INFINITE}, {PFC} or {PFC}:alpha=1/8,...")
    options = parse_options(rest, "--lossless")
    values: dict[str, Any] = {}
    for key, value in options.items():
        where = f"--lossless: {key}"
        if key in _SIZES:
            values[_SIZES[key]] = 0 if value == "0" else parse_size(value, where)
        elif key == "alpha":
            values[key] = ratio(value, where)
        elif key == "reaction":
            values["reaction_ps"] = time_ps(value, where)
        elif key == "storm":
            values["storm_ps"] = time_ps(value, where)
        elif key == "quanta":
            values[key] = whole(value, where)
        else:
            raise UsageError(f"--lossless has no {key!r}; it has {', '.join(KEYS)}")
    if "alpha" in options and "xoff" in options:
        raise UsageError(
            "--lossless: alpha (dynamic threshold) cannot be combined with xoff (static threshold)"
        )
    try:
        return Pfc(**values)
    except UsageError as error:
        words = str(error).replace("reaction_ps", "reaction").replace("storm_ps", "storm")
        for key, name in _SIZES.items():
            words = words.replace(name, key)
        raise UsageError(f"--lossless: {words}") from None
