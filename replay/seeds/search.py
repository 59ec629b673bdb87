"""Searches for the seeds with which a hash places every flow on the link where it was captured."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from ...analyzer.errors import UsageError
from ...kernels.kernel import Bools, Int32s, Ints, UInt64s
from ..hashing.bound import BoundHash
from ..hashing.functions.linux import LinuxHash
from ..hashing.keys import PacketKeys
from ..hashing.linear import LinearHash
from ..hashing.models import bind
from ..hashing.reduction import PackedGroups, choose_one_group
from ..hashing.seeding import SeedRange
from ..hashing.settings import Group, HashSettings
from .chunks import in_chunks
from .gf2 import solve
from .linux_scan import scan_linux

MOST_SEEDS = 1 << 16
"""Maximum number of fitting seeds kept by a search; all are counted."""
_CHUNK = 1 << 23
_GENERIC_CHUNK = 1 << 16
_FIRST_FLOWS = 8
"""Flows that are tried with all seeds; few seeds remain for the other flows."""

Tell = Callable[[int, int], None]
"""Called with the seeds tried and the number of seeds."""


class Fit(NamedTuple):
    """The result of a search."""

    seeds: UInt64s
    """The first MOST_SEEDS fitting seeds, ascending."""
    number: int
    """The number of all fitting seeds."""
    searched: int


class _Found:
    """Collects seeds from several threads."""

    def __init__(self, seeds: SeedRange, tell: Tell | None) -> None:
        self._seeds = seeds
        self._tell = tell
        self._lock = threading.Lock()
        self._parts: list[UInt64s] = []
        self._count = self._done = 0

    def add(self, found: UInt64s, count: int, tried: int) -> None:
        with self._lock:
            self._parts.append(found)
            self._count += count
            self._done += tried

    def tell(self) -> None:
        if self._tell is not None:
            self._tell(self._done, self._seeds.seeds)

    def fit(self) -> Fit:
        found = np.sort(np.concatenate([np.zeros(0, np.uint64), *self._parts]))
        return Fit(found[:MOST_SEEDS], self._count, self._seeds.seeds)


def fitting(
    keys: PacketKeys, settings: HashSettings, group: Group, link: Int32s, seeds: UInt64s
) -> Bools:
    """bool[seeds, n]: flows that each seed places on the link where they were captured."""
    return bind(keys, settings).choose(seeds, group) == link


def search_linux(
    bound: LinuxHash, group: Group, link: Int32s, seeds: SeedRange, tell: Tell | None
) -> Fit:
    """Try seeds with the flows of one address family, the only one in `bound`.

    link: int32[n], the link of each flow.
    """
    (part,) = bound.parts
    length = np.uint64((24 + 8 * len(part.words)) << 56)
    n = bound.units
    words = np.zeros((n, 4 + len(part.words)), np.uint64)
    words[:, 0] = part.first_words
    words[:, 3:-1] = part.words.T
    words[:, -1] = length
    low, high = _intervals(bound, group)
    if (high < low)[link].any():
        return Fit(np.zeros(0, np.uint64), 0, seeds.seeds)
    # The flow that the fewest seeds place on its link comes first.
    order = np.argsort((high - low)[link], kind="stable")
    words = np.ascontiguousarray(words[order])
    lowest, highest = (b[link][order].astype(np.uint32) for b in (low, high))
    found = _Found(seeds, tell)

    def work(_worker: int, number: int) -> None:
        first = seeds.first + number * _CHUNK
        count = min(_CHUNK, seeds.end - first)
        kept = np.empty(MOST_SEEDS, np.uint32)
        fits = scan_linux(first, count, words, lowest, highest, kept)
        found.add(kept[:fits].astype(np.uint64), fits, count)

    in_chunks(-(-seeds.seeds // _CHUNK), work, found.tell)
    return found.fit()


def _intervals(bound: LinuxHash, group: Group) -> tuple[Ints, Ints]:
    """Lowest and highest multipath value of every member."""
    if group.buckets is not None:
        raise UsageError("the seed of a resilient group cannot be recovered")
    high = bound.pack([group]).bounds
    return np.concatenate([np.zeros(1, np.int64), high[:-1] + 1]), high


def search_linear(bound: LinearHash, group: Group, link: Int32s) -> Fit | None:
    """Solve for the seeds of a linear hash whose seed only permutes the members of the group.

    Flow i is on link base_i XOR c, with the same c for all flows of an address family;
    the seeds with that c follow by elimination. None if no c fits all flows.
    """
    mask = len(group.weights) - 1
    base = bound.choose([0], group)[0].astype(np.int64)
    wanted = base ^ link
    equations = 0
    columns = [0] * 32
    for kind in range(len(bound.basis)):
        here = wanted[bound.kind == kind]
        if (here != here[:1]).any():
            return None
        shift = kind * mask.bit_length()
        equations |= int(here[0]) << shift if len(here) else 0
        for bit in range(32):
            columns[bit] |= (int(bound.basis[kind, bit]) & mask) << shift
    effective = max((bit + 1 for bit in range(32) if bound.basis[:, bit].any()), default=0)
    solution = solve(columns[:effective], equations)
    if solution is None:
        return None
    count = 1 << solution.free
    return Fit(np.array([solution.smallest], np.uint64), count, 1 << effective)


def search_masks(
    settings: HashSettings,
    bound: LinearHash,
    keys: PacketKeys,
    group: Group,
    link: Int32s,
    tell: Tell | None,
) -> Fit | None:
    """Try every value that the seed of a linear hash can XOR into its values, for groups of
    any size. None with units of both address families, which a seed changes differently."""
    if len(bound.basis) > 1:
        return None
    mixed = replace(settings, seed_use="xor")
    masks = search_any(mixed, keys, group, link, SeedRange(0, 1 << bound.bits), tell)
    columns = [int(column) for column in bound.basis[0]]
    effective = max((bit + 1 for bit in range(32) if columns[bit]), default=0)
    solutions = [solve(columns[:effective], int(mask)) for mask in masks.seeds]
    found = [solution for solution in solutions if solution is not None]
    return Fit(
        np.array(sorted(s.smallest for s in found), np.uint64),
        sum(1 << s.free for s in found),
        1 << effective,
    )


def search_any(
    settings: HashSettings,
    keys: PacketKeys,
    group: Group,
    link: Int32s,
    seeds: SeedRange,
    tell: Tell | None,
) -> Fit:
    """Try every seed of any hash: first with few flows, then the remaining seeds with all flows."""
    first = np.arange(len(link)) < _FIRST_FLOWS
    few, rest = bind(keys.take(first), settings), bind(keys.take(~first), settings)
    packed = few.pack([group])
    found = _Found(seeds, tell)

    def work(_worker: int, number: int) -> None:
        begin = seeds.first + number * _GENERIC_CHUNK
        chosen = np.arange(begin, min(begin + _GENERIC_CHUNK, seeds.end), dtype=np.uint64)
        left = chosen[_all_match(few, packed, chosen, link[first])]
        if len(left) and rest.units:
            left = left[_all_match(rest, packed, left, link[~first])]
        found.add(left[:MOST_SEEDS], len(left), len(chosen))

    in_chunks(-(-seeds.seeds // _GENERIC_CHUNK), work, found.tell)
    return found.fit()


def _all_match(bound: BoundHash, packed: PackedGroups, seeds: UInt64s, link: Int32s) -> Bools:
    """bool[seeds]: seeds that place every flow on its link."""
    values = np.empty((len(seeds), bound.units), np.uint32)
    member = np.empty(values.shape, np.uint16)
    bound.fill(seeds, values)
    choose_one_group(values, packed, np.int64(0), member)
    every: Bools = (member == link).all(1)
    return every
