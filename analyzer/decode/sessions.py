"""Mirror sessions: each session in a capture becomes a tap.

Kernels look sessions up and stop at a new one, for which Python registers a tap. A capture has at
most MAX_SESSIONS; further sessions share one tap.
"""

from __future__ import annotations

from ipaddress import IPv4Address, IPv6Address
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ...kernels.kernel import Int, inlined, subkernel
from ..wire.packets import I64, LINKTYPE_ETHERNET
from ..wire.registry import IPV4_MAPPED
from ..wire.taps import Tap, Taps

MAX_SESSIONS = 256
"""Tables of taps against taps grow with the square of this."""
_SLOTS = 4 * MAX_SESSIONS

# Kinds of encapsulations. Those up to GENEVE make a session. The weak kinds are tunnels
# as often as mirrors: they define the tap only without a mirror.
ERSPAN_1, ERSPAN_2, ERSPAN_3, GRE_MIRROR, SFLOW = 1, 2, 3, 4, 5
GRE_TUNNEL, VXLAN, GENEVE = 6, 7, 8
FIRST_WEAK = GRE_TUNNEL
IP_IN_IP, MPLS, TIMESTAMP = 9, 10, 11
VN_TAG, E_TAG, CISCO_METADATA, REDUNDANCY_TAG, NSH = 12, 13, 14, 15, 16
BACKBONE, GTP = 17, 18
N_KINDS = 19
KIND_NAMES: Final = {
    ERSPAN_1: "ERSPAN I",
    ERSPAN_2: "ERSPAN II",
    ERSPAN_3: "ERSPAN III",
    GRE_MIRROR: "GRE mirror",
    SFLOW: "sFlow",
    GRE_TUNNEL: "GRE",
    VXLAN: "VXLAN",
    GENEVE: "Geneve",
    IP_IN_IP: "IP in IP",
    MPLS: "MPLS",
    TIMESTAMP: "Arista timestamp",
    VN_TAG: "VN-Tag",
    E_TAG: "E-tag (802.1BR)",
    CISCO_METADATA: "Cisco metadata (CMD)",
    REDUNDANCY_TAG: "HSR or 802.1CB",
    NSH: "NSH",
    BACKBONE: "FabricPath, TRILL or 802.1ah",
    GTP: "GTP-U",
}

# Bits of a session's description: kind << 56 | direction << 48 | tap of the carrier << 32 | id.
KIND_SHIFT, DIRECTION_SHIFT, TAP_SHIFT = 56, 48, 32
NO_DIRECTION, INGRESS, EGRESS = 0, 1, 2
WITH_KEY = 1
"""In place of a direction: the GRE header has a key."""


class SessionArrays(NamedTuple):
    """The known sessions for kernels: open addressing with linear probing."""

    slots: NDArray[np.int16]
    """int16[_SLOTS]: number of a session, -1 when free."""
    keys: I64
    """int64[MAX_SESSIONS, 3]: source address (two halves) and description."""
    taps: NDArray[np.uint16]
    """uint16[MAX_SESSIONS + 1]: tap of each session; the last one of all others."""
    state: I64
    """int64[5]: sessions in use, 1 when the tap of all others exists, the key that is new."""


USED, HAS_OTHER, PENDING = 0, 1, 2


@inlined
def _slot(high: Int, low: Int, what: Int) -> np.uint64:
    h = (np.uint64(low) ^ (np.uint64(what) << np.uint64(7))) * np.uint64(0x9E3779B97F4A7C15)
    h = (h ^ (h >> np.uint64(32)) ^ np.uint64(high)) * np.uint64(0xD6E8FEB86659FD93)
    return np.uint64((h ^ (h >> np.uint64(32))) & np.uint64(_SLOTS - 1))


@subkernel
def session_tap(high: Int, low: Int, what: Int, arrays: SessionArrays) -> Int:
    """The tap of a session (int64 key), -1 when Python must register the session in `state`.

    At most a quarter of the slots is in use, so probing ends.
    """
    slot = _slot(high, low, what)
    while True:
        n = np.int64(arrays.slots[slot])
        if n < 0:
            break
        if arrays.keys[n, 2] == what and arrays.keys[n, 1] == low and arrays.keys[n, 0] == high:
            return np.int64(arrays.taps[n])
        slot = (slot + np.uint64(1)) & np.uint64(_SLOTS - 1)
    if arrays.state[USED] == MAX_SESSIONS and arrays.state[HAS_OTHER] != 0:
        return np.int64(arrays.taps[MAX_SESSIONS])
    arrays.state[PENDING] = high
    arrays.state[PENDING + 1] = low
    arrays.state[PENDING + 2] = what
    return np.int64(-1)


@subkernel
def _add(tap: Int, arrays: SessionArrays) -> None:
    """Assign this tap to the pending session, or to all further sessions when the table is full."""
    n = arrays.state[USED]
    if n == MAX_SESSIONS:
        arrays.taps[MAX_SESSIONS] = tap
        arrays.state[HAS_OTHER] = 1
        return
    slot = _slot(arrays.state[PENDING], arrays.state[PENDING + 1], arrays.state[PENDING + 2])
    while arrays.slots[slot] >= 0:
        slot = (slot + np.uint64(1)) & np.uint64(_SLOTS - 1)
    arrays.slots[slot] = n
    for k in range(3):
        arrays.keys[n, k] = arrays.state[PENDING + k]
    arrays.taps[n] = tap
    arrays.state[USED] = n + 1


class Sessions:
    """The sessions of one capture and their taps."""

    def __init__(self, taps: Taps) -> None:
        self._taps = taps
        self._without_tap = False
        self.arrays = SessionArrays(
            np.full(_SLOTS, -1, np.int16),
            np.zeros((MAX_SESSIONS, 3), np.int64),
            np.zeros(MAX_SESSIONS + 1, np.uint16),
            np.zeros(5, np.int64),
        )

    def __len__(self) -> int:
        return int(self.arrays.state[USED])

    @property
    def overflowed(self) -> bool:
        """There were more sessions than taps for them."""
        return bool(self.arrays.state[HAS_OTHER]) or self._without_tap

    @property
    def pending(self) -> bool:
        """A kernel has stopped at a session that has no tap yet."""
        return bool(self.arrays.state[PENDING + 2])

    def add_pending(self) -> None:
        """Register a tap for the session at which a kernel stopped."""
        high, low, what = (int(v) for v in self.arrays.state[PENDING : PENDING + 3])
        carried_by = what >> TAP_SHIFT & 0xFFFF
        if self._taps.are_many:
            self._without_tap = True
            self._taps[carried_by].shared = True
            _add(carried_by, self.arrays)
        else:
            carrier = self._taps[carried_by].name
            shared = len(self) == MAX_SESSIONS
            name = (
                f"further mirror sessions in {carrier}"
                if shared
                else session_name(high & (1 << 64) - 1, low & (1 << 64) - 1, what)
            )
            name = unused_name(name, carrier, self._taps)
            tap = Tap(name, LINKTYPE_ETHERNET, carrier=carried_by, shared=shared)
            _add(self._taps.add(tap), self.arrays)
        self.arrays.state[PENDING + 2] = 0


def unused_name(name: str, carrier: str, taps: Taps) -> str:
    """Two captures may hold the same session: their taps stay separate."""
    taken = any(tap.name == name for tap in taps.items)
    return f"{name} in {carrier}" if taken else name


_NAMES: Final = {
    ERSPAN_1: "erspan",
    ERSPAN_2: "erspan",
    ERSPAN_3: "erspan",
    GRE_MIRROR: "gre",
    GRE_TUNNEL: "gre tunnel",
    SFLOW: "sflow",
    VXLAN: "vxlan",
    GENEVE: "geneve",
}


def session_name(high: int, low: int, what: int) -> str:
    """`erspan 12 ingress from 10.1.1.1`: name of the tap of a session."""
    kind, direction, number = what >> KIND_SHIFT, what >> DIRECTION_SHIFT & 0xFF, what & 0xFFFF_FFFF
    words = [_NAMES[kind]]
    if kind in (GRE_MIRROR, GRE_TUNNEL):
        words += [f"key {number}"] if direction == WITH_KEY else []
    elif kind == SFLOW:
        words += [f"interface {number}"]
    elif kind != ERSPAN_1:
        words += [str(number)]
    if kind in (ERSPAN_3, SFLOW) and direction:
        words += ["egress" if direction == EGRESS else "ingress"]
    return " ".join([*words, "from", _address(high, low)])


def _address(high: int, low: int) -> str:
    if high == 0 and low & ~0xFFFF_FFFF == IPV4_MAPPED:
        return str(IPv4Address(low & 0xFFFF_FFFF))
    return str(IPv6Address(high << 64 | low))
