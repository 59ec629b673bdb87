"""The multipath hash of Linux, exact: flow keys and SipHash.

`fib_multipath_hash_policy` selects the fields: 0 addresses, 1 the 5-tuple,
2 the inner addresses of a tunnel (without tunnel: the outer addresses), 3 the
fields of `fib_multipath_hash_fields`. The key is made symmetric, hashed with
SipHash-2-4 under the 32-bit `fib_multipath_hash_seed`, and the upper 31 bits of
the low word go through hash-threshold (resilient groups: modulo the buckets).
Source: Linux net/ipv4/route.c (fib_multipath_hash), net/ipv6/route.c
(rt6_multipath_hash), net/core/flow_dissector.c (__flow_hash_consistentify).
Each case is compared with a real kernel in the tests. Kernels before 6.11 have
a random 128-bit key instead of the seed.
"""

from __future__ import annotations

from typing import TypeAlias, TypeVar

import numpy as np
from numpy.typing import NDArray

from ...analyzer.errors import UsageError
from ...kernels.kernel import (
    Bytes,
    Int32s,
    Ints,
    NamedTuple,
    UInt16s,
    UInt32s,
    UInt64s,
    inlined,
    kernel,
)
from .bound import BoundHash
from .functions import jhash_2words
from .keys import PacketKeys
from .settings import HashSettings, Knob

# SipHash-2-4 of the flow keys Linux hashes, under many seeds.
#
# The first three words of a key hold no address and no port, so
# nearly always all units share them: their rounds are done once per seed. The
# loop over the units holds no branch and becomes vector instructions.
# Source: Aumasson and Bernstein, "SipHash: a fast short-input PRF" (2012);
# Linux lib/siphash.c, net/ipv4/route.c (fib_multipath_hash_construct_key).

State: TypeAlias = tuple[np.uint64, np.uint64, np.uint64, np.uint64]


@inlined
def rotated_left(x: np.uint64, bits: int) -> np.uint64:
    """A 64-bit word turned left by 1 to 63 bits."""
    return np.uint64((x << np.uint64(bits)) | (x >> np.uint64(64 - bits)))


@inlined
def sip_round(state: State) -> State:
    """One SipRound."""
    v0, v1, v2, v3 = state
    v0 = v0 + v1
    v2 = v2 + v3
    v1 = rotated_left(v1, 13) ^ v0
    v3 = rotated_left(v3, 16) ^ v2
    v0 = rotated_left(v0, 32)
    v2 = v2 + v1
    v0 = v0 + v3
    v1 = rotated_left(v1, 17) ^ v2
    v3 = rotated_left(v3, 21) ^ v0
    v2 = rotated_left(v2, 32)
    return v0, v1, v2, v3


@inlined
def compress(state: State, word: np.uint64) -> State:
    """The state after one more word of the message."""
    v0, v1, v2, v3 = sip_round(sip_round((state[0], state[1], state[2], state[3] ^ word)))
    return v0 ^ word, v1, v2, v3


@inlined
def finish(state: State) -> np.uint64:
    """The 64-bit hash of the state after the last word."""
    half = sip_round(sip_round((state[0], state[1], state[2] ^ np.uint64(0xFF), state[3])))
    v0, v1, v2, v3 = sip_round(sip_round(half))
    return np.uint64((v0 ^ v1) ^ (v2 ^ v3))


@inlined
def seeded(key: np.uint64) -> State:
    """The first state under a key of two equal halves, as Linux makes it from its seed."""
    return (
        key ^ np.uint64(0x736F6D6570736575),
        key ^ np.uint64(0x646F72616E646F6D),
        key ^ np.uint64(0x6C7967656E657261),
        key ^ np.uint64(0x7465646279746573),
    )


@inlined
def _prefix(seed: np.uint64, first_word: np.uint64) -> State:
    """The state after the first word of a key and two words of zeros."""
    half, zero = seed & np.uint64(0xFFFFFFFF), np.uint64(0)
    state = compress(seeded(np.uint64((half << np.uint64(32)) | half)), first_word)
    return compress(compress(state, zero), zero)


@kernel
def prefix_states(seeds: UInt64s, first_word: np.uint64, out: UInt64s) -> None:
    """out[s] = the four state words under seeds[s] after first_word, 0, 0.

    uint64[m] (of which the low 32 bits count), uint64[m, 4].
    """
    for s in range(len(seeds)):
        out[s, 0], out[s, 1], out[s, 2], out[s, 3] = _prefix(seeds[s], first_word)


@inlined
def _rest(state: State, words: UInt64s, i: int, ipv6: bool) -> np.uint64:
    """The hash of a key of 48 bytes, or of 72 bytes with IPv6, from its fourth word on."""
    state = compress(compress(compress(state, words[0, i]), words[1, i]), words[2, i])
    if ipv6:
        state = compress(compress(compress(state, words[3, i]), words[4, i]), words[5, i])
    return finish(compress(state, np.uint64((72 if ipv6 else 48) << 56)))


@kernel
def hash_all(states: UInt64s, words: UInt64s, out: UInt32s) -> None:
    """out[s, i] = low 32 bits: uint64[m, 4], uint64[3 or 6, n], uint32[m, n]."""
    ipv6 = words.shape[0] == 6
    for s in range(len(states)):
        state = states[s, 0], states[s, 1], states[s, 2], states[s, 3]
        for i in range(words.shape[1]):
            out[s, i] = np.uint32(_rest(state, words, i, ipv6))


@kernel
def hash_at(states: UInt64s, which: Int32s, words: UInt64s, out: UInt32s) -> None:
    """out[r, i] for its own state per value, states[which[r, i]].

    uint64[m, 4], int32[r, n], uint64[3 or 6, n], uint32[r, n].
    """
    ipv6 = words.shape[0] == 6
    for r in range(which.shape[0]):
        for i in range(words.shape[1]):
            w = which[r, i]
            state = states[w, 0], states[w, 1], states[w, 2], states[w, 3]
            out[r, i] = np.uint32(_rest(state, words, i, ipv6))


@kernel
def hash_each(
    seeds: UInt64s, which: Int32s, first_words: UInt64s, words: UInt64s, out: UInt32s
) -> None:
    """The same for keys whose first words differ: nothing is shared.

    uint64[m], int32[r, n], uint64[n], uint64[3 or 6, n], uint32[r, n].
    """
    ipv6 = words.shape[0] == 6
    for r in range(which.shape[0]):
        for i in range(words.shape[1]):
            state = _prefix(seeds[which[r, i]], first_words[i])
            out[r, i] = np.uint32(_rest(state, words, i, ipv6))


SRC, DST, PROTOCOL, FLOW_LABEL, SPORT, DPORT = (1 << bit for bit in range(6))
"""Bits of `fib_multipath_hash_fields` for outer headers."""

_LAYER_3 = SRC | DST
_LAYER_4 = SRC | DST | PROTOCOL | SPORT | DPORT

T = TypeVar("T", bound=np.generic)

_SYSCTL = "Linux Documentation/networking/ip-sysctl.rst"
KNOBS = (
    Knob(
        "policy",
        1,
        "fib_multipath_hash_policy: 0 addresses, 1 5-tuple, 2 inner addresses, 3 custom fields",
        ("0", "1", "2", "3"),
        _SYSCTL,
    ),
    Knob(
        "fields",
        _LAYER_3 | PROTOCOL,
        "fib_multipath_hash_fields (policy 3): 1 source, 2 destination, 4 protocol, "
        "8 flow label, 16 source port, 32 destination port",
        source=_SYSCTL,
    ),
)


class LinuxHash(BoundHash):
    """Values are the kernel's 31-bit multipath hash."""

    bits = 31
    reduction = "threshold"

    def __init__(self, keys: PacketKeys, settings: HashSettings) -> None:
        """UsageError for a policy or field mask that the kernel does not have."""
        self.units = keys.units
        self._custom = _number(settings, "policy", 1, 3) == 3
        self.parts: list[FamilyKeys] = []
        """The units by address family."""
        for ipv6 in (False, True):
            rows = np.flatnonzero(keys.ipv6 == ipv6)
            if len(rows):
                self.parts.append(_part(keys.take(rows), rows, ipv6, settings))

    def fill(self, seeds: UInt64s, out: UInt32s) -> None:
        for part in self.parts:
            covers_all = len(part.rows) == self.units
            values = out if covers_all else np.empty((len(seeds), len(part.rows)), np.uint32)
            part.fill(seeds, values)
            if not covers_all:
                out[:, part.rows] = values
        _multipath(out, self._custom)

    def fill_at(self, seeds: UInt64s, which: Int32s, out: UInt32s) -> None:
        for part in self.parts:
            values = np.empty((len(which), len(part.rows)), np.uint32)
            part.fill_at(seeds, np.ascontiguousarray(which[:, part.rows]), values)
            out[:, part.rows] = values
        _multipath(out, self._custom)


class FamilyKeys(NamedTuple):
    """The units of one address family."""

    rows: Ints
    """int64[n]: which units they are."""
    first_words: UInt64s
    """uint64[n]: first word of each key (protocol, flow label)."""
    alike: bool
    """All first words are equal."""
    words: UInt64s
    """uint64[3 or 6, n]: ports and addresses."""
    skip: bool
    """The policy selects no field: the hash is 0 without hashing."""

    def fill(self, seeds: UInt64s, out: UInt32s) -> None:
        """out[s, i] = low 32 bits of the SipHash under seeds[s]."""
        if self.alike and not self.skip:
            hash_all(self._states(seeds), self.words, out)
        else:
            which = np.repeat(np.arange(len(seeds), dtype=np.int32), len(self.rows))
            self.fill_at(seeds, which.reshape(-1, len(self.rows)), out)

    def fill_at(self, seeds: UInt64s, which: Int32s, out: UInt32s) -> None:
        """out[r, i] = the same under seeds[which[r, i]]."""
        if self.skip:
            out[:] = 0
        elif self.alike:
            hash_at(self._states(seeds), which, self.words, out)
        else:
            hash_each(seeds, which, self.first_words, self.words, out)

    def _states(self, seeds: UInt64s) -> UInt64s:
        """uint64[m, 4]: SipHash states after the words that all units share."""
        out = np.empty((len(seeds), 4), np.uint64)
        prefix_states(seeds, self.first_words[0], out)
        return out


def _part(keys: PacketKeys, rows: Ints, ipv6: bool, settings: HashSettings) -> FamilyKeys:
    policy = _number(settings, "policy", 1, 3)
    if policy == 3:
        fields = _number(settings, "fields", _LAYER_3 | PROTOCOL, 63)
    elif policy == 1:
        fields = _LAYER_4
    else:
        fields = _LAYER_3 | PROTOCOL | FLOW_LABEL if ipv6 else _LAYER_3
    # IPv4 has no flow label; under policy 0 IPv6 hashes it as it lies in the header.
    label = keys.flow_label if ipv6 else np.zeros_like(keys.flow_label)
    label = _if(fields & FLOW_LABEL, label.byteswap() if policy == 0 else label)
    protocol = _if(fields & PROTOCOL, keys.protocol).astype(np.uint64)
    first_words = protocol << np.uint64(16) | label.astype(np.uint64) << np.uint64(32)
    alike = bool((first_words == first_words[0]).all())
    words = _words(
        _if(fields & SRC, keys.src),
        _if(fields & DST, keys.dst),
        _if(fields & SPORT, keys.sport),
        _if(fields & DPORT, keys.dport),
        ipv6,
    )
    return FamilyKeys(rows, first_words, alike, words, skip=fields == 0)


def _number(settings: HashSettings, name: str, default: int, highest: int) -> int:
    text = settings.extra.get(name, default)
    try:
        value = int(str(text), 0)
    except ValueError:
        value = -1
    if not 0 <= value <= highest:
        raise UsageError(f"{name}={text}: the Linux model takes 0 to {highest}")
    return value


def _if(wanted: int, column: NDArray[T]) -> NDArray[T]:
    return column if wanted else np.zeros_like(column)


def _words(src: Bytes, dst: Bytes, sport: UInt16s, dport: UInt16s, ipv6: bool) -> UInt64s:
    """uint64[3 or 6, n]: the key from byte 24 on, symmetric, as little-endian words."""
    n = len(sport)
    size = 16 if ipv6 else 4
    low, high = src[:, 16 - size :], dst[:, 16 - size :]
    # Little-endian hosts compare IPv4 addresses from their last byte, IPv6 ones from the first.
    order = np.arange(size) if ipv6 else np.arange(size)[::-1]
    unequal = (low != high)[:, order]
    at = order[np.argmax(unequal, axis=1)][:, None]
    swap = np.take_along_axis(high, at, 1) < np.take_along_axis(low, at, 1)
    ports = np.stack([sport, dport], axis=1).astype(">u2").view("<u2")
    key = np.zeros((n, 48 if ipv6 else 24), np.uint8)
    key[:, 4:8] = np.sort(ports, axis=1).astype("<u2").view(np.uint8)
    key[:, 12 : 12 + size] = np.where(swap, high, low)
    key[:, 12 + size : 12 + 2 * size] = np.where(swap, low, high)
    return np.ascontiguousarray(key.view("<u8").T)


@kernel
def _multipath(values: UInt32s, custom: bool) -> None:
    """From SipHash to the multipath hash, in place; custom: policy 3."""
    for s in range(values.shape[0]):
        for i in range(values.shape[1]):
            h = values[s, i]
            h = h | np.uint32(h == 0)
            if custom:
                h = jhash_2words(h, np.uint32(0), np.uint32(0))
            values[s, i] = h >> np.uint32(1)
