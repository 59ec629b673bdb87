"""Counters in the kernel: probes are attached, tables are read at intervals, losses are counted.

Every CPU has its own part of the table, so no packet waits for another. The counts of an
evicted entry are added to the evictions; counts that an earlier reading has seen are kept.
So the flows miss only packets after that reading, and their exact number is known.
"""

from __future__ import annotations

import errno
import mmap
import os
import struct
import time
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ...analyzer.errors import CaptureError, UsageError
from ...analyzer.wire.ports import ROCE_UDP_PORT
from ...kernels.kernel import Array, Ints
from .. import bpf
from ..clock import WallClock
from ..hooks.attach import Attachment, Direction, Hook, attach, directions_of, privileges_of
from ..hooks.interfaces import Interface, find_interfaces
from ..hooks.others import OthersBefore
from ..opened import Opened
from ..program.bcc_module import find_bcc
from ..program.filter import c_condition
from ..program.program import ProgramOptions
from ..rights import privileges
from .layout import COUNTERS, ORDER_BYTES, TALLY, WAYS, by_key
from .program import CompiledCounters, CounterMaps, opcode_map

_SLOTS_PER_FLOW = 2
_ALL_TABLES_BYTES = 256 << 20
_LARGEST_DEFAULT, _SMALLEST, _LARGEST = 8192, 4, 1 << 20
_MOST_TAPS = 256  # a key has one byte for its tap
_SETTLE_S = 0.05
_TRIES = 100
_MOST_KEPT = 1 << 18


@dataclass(frozen=True, slots=True)
class CounterOptions:
    """How to count."""

    hook: Hook = "tc"
    namespace: str | None = None
    """Network namespace of interfaces that do not name their own."""
    max_flows: int | None = None
    """Flows times UDP source ports per CPU; None: 8192, less on many CPUs."""
    udp_ports: tuple[int, ...] = (ROCE_UDP_PORT,)
    mirror: bool = True
    """Also search GRE and ERSPAN for RoCE."""
    filter: str | None = None
    """Packets to count, as a filter of the analyzer."""


@dataclass(frozen=True, slots=True)
class Reading:
    """All counters at one time, since the start.

    Exact after the probes are detached; before, a packet that is being counted may be
    included in some of the numbers only.
    """

    time_ns: int
    """Wall time."""
    clock_offset_ns: int
    """Offset from the entries' times to wall time."""
    entries: Array
    """COUNTERS[n], one per key; includes evicted entries as far as they were read before."""
    tally: Array
    """TALLY[taps, cpus]."""
    lost_packets: Ints
    """[taps]: packets counted, but in no entry: evicted before they were read."""
    lost_bytes: Ints

    def total(self, field: str) -> int:
        """A field of the tally over all taps and CPUs."""
        return int(self.tally[field].sum())


class CounterSource(Opened):
    """Counters on some interfaces; a context manager.

    Tap number `i` of the keys is `taps[i]`. Call `read()` at intervals, the last
    time after `detach()`: that reading is exact.
    """

    def __init__(self, interfaces: Sequence[str], options: CounterOptions | None = None) -> None:
        self.options = options or CounterOptions()
        self.interfaces: list[Interface] = []
        self.taps: list[tuple[Interface, Direction]] = []
        self.attachments: list[Attachment] = []
        self.others = OthersBefore(())
        """Programs of others that run before the probes."""
        self._names = list(interfaces)
        super().__init__()
        self._clock = WallClock()

    def _open(self) -> None:
        options = self.options
        if not self._names:
            raise UsageError("name the interfaces to count on")
        privileges.check([options.namespace, *(n.rpartition(":")[0] for n in self._names)])
        find_bcc()
        condition = c_condition(options.filter) if options.filter else "1"
        self.interfaces = find_interfaces(self._names, options.namespace)
        self.taps = [(i, d) for i in self.interfaces for d in directions_of(options.hook)]
        if len(self.taps) > _MOST_TAPS:
            raise UsageError(f"counters know at most {_MOST_TAPS} interfaces times directions")
        maps = self._create_maps()
        program = ProgramOptions(
            udp_ports=options.udp_ports,
            mirror=options.mirror,
            condition=condition,
        )
        compiled = CompiledCounters(program, maps)
        self._stack.callback(self.detach)
        for tap, (interface, direction) in enumerate(self.taps):
            self.attachments.append(attach(compiled, interface, direction, options.hook, tap))
        self.others = OthersBefore(self.attachments)
        self._stack.callback(self.others.close)

    def _create_maps(self) -> CounterMaps:
        cpus = bpf.possible_cpus()
        flows = _room(self.options.max_flows, cpus)
        sets = max(1 << (_SLOTS_PER_FLOW * flows // WAYS - 1).bit_length(), 1)
        try:
            table = self._map(
                bpf.MAP_ARRAY, WAYS * COUNTERS.itemsize, cpus * sets, "table", bpf.MAPPABLE
            )
            order = self._map(bpf.MAP_ARRAY, WAYS * ORDER_BYTES, 2 * sets, "order")
            self._tally_fd = self._map(
                bpf.MAP_PERCPU_ARRAY, TALLY.itemsize, len(self.taps), "tally"
            )
            size, page = cpus * sets * WAYS * COUNTERS.itemsize, bpf.page_bytes()
            mapped = mmap.mmap(table, -(-size // page) * page, mmap.MAP_SHARED, mmap.PROT_READ)
        except OSError as error:
            if error.errno not in (errno.ENOMEM, errno.E2BIG):
                raise
            raise CaptureError(
                f"no memory for counters of {flows} flows on {cpus} CPUs: give a smaller"
                " --max-flows"
            ) from None
        self._table: Array = np.frombuffer(mapped, COUNTERS, cpus * sets * WAYS)
        self._created = np.zeros(len(self._table), np.uint64)
        self._last = np.zeros(0, COUNTERS)
        self._last_slots = np.zeros(0, np.int64)
        self._past = np.zeros(0, COUNTERS)
        codes = opcode_map()
        self._stack.callback(os.close, codes)
        return CounterMaps(table, sets, order, 2 * sets, self._tally_fd, codes)

    def _map(self, kind: int, value_bytes: int, entries: int, name: str, flags: int = 0) -> int:
        fd = bpf.create_map(kind, 4, value_bytes, entries, flags=flags, name=f"rs_{name}")
        self._stack.callback(os.close, fd)
        return fd

    def detach(self) -> None:
        """End counting; no probe runs after it returns."""
        attached = [a for a in self.attachments if a.link >= 0 or a.filter is not None]
        for attachment in reversed(attached):  # in reverse order of creation
            attachment.close()
        if attached:
            time.sleep(_SETTLE_S)  # running probes have ended after this time

    @property
    def slots(self) -> int:
        """Number of slots of the tables of all CPUs."""
        return len(self._table)

    def gone(self) -> list[Interface]:
        """Interfaces that have disappeared, or from which another program took the probes."""
        missing = [a.interface for a in self.attachments if a.gone()]
        return [interface for interface in self.interfaces if interface in missing]

    def privileges(self) -> tuple[str, ...]:
        """Capabilities that are still needed after everything is attached."""
        return privileges_of(self.attachments)

    def note(self) -> None:
        """Store the current counts, so that evictions do not lose them."""
        self._keep_evicted(*self.entries())

    def read(self) -> Reading:
        """The current counters."""
        self.note()
        tally = self.read_tally()  # after the entries: includes what was evicted from them
        taps = len(self.taps)
        kept = self._past["key"]["tap"]
        lost = []
        for total, field in (("evicted_packets", "packets"), ("evicted_bytes", "wire_bytes")):
            known = np.zeros(taps, np.uint64)
            np.add.at(known, kept, self._past[field])
            lost.append((tally[total].sum(axis=1) - known).astype(np.int64))
        self._clock.check()
        return Reading(
            time_ns=time.time_ns(),
            clock_offset_ns=self._clock.offset_ns,
            entries=by_key(np.concatenate((self._past, self._last))),
            tally=tally,
            lost_packets=lost[0],
            lost_bytes=lost[1],
        )

    def entries(self) -> tuple[Ints, Array]:
        """Slots and copies of all entries in use, without entries replaced during the read.

        An entry has the key of its slot as long as its `created_ns` stays the same.
        """
        created = self._table["created_ns"].copy()
        slots = np.flatnonzero(created).astype(np.int64)
        entries = self._table[slots]
        for _ in range(_TRIES):
            torn = np.flatnonzero(
                (self._table["created_ns"][slots] != created[slots])
                | (entries["created_ns"] != created[slots])
            )
            if not len(torn):
                break
            created[slots[torn]] = self._table["created_ns"][slots[torn]]
            entries[torn] = self._table[slots[torn]]
        complete = entries["created_ns"] > 0
        return (slots, entries) if complete.all() else (slots[complete], entries[complete])

    def _keep_evicted(self, slots: Ints, entries: Array) -> None:
        """Keep the last counts of entries that were evicted since the last reading."""
        self._created[slots] = entries["created_ns"]
        gone = self._created[self._last_slots] != self._last["created_ns"]
        if gone.any() and len(self._past) < _MOST_KEPT:
            self._past = by_key(np.concatenate((self._past, self._last[gone])))
        self._last_slots, self._last = slots, entries

    def read_tally(self) -> Array:
        """TALLY[taps, cpus]."""
        cpus = bpf.possible_cpus()
        values = [
            bpf.lookup(self._tally_fd, struct.pack("I", tap), TALLY.itemsize * cpus)
            for tap in range(len(self.taps))
        ]
        return np.frombuffer(b"".join(values), TALLY).reshape(len(self.taps), cpus)


def default_max_flows(cpus: int, most: int = _LARGEST_DEFAULT) -> int:
    """`most` per CPU, less if all tables together would exceed 256 MiB; a power of two."""
    share = _ALL_TABLES_BYTES // (cpus * _SLOTS_PER_FLOW * COUNTERS.itemsize)
    # Tables have powers of two of entries: other numbers would be rounded up.
    return max(1 << min(most, share).bit_length() - 1, _SMALLEST)


def _room(wanted: int | None, cpus: int) -> int:
    if wanted is None:
        return default_max_flows(cpus)
    if not _SMALLEST <= wanted <= _LARGEST:
        raise UsageError(f"--max-flows must be a number from {_SMALLEST} to {_LARGEST}")
    return wanted
