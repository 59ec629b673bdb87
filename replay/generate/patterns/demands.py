"""The result of a pattern: senders, receivers, number and start of messages."""

from __future__ import annotations

import numpy as np

from ....analyzer.errors import UsageError
from ....kernels.kernel import Ints
from ....kernels.named import NamedTuple


class Settings(NamedTuple):
    """The settings of patterns."""

    hosts: int
    """Number of hosts."""
    message_bytes: int
    messages: int
    """Messages per pair of hosts."""
    flows: int
    """Number of random pairs of `random` and `trace-like`."""
    fan_in: int | None
    """Senders of `incast`; None for all other hosts."""
    load: float
    """Mean load of `trace-like`, as a share of the hosts' rate."""
    rate_bits_per_second: int


class Demands(NamedTuple):
    """Equally long columns, one row per pair of hosts."""

    src: Ints
    dst: Ints
    messages: Ints
    message_bytes: Ints
    start_ns: Ints
    """Earliest start of the first message, relative to the start of the traffic."""
    sharing: Ints
    """Pairs that share the rate of the source while this pair sends."""
    in_turn: bool = False
    """A message starts only after the previous message is acknowledged."""


def demands(settings: Settings, src: Ints, dst: Ints, *, in_turn: bool = False) -> Demands:
    """Pairs that start at the same time and send the messages of the settings."""
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


def need_hosts(settings: Settings, pattern: str) -> None:
    """UsageError if there are too few hosts for a pattern."""
    if settings.hosts < 2:
        raise UsageError(f"{pattern} needs at least 2 hosts, not {settings.hosts}")
