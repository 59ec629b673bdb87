"""The BPF program that counts flows, and the layout of its maps."""

from __future__ import annotations

import struct
from dataclasses import dataclass
from functools import lru_cache
from ipaddress import IPv4Address, IPv6Address
from pathlib import Path
from typing import Final

import numpy as np

from ...analyzer.decode.headers import LAYOUT
from ...analyzer.track.state import RESTART_DISTANCE
from ...analyzer.wire import bth
from ...kernels.kernel import Array, Ints
from .. import bpf
from ..program.compile import known_machine_code
from ..program.program import Compiled, ProgramOptions, definitions, source_of

# The tables of counters.bpf.c as numpy records, and their sums.

KEY: Final = np.dtype(
    [
        ("src", "V16"),
        ("dst", "V16"),
        ("dest_qp", "<u4"),
        ("sport", "<u2"),
        ("tap", "u1"),
        ("flags", "u1"),
    ]
)
"""struct counter_key: addresses in network order, IPv4 in the first four bytes."""
IS_IPV6 = 1
"""A flag of KEY: the addresses have 128 bits. The three bits above hold the transport."""

_COUNTS = (
    "packets",
    "wire_bytes",
    "payload_bytes",
    "last_ns",
    "requests",
    "ecn_capable",
    "messages",
    "responses",
    "acks",
    "naks",
    "rnr_naks",
    "cnps",
    "ecn_marked",
    "reads",
    "late",
    "gaps",
    "gap_psns",
    "jumps",
    "restarts",
    "unordered",
)
_BEFORE_IDLE = _COUNTS.index("responses")
COUNTERS: Final = np.dtype(
    [
        ("key", KEY),
        ("created_ns", "<u8"),
        *((name, "<u8") for name in _COUNTS[:_BEFORE_IDLE]),
        ("idle_max_ns", "<u8"),
        ("idle", "<u8", (4,)),
        *((name, "<u8") for name in _COUNTS[_BEFORE_IDLE:]),
        ("spare", "<u8"),
    ]
)
"""struct counters: a flow's packets from one UDP source port at one tap, on one CPU.

Times are the kernel's; created_ns is that of the first packet.
"""

TALLY: Final = np.dtype(
    [
        (name, "<u8")
        for name in (
            "seen",
            "counted",
            "counted_bytes",
            "filtered",
            "too_short",
            "merged",
            "inserted",
            "evicted",
            "evicted_packets",
            "evicted_bytes",
            "ultra_ethernet",
            "orders_lost",
        )
    ]
)
"""struct tally: one per CPU and tap."""

WAYS = 4
"""Entries of a set."""
ORDER_BYTES = 32
"""Of struct flow_order."""


@lru_cache(1 << 16)
def address_text(raw: bytes, is_ipv6: bool) -> str:
    """An address of a key in the analyzer's form: an IPv4 host and its GID are the same."""
    if not is_ipv6:
        return str(IPv4Address(raw[:4]))
    address = IPv6Address(raw)
    return str(address.ipv4_mapped or address)


def together(entries: Array, group: Ints, groups: int) -> Array:
    """COUNTERS[groups]: the sums of the entries with each number in `group`, int64[entries].

    The key of a sum is that of one of its entries.
    """
    sums = np.zeros(groups, COUNTERS)
    sums["key"][group] = entries["key"]
    for name in (*_COUNTS, "idle"):
        if name != "last_ns":
            np.add.at(sums[name], group, entries[name])
    for name in ("last_ns", "idle_max_ns"):
        np.maximum.at(sums[name], group, entries[name])
    sums["created_ns"] = np.iinfo(np.uint64).max
    np.minimum.at(sums["created_ns"], group, entries["created_ns"])
    return sums


def by_key(entries: Array) -> Array:
    """The sums of entries by key, in the order of keys."""
    keys = np.ascontiguousarray(entries["key"]).view(f"V{KEY.itemsize}")
    unique, group = np.unique(keys, return_inverse=True)
    return together(entries, group, len(unique))


_SOURCE = Path(__file__).with_name("counters.bpf.c")
_CLASSES = (
    "KNOWN",
    "REQUEST",
    "READ_REQUEST",
    "RESPONSE_DATA",
    "ACKNOWLEDGE",
    "BEGINS",
    "SEQUENCED",
)


@dataclass(frozen=True, slots=True)
class CounterMaps:
    """Descriptors of the programs' maps, and numbers of sets (powers of two)."""

    table: int
    sets: int
    """Per CPU."""
    order: int
    order_sets: int
    tally: int
    opcodes: int

    @property
    def descriptors(self) -> tuple[int, ...]:
        """In the order of the indices in `counter_source`."""
        return self.table, self.order, self.tally, self.opcodes


class CompiledCounters(Compiled):
    """Machine code of the counting probes, for these maps."""

    def __init__(self, options: ProgramOptions, maps: CounterMaps) -> None:
        text = counter_source(options, maps)
        code = known_machine_code(text, ("count_xdp", "count_tc"), maps.descriptors)
        self._code = {"probe_xdp": code["count_xdp"], "probe_tc": code["count_tc"]}


def counter_source(options: ProgramOptions, maps: CounterMaps) -> str:
    """The C source, preceded by the definitions it needs; maps have their index."""
    values = {
        "TABLE_FD": 0,
        "SETS": maps.sets,
        "ORDER_FD": 1,
        "ORDER_SETS": maps.order_sets,
        "TALLY_FD": 2,
        "OPCODES_FD": 3,
        "RESTART_DISTANCE": RESTART_DISTANCE,
        **{name: int(getattr(bth, name)) for name in _CLASSES},
    }
    return source_of(definitions(options) | values, _SOURCE)


def opcode_map() -> int:
    """Descriptor of the array from opcode to its class, header length and AETH offset."""
    fd = bpf.create_map(bpf.MAP_ARRAY, 4, 4, 256, name="rocescope_ops")
    for opcode in range(256):
        layout = int(LAYOUT[opcode])
        header, aeth = layout & 0xFF, layout >> 8 & 0xFF
        value = int(bth.OPCODE_CLASS[opcode]) | header << 16 | aeth << 24
        bpf.update(fd, struct.pack("I", opcode), struct.pack("I", value))
    return fd
