"""The probes run on single frames by BPF_PROG_TEST_RUN: no interface, no traffic."""

from __future__ import annotations

import os
import struct
from dataclasses import dataclass
from typing import Self

import numpy as np

from rocescope.probes import bpf
from rocescope.probes.loss import LOSS, Loss, read_loss, total
from rocescope.probes.program import Compiled, ProgramOptions
from rocescope.probes.ring import RECORD_HEADER, Ring

TAP = 3


@dataclass(frozen=True)
class Record:
    """A record as it lies in the ring."""

    time_ns: int
    wire_bytes: int
    tap: int
    data: bytes


class ProbeRuns:
    """Compiled probes with maps of their own."""

    def __init__(self, **options: object) -> None:
        self._cpus = bpf.possible_cpus()
        self.rings = [Ring(1 << 20) for _ in range(self._cpus)]
        self._rings_fd = bpf.create_map(
            bpf.MAP_ARRAY_OF_MAPS, 4, 4, self._cpus, inner=self.rings[0].fd
        )
        for cpu, ring in enumerate(self.rings):
            bpf.update(self._rings_fd, struct.pack("I", cpu), struct.pack("I", ring.fd))
        self._loss_fd = bpf.create_map(bpf.MAP_PERCPU_ARRAY, 4, LOSS.itemsize, TAP + 1)
        compiled = Compiled(ProgramOptions(**options), self._rings_fd, self._loss_fd)  # type: ignore[arg-type]
        self.programs = {"tc": compiled.load_tc(TAP), "xdp": compiled.load_xdp(TAP)}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for fd in (*self.programs.values(), self._rings_fd, self._loss_fd):
            os.close(fd)
        for ring in self.rings:
            ring.close()

    def run(self, frame: bytes, hook: str = "xdp") -> Record | None:
        """The record the probe writes for a frame; None when it exports nothing."""
        bpf.test_run(self.programs[hook], frame)
        for ring in self.rings:
            if ring.producer > ring.consumer:
                at = ring.consumer & (ring.size - 1)
                length = int(ring.words[at >> 2])
                header = np.frombuffer(ring.data[at + 8 : at + 24].tobytes(), RECORD_HEADER)[0]
                data = ring.data[at + 24 : at + 24 + int(header["captured_bytes"])].tobytes()
                assert 16 + len(data) <= length
                ring.release(ring.producer)
                return Record(
                    int(header["time_ns"]), int(header["wire_bytes"]), int(header["tap"]), data
                )
        return None

    def loss(self) -> Loss:
        """All counters since the beginning."""
        return total(read_loss(self._loss_fd, TAP + 1, self._cpus))
