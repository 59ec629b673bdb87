"""The probes run on single frames by BPF_PROG_TEST_RUN: no interface, no traffic."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Self

import numpy as np
from bpf_runs import run_program

from rocescope.probes import bpf
from rocescope.probes.program.program import Compiled, ProgramOptions
from rocescope.probes.rings import LARGEST_RECORD, RECORD_HEADER, Loss, Rings, total

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

    def __init__(self, ring_bytes: int = 1 << 20, **options: object) -> None:
        cpus = range(bpf.possible_cpus())  # they may run anywhere
        self._all = Rings(cpus, ring_bytes, TAP + 1)
        self.rings = self._all.rings
        compiled = Compiled(ProgramOptions(**options), self._all.maps)  # type: ignore[arg-type]
        self.programs = {"tc": compiled.load_tc(TAP), "xdp": compiled.load_xdp(TAP)}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for fd in self.programs.values():
            os.close(fd)
        self._all.close()

    def run(self, frame: bytes, hook: str = "xdp") -> Record | None:
        """The record the probe writes for a frame; None when it exports nothing."""
        run_program(self.programs[hook], frame)
        for ring in self.rings:
            if ring.head > ring.tail:
                begin, left = ring.tail, ring.size - ring.tail % ring.size
                if left < LARGEST_RECORD:
                    begin += left
                at = begin % ring.size
                header = np.frombuffer(ring.data, RECORD_HEADER, 1, at)[0]
                data = ring.data[at + 16 : at + 16 + int(header["captured_bytes"])].tobytes()
                assert ring.head == begin + 16 + -(-len(data) // 8) * 8
                ring.release(ring.head)
                return Record(
                    int(header["time_ns"]), int(header["wire_bytes"]), int(header["tap"]), data
                )
        return None

    def loss(self) -> Loss:
        """All counters since the beginning."""
        return total(self._all.loss())
