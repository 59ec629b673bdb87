"""What a pattern produces: who sends how many messages to whom, from when on."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ....analyzer.errors import UsageError


class Settings(NamedTuple):
    """What patterns are asked for."""

    hosts: int
    """Hosts that take part."""
    message_bytes: int
    messages: int
    """Messages per pair of hosts."""
    flows: int
    """Pairs that `random` and `trace-like` draw."""
    fan_in: int | None
    """Senders of `incast`; None for all other hosts."""
    load: float
    """Mean load that `trace-like` offers, as a share of the hosts' rate."""
    rate_bits_per_second: int


class Demands(NamedTuple):
    """Equally long columns, one row per pair of hosts."""

    src: NDArray[np.int64]
    dst: NDArray[np.int64]
    messages: NDArray[np.int64]
    message_bytes: NDArray[np.int64]
    start_ns: NDArray[np.int64]
    """When the first message may begin, from the start of the traffic."""
    sharing: NDArray[np.int64]
    """Pairs that share the source's rate while this one sends."""
    in_turn: bool = False
    """A message begins only when the one before was acknowledged."""


def demands(
    settings: Settings, src: NDArray[np.int64], dst: NDArray[np.int64], *, in_turn: bool = False
) -> Demands:
    """Pairs that all begin at once and send what the settings say."""
    n = len(src)
    return Demands(
        src.astype(np.int64),
        dst.astype(np.int64),
        np.full(n, settings.messages, np.int64),
        np.full(n, settings.message_bytes, np.int64),
        np.zeros(n, np.int64),
        np.bincount(src, minlength=settings.hosts)[src].astype(np.int64),
        in_turn,
    )


def need_hosts(settings: Settings, pattern: str, least: int = 2) -> None:
    """UsageError when there are too few hosts for a pattern."""
    if settings.hosts < least:
        raise UsageError(f"{pattern} needs at least {least} hosts, not {settings.hosts}")
