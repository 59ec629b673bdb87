"""Fuzzing on all cores: `python -m tests.fuzz.many COUNT [FIRST]`, which is `make fuzz N= FROM=`.

Mutant n is always the same bytes. Without FIRST the first number is random; it is printed. All
mutants run twice: with kernels that check bounds, and with those of users in guarded memory.
"""

from __future__ import annotations

import itertools
import json
import os
import random
import signal
import struct
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path

KINDS = ("RoCE", "damaged", "no RoCE", "unreadable")
CHECKOUT = Path(__file__).resolve().parent.parent.parent
ALONE = 200
"""The first process compiles the kernels on this many mutants, before the others begin."""


def environment(bounds_checks: bool = True) -> dict[str, str]:
    """Kernels with bounds checks have a cache of their own and are compiled once.

    Large arrays are the system's fresh memory, as in a process that reads one capture: the C
    library would reuse the arrays of the previous mutant, and fill megabytes with zeros for each.
    """
    return {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(filter(None, sys.path)),
        "ROCESCOPE_BOUNDSCHECK": str(int(bounds_checks)),
        "MALLOC_MMAP_THRESHOLD_": "1000000",
    }


def fuzz(
    count: int,
    first: int,
    workers: int,
    bounds_checks: bool = True,
    guard: bool = False,
    module: str = "tests.fuzz.run",
) -> Counter[str]:
    """The outcomes of `count` mutants from number `first`; AssertionError at the first error."""
    met: Counter[str] = Counter()
    alone = min(ALONE, count) if workers > 1 else count
    cuts = [first + alone + (count - alone) * i // workers for i in range(workers + 1)]
    shares = [(a, b - a) for a, b in itertools.pairwise(cuts) if b > a]
    for parts in ([(first, alone)], shares):
        running = [_Worker(*part, bounds_checks, guard, module) for part in parts]
        for worker in running:
            said = json.loads(worker.result())
            assert said["bounds_checked"] == bounds_checks
            met.update(said["met"])
    assert met.total() == count
    # There are many of every kind: the mutator neither destroys everything nor nothing.
    assert count < 1000 or all(met[kind] > count // 50 for kind in KINDS), met
    return met


class _Worker:
    """A process that runs some mutants."""

    def __init__(
        self, first: int, count: int, bounds_checks: bool, guard: bool, module: str
    ) -> None:
        self._present = tempfile.NamedTemporaryFile() if guard else None
        command = [sys.executable, "-m", module, str(first), str(count)]
        command += [self._present.name] if self._present else []
        self._process = subprocess.Popen(
            command,
            cwd=CHECKOUT,
            env=environment(bounds_checks),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def result(self) -> str:
        """Its output; AssertionError with the number of the mutant that ended it."""
        out, err = self._process.communicate()
        code = self._process.returncode
        if code < 0 and self._present:
            held = self._present.read(8)
            number = struct.unpack("<q", held)[0] if held else None
            err += f"\n{signal.Signals(-code).name} at mutant {number}: make fuzz N=1 FROM={number}"
        assert code == 0, err[-4000:]
        return out


def main(count: str, first: str = "") -> None:
    number = int(first) if first else random.SystemRandom().randrange(1 << 48)
    print(f"{count} mutants from {number} (make fuzz N={count} FROM={number})", flush=True)
    for guard in (False, True):
        print("guarded memory" if guard else "bounds checks", end=": ", flush=True)
        met = fuzz(int(count), number, os.cpu_count() or 1, bounds_checks=not guard, guard=guard)
        print(", ".join(f"{met[kind]} {kind}" for kind in KINDS))


if __name__ == "__main__":
    main(*sys.argv[1:])
