"""The next-hop selection of Linux, as the kernel computes it for forwarded packets.

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

from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from ....analyzer.errors import UsageError
from ....kernels.kernel import Bytes, Int32s, Ints, UInt16s, UInt32s, UInt64s, kernel
from ....kernels.named import NamedTuple
from ..bound import BoundHash
from ..keys import PacketKeys
from ..settings import HashSettings, Knob
from . import siphash
from .jenkins import jhash_2words

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
            whole = len(part.rows) == self.units
            values = out if whole else np.empty((len(seeds), len(part.rows)), np.uint32)
            part.fill(seeds, values)
            if not whole:
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
            siphash.hash_all(self._states(seeds), self.words, out)
        else:
            which = np.repeat(np.arange(len(seeds), dtype=np.int32), len(self.rows))
            self.fill_at(seeds, which.reshape(-1, len(self.rows)), out)

    def fill_at(self, seeds: UInt64s, which: Int32s, out: UInt32s) -> None:
        """out[r, i] = the same under seeds[which[r, i]]."""
        if self.skip:
            out[:] = 0
        elif self.alike:
            siphash.hash_at(self._states(seeds), which, self.words, out)
        else:
            siphash.hash_each(seeds, which, self.first_words, self.words, out)

    def _states(self, seeds: UInt64s) -> UInt64s:
        """uint64[m, 4]: SipHash states after the words that all units share."""
        out = np.empty((len(seeds), 4), np.uint64)
        siphash.prefix_states(seeds, self.first_words[0], out)
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
