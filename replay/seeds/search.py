"""The search for seeds that explain observed placements."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from ...analyzer.errors import UsageError
from ...kernels.kernel import Bools, Int32s, Ints, UInt32s, UInt64s, allocating, inlined
from ..hashing.bound import BoundHash
from ..hashing.keys import PacketKeys
from ..hashing.linux import LinuxHash, compress, finish, seeded
from ..hashing.models import bind
from ..hashing.reduction import PackedGroups, choose_one_group
from ..hashing.seeded import LinearHash, PerSwitch, SeedRange
from ..hashing.settings import Group, HashSettings
from ..results import SweepLayer
from .sweep import in_chunks

# Causes of imbalance, derived from the results of a sweep.

_FEW = 64
_IDLE = 0.9
"""Fewer used links than this share of random placement mean dependent choices of the tiers."""


def findings(
    settings: Sequence[HashSettings],
    linear: bool,
    layers: Sequence[SweepLayer],
    per_switch: PerSwitch,
    seeds: int,
) -> list[str]:
    """Sentences, most severe first. linear: every switch hashes linearly in its seed."""
    names = ", ".join(sorted({settings_of_switch.model for settings_of_switch in settings}))
    texts = _polarised(layers, names, linear, per_switch)
    if seeds > 1:
        texts += _seeds_without_effect(layers, names, linear)
    return texts + _worse_than_chance(layers, names)


def _polarised(
    layers: Sequence[SweepLayer], names: str, linear: bool, per_switch: PerSwitch
) -> list[str]:
    hit = [layer for layer in layers if _is_polarised(layer)]
    if not hit:
        return []
    shares = ", ".join(
        f"{100 * layer.used_links:.0f} % of the {layer.layer} links "
        f"(chance: {100 * layer.used_links_chance:.0f} %)"
        for layer in hit
    )
    if per_switch == "equal":
        cause = (
            f"every tier hashes with {names} and the same seed, so flows that one tier sends to "
            "the same link also share a link in the next tier: give each switch its own seed"
        )
        if linear:
            cause += f"; {names} is linear, so one tier also needs another function or rotation"
    elif linear:
        cause = (
            f"{names} is linear, so different seeds do not make the tiers' choices independent: "
            "use another function, rotation or offset in one of the tiers"
        )
    else:
        cause = "the choices of the tiers are not independent"
    return [f"Hash polarisation: traffic uses on average {shares}; {cause}."]


def _is_polarised(layer: SweepLayer) -> bool:
    return layer.used_links < _IDLE * layer.used_links_chance


def _seeds_without_effect(layers: Sequence[SweepLayer], names: str, linear: bool) -> list[str]:
    fixed = [layer for layer in layers if layer.distribution.distinct == 1]
    if not linear:  # in polarised layers idle links are the cause
        fixed = [layer for layer in fixed if not _is_polarised(layer)]
    few = [layer for layer in layers if 1 < (layer.distribution.distinct or _FEW + 1) <= _FEW]
    texts = []
    if fixed:
        where = " and ".join(layer.layer for layer in fixed)
        text = f"Every seed gives the same imbalance in {where}"
        if linear:
            text += (
                f": {names} is linear, so a new seed only permutes the links of a group whose "
                "size is a power of two, and the same flows collide. Another seed does not help; "
                "another function, other fields or more queue pairs can"
            )
        texts.append(f"{text}.")
    if few and linear:
        where = ", ".join(f"{layer.distribution.distinct} in {layer.layer}" for layer in few)
        texts.append(
            f"All seeds give only few different results ({where}): {names} is linear, "
            "so seeds only permute the links of the groups of each switch."
        )
    return texts


def _worse_than_chance(layers: Sequence[SweepLayer], names: str) -> list[str]:
    """Layers with all links in use but less evenly than with random placement."""
    hit = [
        layer
        for layer in layers
        if not _is_polarised(layer) and layer.distribution.mean > layer.chance.p95
    ]
    if not hit:
        return []
    where = ", ".join(
        f"{layer.layer} ({layer.distribution.mean:.1f}, chance {layer.chance.mean:.1f})"
        for layer in hit
    )
    return [
        f"{names} spreads this traffic less evenly than chance in {where}: its keys differ in "
        "too few of the bits it uses, or an earlier tier's choice already used them."
    ]


# Linear algebra over GF(2) on rows packed into Python integers.


class Solution(NamedTuple):
    """All x with A x = b: `smallest` XOR any combination of `2 ** free` vectors."""

    smallest: int
    """The solution that is the smallest number; bit i is unknown i."""
    free: int
    """Number of free unknowns."""


def solve(columns: Sequence[int], target: int) -> Solution | None:
    """All sets of unknowns whose columns sum (XOR) to `target`; None if there are none.

    Columns are taken from the lowest unknown up, and only if lower columns do not span
    them, so the solution has the smallest value.
    """
    pivots: dict[int, tuple[int, int]] = {}  # highest bit -> (reduced column, unknowns in it)
    for number, column in enumerate(columns):
        reduced, unknowns = _reduced(column, pivots)
        if reduced:
            pivots[reduced.bit_length()] = reduced, unknowns ^ (1 << number)
    rest, unknowns = _reduced(target, pivots)
    return None if rest else Solution(unknowns, len(columns) - len(pivots))


def _reduced(value: int, pivots: dict[int, tuple[int, int]]) -> tuple[int, int]:
    """The remainder of a value after elimination, and the unknowns used."""
    unknowns = 0
    while value and value.bit_length() in pivots:
        column, used = pivots[value.bit_length()]
        value ^= column
        unknowns ^= used
    if value:  # bits below the highest one may still be reducible, but they do not matter
        return value, unknowns
    return 0, unknowns


class AffineMap:
    """An unknown affine map over GF(2), learned from inputs and outputs."""

    def __init__(self) -> None:
        self._rows: dict[int, tuple[int, int]] = {}  # highest bit -> (input, output)

    @property
    def rank(self) -> int:
        """Number of independent inputs, including the constant."""
        return len(self._rows)

    def output(self, value: int) -> int | None:
        """The output of an input; None if the known inputs do not determine it."""
        rest, output = self._reduce((value << 1) | 1)
        return None if rest else output

    def learn(self, value: int, output: int) -> bool:
        """Add an observation; False if it contradicts earlier observations."""
        rest, expected = self._reduce((value << 1) | 1)
        if rest:
            self._rows[rest.bit_length()] = rest, output ^ expected
            return True
        return expected == output

    def _reduce(self, value: int) -> tuple[int, int]:
        output = 0
        while value and value.bit_length() in self._rows:
            row, known = self._rows[value.bit_length()]
            value ^= row
            output ^= known
        return value, output


# The search for a Linux router's hash seed among all 2^32.
#
# A router with `fib_multipath_hash_policy` selects next hops with SipHash-2-4; both
# 64-bit halves of the key are the 32-bit seed twice. Seeds are tried in blocks: one
# flow is hashed with all seeds of a block at once (the loops over a block become
# vector instructions), the seeds that place the flow elsewhere are dropped, and the
# next flow is hashed with the remaining seeds. With k next hops a seed costs about
# 1 + 1/k + 1/k^2 + ... hashes.

SEEDS = 1 << 32
_BLOCK = 1024
"""Seeds per block: their SipHash states fill most of a first-level cache."""


@inlined
def _begin(
    seeds: UInt32s, count: np.int64, v0: UInt64s, v1: UInt64s, v2: UInt64s, v3: UInt64s
) -> None:
    for i in range(count):
        key = np.uint64(seeds[i])
        v0[i], v1[i], v2[i], v3[i] = seeded(key << np.uint64(32) | key)


@inlined
def _absorb(
    word: np.uint64, count: np.int64, v0: UInt64s, v1: UInt64s, v2: UInt64s, v3: UInt64s
) -> None:
    for i in range(count):
        state = (v0[i], v1[i], v2[i], v3[i])
        v0[i], v1[i], v2[i], v3[i] = compress(state, word)


@inlined
def _end(
    count: np.int64, v0: UInt64s, v1: UInt64s, v2: UInt64s, v3: UInt64s, hashes: UInt32s
) -> None:
    for i in range(count):
        hashes[i] = np.uint32(finish((v0[i], v1[i], v2[i], v3[i])))


@allocating
def scan_linux(
    first: int, count: int, words: UInt64s, low: UInt32s, high: UInt32s, fitting_seeds: UInt32s
) -> int:
    """The number of seeds in first .. first+count-1 that place every flow where it was captured.

    `words` u64[flows, w]: the hashed bytes as little-endian words, the last word
    with the length in its top byte (SipHash's padding). low .. high: range of the
    multipath value (hash >> 1) for the link of each flow. The first seeds go to `fitting_seeds`.
    """
    v0 = np.empty(_BLOCK, np.uint64)
    v1 = np.empty(_BLOCK, np.uint64)
    v2 = np.empty(_BLOCK, np.uint64)
    v3 = np.empty(_BLOCK, np.uint64)
    seeds = np.empty(_BLOCK, np.uint32)
    hashes = np.empty(_BLOCK, np.uint32)
    fitting = 0
    for begin in range(0, count, _BLOCK):
        left = np.int64(min(_BLOCK, count - begin))
        for i in range(left):
            seeds[i] = np.uint32(first + begin + i)
        for flow in range(words.shape[0]):
            _begin(seeds, left, v0, v1, v2, v3)
            for w in range(words.shape[1]):
                _absorb(words[flow, w], left, v0, v1, v2, v3)
            _end(left, v0, v1, v2, v3, hashes)
            kept = np.int64(0)
            lowest, width = low[flow], high[flow] - low[flow]
            for i in range(left):
                # The kernel turns a hash of 0 into 1; both have the multipath value 0.
                value = hashes[i] >> np.uint32(1)
                seeds[kept] = seeds[i]  # kept <= i: nothing unread is overwritten
                kept += np.int64(np.uint32(value - lowest) <= width)
            left = kept
            if left == 0:
                break
        for i in range(left):
            if fitting < len(fitting_seeds):
                fitting_seeds[fitting] = seeds[i]
            fitting += 1
    return fitting


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

    def add(self, fitting_seeds: UInt64s, count: int, tried: int) -> None:
        with self._lock:
            self._parts.append(fitting_seeds)
            self._count += count
            self._done += tried

    def tell(self) -> None:
        if self._tell is not None:
            self._tell(self._done, self._seeds.seeds)

    def fit(self) -> Fit:
        fitting_seeds = np.sort(np.concatenate([np.zeros(0, np.uint64), *self._parts]))
        return Fit(fitting_seeds[:MOST_SEEDS], self._count, self._seeds.seeds)


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
    search = _Found(seeds, tell)

    def work(_worker: int, number: int) -> None:
        first = seeds.first + number * _CHUNK
        count = min(_CHUNK, seeds.end - first)
        kept = np.empty(MOST_SEEDS, np.uint32)
        fits = scan_linux(first, count, words, lowest, highest, kept)
        search.add(kept[:fits].astype(np.uint64), fits, count)

    in_chunks(-(-seeds.seeds // _CHUNK), work, search.tell)
    return search.fit()


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
        of_kind = wanted[bound.kind == kind]
        if (of_kind != of_kind[:1]).any():
            return None
        shift = kind * mask.bit_length()
        equations |= int(of_kind[0]) << shift if len(of_kind) else 0
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
    solved = [solution for solution in solutions if solution is not None]
    return Fit(
        np.array(sorted(s.smallest for s in solved), np.uint64),
        sum(1 << s.free for s in solved),
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
    search = _Found(seeds, tell)

    def work(_worker: int, number: int) -> None:
        begin = seeds.first + number * _GENERIC_CHUNK
        chosen = np.arange(begin, min(begin + _GENERIC_CHUNK, seeds.end), dtype=np.uint64)
        left = chosen[_all_match(few, packed, chosen, link[first])]
        if len(left) and rest.units:
            left = left[_all_match(rest, packed, left, link[~first])]
        search.add(left[:MOST_SEEDS], len(left), len(chosen))

    in_chunks(-(-seeds.seeds // _GENERIC_CHUNK), work, search.tell)
    return search.fit()


def _all_match(bound: BoundHash, packed: PackedGroups, seeds: UInt64s, link: Int32s) -> Bools:
    """bool[seeds]: seeds that place every flow on its link."""
    values = np.empty((len(seeds), bound.units), np.uint32)
    member = np.empty(values.shape, np.uint16)
    bound.fill(seeds, values)
    choose_one_group(values, packed, np.int64(0), member)
    every: Bools = (member == link).all(1)
    return every
