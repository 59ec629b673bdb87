"""The rings of all CPUs: waiting for packets, draining them, and what they lost."""

from __future__ import annotations

import mmap
import os
import select
from collections.abc import Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, fields
from typing import Any, Final

import numpy as np

from ..analyzer.capture.pcapng_writer import Blocks
from ..analyzer.decode.decoder import Decoder
from ..analyzer.wire.frames import LINKTYPE_ETHERNET, FrameBatch
from ..analyzer.wire.packets import I64, U16
from ..kernels.kernel import Records, kernel
from . import bpf
from .bpf import WallClock, kernel_ns
from .packet_blocks import PacketBlocks
from .ring import CHUNK_BYTES, Ring, scan

# The fate of every frame at the probes: each one is counted exactly once.


@dataclass(frozen=True, slots=True)
class Loss:
    """Counters of one tap, or of several, in the order of struct loss of ring.bpf.h."""

    seen: int = 0
    """Frames that passed the hook."""
    exported: int = 0
    """RoCE packets exported to the rings."""
    ring_full: int = 0
    """RoCE packets lost because their ring was full."""
    filtered: int = 0
    sampled_out: int = 0
    too_short: int = 0
    """Frames that end within their headers."""
    merged: int = 0
    """Exported frames that are merges of several frames on the wire (GRO, GSO)."""
    ultra_ethernet: int = 0
    """Packets of Ultra Ethernet (UDP port 4793), which are not exported."""

    @property
    def matched(self) -> int:
        """RoCE packets among the frames: each is counted as one of these four."""
        return self.exported + self.ring_full + self.filtered + self.sampled_out

    def __add__(self, other: Loss) -> Loss:
        return Loss(*(getattr(self, f.name) + getattr(other, f.name) for f in fields(Loss)))

    def __sub__(self, other: Loss) -> Loss:
        return Loss(*(getattr(self, f.name) - getattr(other, f.name) for f in fields(Loss)))


LOSS: Final = np.dtype([(field.name, "<u8") for field in fields(Loss)])
"""struct loss of ring.bpf.h."""


def total(counters: Records) -> Loss:
    """The sum over all CPUs (and taps) of an array of LOSS."""
    return Loss(**{field.name: int(counters[field.name].sum()) for field in fields(Loss)})


# Sleep until frames arrive or a timeout ends.
#
# The probes ring a bell whenever they start another quarter of a ring, a few times per
# second at the highest rates; at low rates frames wait for the end of the sleep. Both
# need hardly any processor time.
#
# The bell is a ring buffer of the kernel (kernel/bpf/ringbuf.c: a page with the
# consumer position, which is ours to write, and one with the producer position).
# It is never read: records are discarded when they are created.


class Wakeups:
    """Wakes one reader. bell: descriptor of a BPF ring buffer."""

    def __init__(self, bell: int) -> None:
        page = mmap.PAGESIZE
        self._consumer = np.frombuffer(mmap.mmap(bell, page, mmap.MAP_SHARED), np.uint64, 1)
        producer = mmap.mmap(bell, page, mmap.MAP_SHARED, mmap.PROT_READ, offset=page)
        self._producer = np.frombuffer(producer, np.uint64, 1)
        self._epoll = select.epoll()
        self._stopped = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        self._epoll.register(self._stopped, select.EPOLLIN)
        self._epoll.register(bell, select.EPOLLIN)

    def wait(self, seconds: float) -> bool:
        """Sleep until the timeout, a bell of a probe or `stop`; returns False after a timeout."""
        woken = bool(self._epoll.poll(seconds))
        # Later bells wake the next call.
        self._consumer[0] = self._producer[0]
        return woken

    def stop(self) -> None:
        """End the current and every later sleep; also from other threads and signal handlers."""
        os.eventfd_write(self._stopped, 1)

    def resume(self) -> None:
        """Undo `stop`."""
        with suppress(BlockingIOError):
            os.eventfd_read(self._stopped)

    def close(self) -> None:
        """Close the descriptors."""
        self._epoll.close()
        os.close(self._stopped)


# Reads all rings of a capture together, so that their frames are in order of time.

_ROWS = 1 << 15
"""Maximum frames of one gathering over all rings, so that they stay in the cache during use."""
_LEAST_ROWS = 1 << 11
_VISIBLE_AFTER_NS = 20_000
"""After this time the mark of another CPU is visible here, independent of its clock."""
_FOREVER = (1 << 63) - 1


class _Rows:
    """The descriptions of the frames of one ring."""

    def __init__(self, rows: int) -> None:
        self.offset, self.time_ns, self.end = (np.empty(rows, np.int64) for _ in range(3))
        self.captured, self.wire = (np.empty(rows, np.uint32) for _ in range(2))
        self.tap = np.empty(rows, np.uint16)
        self.link_type = np.full(rows, LINKTYPE_ETHERNET, np.uint16)


@kernel
def count_taps(tap: U16, frames: I64) -> None:
    """Add the frames of each tap to int64[taps]; invalid tap numbers are ignored."""
    for t in tap:
        if t < len(frames):
            frames[t] += 1


class Drain:
    """Reads frames from the rings: `gather`, use them, `release`."""

    def __init__(self, rings: list[Ring]) -> None:
        self.clock = WallClock()
        self.frames = 0
        """Frames gathered so far."""
        self.more = False
        """Whether the last gathering left frames that are ready."""
        self._rings = rings
        rows = max(_ROWS // len(rings), _LEAST_ROWS)
        self._rows = [_Rows(rows) for _ in rings]
        self._positions = [ring.tail for ring in rings]
        self._released = list(self._positions)

    def warm_up(self, decoder: Decoder) -> None:
        """Compile or load the machine code before frames arrive."""
        self._scan(0, self._positions[0], 0)
        nothing = self._batch(self._rings[0], self._rows[0], 0)
        decoder.warm_up(nothing)
        count_taps(nothing.tap, np.zeros(0, np.int64))
        self._rings[0].release(self._positions[0])

    def gather(self, everything: bool = False) -> list[FrameBatch]:
        """One batch for each ring with frames, in order of time within and between gatherings.

        A record gets its time after its ring was marked. So when the heads are read
        after the time `horizon`, every record up to it is in the ring or the ring is marked,
        and later records wait for the next gathering (`everything`: none waits). An unfinished
        record delays all records that may be later.
        """
        horizon = self._horizon(everything)
        counts = [0] * len(self._rings)
        cut = _FOREVER
        self.more = False
        for index, ring in enumerate(self._rings):
            head = ring.head
            if head == self._positions[index]:
                continue
            count, busy = self._scan(index, head, horizon)
            counts[index] = count
            if busy or count == len(self._rows[index].offset):
                # Frames of other rings must not overtake frames after the last row of this ring.
                last_ns = int(self._rows[index].time_ns[count - 1]) if count else 0
                cut = min(cut, last_ns)
                self.more = True
        batches = []
        for index, count in enumerate(counts):
            rows = self._rows[index]
            if self.more and count:
                count = int(np.searchsorted(rows.time_ns[:count], cut, "right"))
            if count:
                batches.append(self._batch(self._rings[index], rows, count))
                self._positions[index] = int(rows.end[count - 1])
                self.frames += count
        return batches

    def lay_out(self, blocks: PacketBlocks, everything: bool = False) -> Blocks:
        """The frames of `gather`, as packet blocks."""
        horizon = self._horizon(everything)
        heads = [ring.head for ring in self._rings]
        self.more = False
        if heads == self._positions:
            return blocks.none
        positions = np.array(self._positions, np.uint64)
        laid_out, self.more = blocks.lay_out(
            positions, np.array(heads, np.uint64), horizon, self.clock.offset_ns
        )
        self.frames += int(laid_out.frames.sum())
        self._positions = positions.tolist()
        return laid_out

    def _horizon(self, everything: bool) -> int:
        """Kernel time up to which all records are known if the heads are read after it."""
        self.clock.check()
        if everything:
            return _FOREVER
        return kernel_ns() - _VISIBLE_AFTER_NS

    def skip(self) -> None:
        """Pass over the frames in the rings."""
        self._positions = [ring.head & ~7 for ring in self._rings]
        self.release()

    def release(self) -> None:
        """Return the space of the gathered frames to the probes."""
        for index, position in enumerate(self._positions):
            if position != self._released[index]:
                self._rings[index].release(position)
                self._released[index] = position

    def _scan(self, index: int, head: int, horizon: int) -> tuple[int, int]:
        ring, rows = self._rings[index], self._rows[index]
        return scan(
            ring.words,
            ring.size - 1,
            self._positions[index],
            head,
            horizon,
            self.clock.offset_ns,
            rows.offset,
            rows.captured,
            rows.wire,
            rows.time_ns,
            rows.tap,
            rows.end,
        )

    def _batch(self, ring: Ring, rows: _Rows, count: int) -> FrameBatch:
        return FrameBatch(
            ring.data,
            rows.offset[:count],
            rows.captured[:count],
            rows.wire[:count],
            rows.time_ns[:count],
            rows.tap[:count],
            rows.link_type[:count],
            self.frames + 1,
            0,
        )


@dataclass(frozen=True, slots=True)
class RingMaps:
    """Definitions for the probes: descriptors of their maps, and sizes."""

    rings: int
    chunks: int
    bell: int
    """A ring buffer of the kernel, used only to wake the reader."""
    ring_bytes: int
    taps: int
    """Number of taps with counters in each ring."""


def ring_layout(taps: int) -> np.dtype[Any]:
    """struct ring of ring.bpf.h, with counters for `taps` taps."""
    return np.dtype(
        [
            ("head", "<u8"),
            ("of_the_probe", "<u8", 15),
            ("tail", "<u8"),
            ("first_chunk", "<u8"),
            ("of_the_reader", "<u8", 14),
            ("loss", LOSS, taps),
        ]
    )


class Rings:
    """Rings of `ring_bytes` (a power of two, at least a page) for these CPUs, until `close`.

    Other CPUs cannot write records. OSError if the kernel has no memory for the rings.
    """

    def __init__(self, cpus: Sequence[int], ring_bytes: int, taps: int) -> None:
        self._stack = ExitStack()
        possible = bpf.possible_cpus()
        taps += taps % 2  # keeps the rings of two CPUs on separate pairs of cache lines
        layout = ring_layout(taps)
        chunk_bytes = min(CHUNK_BYTES, ring_bytes)
        chunks_each = ring_bytes // chunk_bytes
        try:
            self.maps = RingMaps(
                self._map(bpf.MAP_ARRAY, layout.itemsize, possible, "rocescope_rings"),
                self._map(bpf.MAP_ARRAY, chunk_bytes, chunks_each * len(cpus), "rocescope_data"),
                self._map(bpf.MAP_RINGBUF, 0, bpf.page_bytes(), "rocescope_bell"),
                ring_bytes,
                taps,
            )
            control = mmap.mmap(self.maps.rings, layout.itemsize * possible, mmap.MAP_SHARED)
            chunks = mmap.mmap(
                self.maps.chunks,
                ring_bytes * len(cpus),
                mmap.MAP_SHARED | mmap.MAP_POPULATE,  # no page faults while frames arrive
                mmap.PROT_READ,
            )
        except BaseException:
            self._stack.close()
            raise
        self._control = np.frombuffer(control, layout, possible)
        self._control["tail"] = np.uint64((1 << 64) - ring_bytes)  # full
        data = np.frombuffer(chunks, np.uint8)
        self.rings: list[Ring] = []
        """In the order of `cpus`."""
        for number, cpu in enumerate(cpus):
            self._control["first_chunk"][cpu] = number * chunks_each
            self._control["tail"][cpu] = 0
            self.rings.append(
                Ring(
                    self._control["head"][cpu : cpu + 1],
                    self._control["tail"][cpu : cpu + 1],
                    data[number * ring_bytes : (number + 1) * ring_bytes],
                )
            )

    def loss(self) -> Records:
        """Counters of the probes so far, LOSS[taps, cpus]; also after `close`."""
        counters: Records = self._control["loss"].T.copy()
        return counters

    def forget(self) -> None:
        """Unmap the records, which nobody reads any longer; the counters of the probes stay."""
        self.rings.clear()

    def close(self) -> None:
        """Close the maps; the kernel frees their memory after the last reference."""
        self._stack.close()

    def _map(self, kind: int, value_bytes: int, entries: int, name: str) -> int:
        array = kind == bpf.MAP_ARRAY
        fd = bpf.create_map(
            kind, 4 * array, value_bytes, entries, flags=bpf.MAPPABLE * array, name=name
        )
        self._stack.callback(os.close, fd)
        return fd
