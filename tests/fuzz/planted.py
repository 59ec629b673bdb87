"""`run.py` with a kernel that reads one byte beyond the file of mutant 7."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np

from rocescope.kernels.kernel import kernel

from . import run
from .guarded import guarded

MUTANT = 7
_outcome = run.outcome


@kernel
def byte_at(data, i):
    return data[i]


def outcome(path: str, number: int, guard: bool = False) -> str:
    data = np.frombuffer(Path(path).read_bytes(), np.uint8)
    data = guarded(data) if guard else data
    if len(data):
        byte_at(data, len(data) - (number != MUTANT))
    return _outcome(path, number, guard)


if __name__ == "__main__":
    run.outcome = outcome
    run.main(int(sys.argv[1]), int(sys.argv[2]), *sys.argv[3:])
