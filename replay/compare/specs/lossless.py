"""`--lossless`: queues without a limit, or switches that pause their neighbours (PFC)."""

from __future__ import annotations

from typing import Final

from ....analyzer.errors import UsageError
from ....analyzer.key_values import parse_options
from ...packets.model.queueing import Pfc
from .values import Fields, made, ratio, size, time_ps, whole
from .words import INFINITE, PFC

FIELDS: Final[Fields] = {
    "buffer": ("shared_bytes", size),
    "xoff": ("xoff_bytes", size),
    "xon": ("xon_bytes", size),
    "headroom": ("headroom_bytes", size),
    "alpha": ("alpha", ratio),
    "reaction": ("reaction_ps", time_ps),
    "quanta": ("quanta", whole),
    "storm": ("storm_ps", time_ps),
}


def parse_lossless(text: str) -> Pfc | None:
    """`infinite` (None), `pfc` or `pfc:buffer=32MB,alpha=1/8,headroom=100kB`; UsageError names the
    key."""
    kind, _, rest = text.partition(":")
    if kind == INFINITE and not rest:
        return None
    if kind != PFC:
        raise UsageError(f"--lossless {text}: use {INFINITE}, {PFC} or {PFC}:alpha=1/8,...")
    options = parse_options(rest, "--lossless")
    if "alpha" in options and "xoff" in options:
        raise UsageError(
            "--lossless: alpha (dynamic threshold) cannot be combined with xoff (static threshold)"
        )
    return made(Pfc, FIELDS, options, "--lossless")
