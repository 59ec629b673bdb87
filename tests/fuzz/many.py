"""Fuzzing on all cores: `python -m tests.fuzz.many COUNT [FIRST]`, which is `make fuzz N= FROM=`.

Mutant n is always the same bytes. Without FIRST the first number is random; it is printed.
"""

from __future__ import annotations

import itertools
import json
import os
import random
import subprocess
import sys
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


def fuzz(count: int, first: int, workers: int, bounds_checks: bool = True) -> Counter[str]:
    """The outcomes of `count` mutants from number `first`; AssertionError at the first error."""
    met: Counter[str] = Counter()
    alone = min(ALONE, count) if workers > 1 else count
    cuts = [first + alone + (count - alone) * i // workers for i in range(workers + 1)]
    shares = [(a, b - a) for a, b in itertools.pairwise(cuts) if b > a]
    for parts in ([(first, alone)], shares):
        processes = [_start(*part, bounds_checks) for part in parts]
        for process in processes:
            out, err = process.communicate()
            assert process.returncode == 0, err[-4000:]
            said = json.loads(out)
            assert said["bounds_checked"] == bounds_checks
            met.update(said["met"])
    assert met.total() == count
    # There are many of every kind: the mutator neither destroys everything nor nothing.
    assert count < 1000 or all(met[kind] > count // 50 for kind in KINDS), met
    return met


def _start(first: int, count: int, bounds_checks: bool) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "tests.fuzz.run", str(first), str(count)],
        cwd=CHECKOUT,
        env=environment(bounds_checks),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def main(count: str, first: str = "") -> None:
    number = int(first) if first else random.SystemRandom().randrange(1 << 48)
    print(f"{count} mutants from {number} (make fuzz N={count} FROM={number})", flush=True)
    met = fuzz(int(count), number, os.cpu_count() or 1)
    print(", ".join(f"{met[kind]} {kind}" for kind in KINDS))


if __name__ == "__main__":
    main(*sys.argv[1:])
