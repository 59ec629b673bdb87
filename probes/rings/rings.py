"""The rings of a capture: one for each online CPU, in maps that the probes write."""

from __future__ import annotations

import mmap
import os
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...kernels.kernel import Records
from .. import bpf
from ..loss import LOSS
from .ring import CHUNK_BYTES, Ring


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
