"""Traffic patterns: who sends how much to whom."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TypeAlias

import numpy as np

from ...analyzer.errors import UsageError
from ...analyzer.words import choices
from ...kernels.kernel import Ints, NamedTuple

# The result of a pattern: senders, receivers, number and start of messages.


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


# All-to-all: every host sends to every other host at the same time.

MAX_HOSTS = 4096


def all_to_all(settings: Settings, rng: np.random.Generator) -> Demands:
    """Pairs in the order of the shift between source and destination."""
    need_hosts(settings, "all-to-all")
    if settings.hosts > MAX_HOSTS:
        raise UsageError(
            f"all-to-all of {settings.hosts:,} hosts has {settings.hosts**2:,} pairs; "
            f"use at most {MAX_HOSTS:,} hosts"
        )
    shift = np.repeat(np.arange(1, settings.hosts), settings.hosts)
    src = np.tile(np.arange(settings.hosts), settings.hosts - 1)
    return demands(settings, src, (src + shift) % settings.hosts)


# Incast: many hosts send to one.


def incast(settings: Settings, rng: np.random.Generator) -> Demands:
    """`fan_in` hosts, chosen at random (all others if None), send to host 0."""
    need_hosts(settings, "incast")
    others = settings.hosts - 1
    senders = others if settings.fan_in is None else settings.fan_in
    if not 1 <= senders <= others:
        raise UsageError(f"incast: --fan-in must be 1 to {others} for {settings.hosts} hosts")
    src = 1 + np.sort(rng.choice(others, senders, replace=False))
    return demands(settings, src, np.zeros(senders, np.int64))


# Permutation: every host sends to one other host and receives from one.


def permutation(settings: Settings, rng: np.random.Generator) -> Demands:
    """A random permutation in which no host sends to itself."""
    need_hosts(settings, "permutation")
    hosts = np.arange(settings.hosts)
    order = rng.permutation(settings.hosts)
    fixed = np.flatnonzero(order == hosts)
    if len(fixed) == 1:  # swap with any other host: then neither sends to itself
        other = (fixed[0] + 1) % settings.hosts
        order[fixed[0]], order[other] = order[other], order[fixed[0]]
    else:  # rotate
        order[fixed] = order[np.roll(fixed, 1)]
    return demands(settings, hosts, order)


# Random: flows between random pairs of different hosts, all at the same time.


def random_pairs(settings: Settings, rng: np.random.Generator) -> Demands:
    """`flows` pairs; a pair may be drawn more than once."""
    need_hosts(settings, "random")
    src = rng.integers(0, settings.hosts, settings.flows)
    dst = (src + rng.integers(1, settings.hosts, settings.flows)) % settings.hosts
    return demands(settings, src, dst)


# Ring all-reduce: a reduce-scatter and an all-gather around one ring of all hosts.
#
# Each of n hosts sends 2(n-1) chunks of 1/n of the data to its successor, one after the other.


def ring_allreduce(settings: Settings, rng: np.random.Generator) -> Demands:
    """The ring in port order; `messages` repeats it, `message_bytes` is the data of a host."""
    need_hosts(settings, "ring-allreduce")
    chunk = -(-settings.message_bytes // settings.hosts)
    steps = 2 * (settings.hosts - 1) * settings.messages
    src = np.arange(settings.hosts)
    return demands(
        settings._replace(message_bytes=chunk, messages=steps),
        src,
        (src + 1) % settings.hosts,
        in_turn=True,
    )


# Trace-like: flows arrive one after the other and differ in size, as in a shared cluster.
#
# Arrivals are a Poisson process, sizes log-normal: most flows are short, most bytes are in
# a few long flows. A model for experiments, not fitted to a cluster.

SIGMA = 1.5
"""Standard deviation of the logarithm of sizes: the largest tenth carries over half the bytes."""

LARGEST = 64
"""Maximum size of a flow relative to `message_bytes`."""
SMALLEST = 64
"""Bytes of the smallest flow."""


def trace_like(settings: Settings, rng: np.random.Generator) -> Demands:
    """`flows` flows with `message_bytes` as the median size, with arrivals that give `load`."""
    need_hosts(settings, "trace-like")
    if not 0 < settings.load <= 1:
        raise UsageError(f"trace-like: --load must be above 0 and at most 1, not {settings.load:g}")
    pairs = random_pairs(settings, rng)
    factor = np.minimum(rng.lognormal(0, SIGMA, settings.flows), LARGEST)
    size = np.maximum(SMALLEST, np.rint(factor * settings.message_bytes)).astype(np.int64)
    total_bits = 8.0 * float(size.sum()) * settings.messages
    duration_s = total_bits / (settings.load * settings.rate_bits_per_second * settings.hosts)
    gaps = rng.exponential(duration_s / settings.flows, settings.flows)
    return pairs._replace(
        message_bytes=size,
        start_ns=np.rint(np.cumsum(gaps) * 1e9).astype(np.int64),
        sharing=np.ones(settings.flows, np.int64),
    )


# Communication patterns by name.

Pattern: TypeAlias = Callable[[Settings, np.random.Generator], Demands]

PATTERNS: Mapping[str, Pattern] = {
    "permutation": permutation,
    "all-to-all": all_to_all,
    "ring-allreduce": ring_allreduce,
    "incast": incast,
    "random": random_pairs,
    "trace-like": trace_like,
}


def pattern(name: str) -> Pattern:
    """The pattern of a name; UsageError if there is none."""
    if name not in PATTERNS:
        raise UsageError(f"there is no pattern {name!r}; {choices(name, PATTERNS)}")
    return PATTERNS[name]
