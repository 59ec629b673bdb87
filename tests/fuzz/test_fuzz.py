"""100,000 damaged captures through reader, decoder, tracker and measures, 25,000 to the results.

Without a crash, a hang, a count that does not add up, or an index outside an array.
`python -m tests.fuzz.run N 1` runs mutant N alone.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from .mutate import mutant
from .seeds import seeds

MUTANTS = 100_000 if os.environ.get("ROCESCOPE_REQUIRE_TOOLS") else 6_000
"""All of them where .ci/run asks for every check."""
WORKERS = 2


@pytest.fixture
def environment() -> dict[str, str]:
    """Kernels with bounds checks; they are kept apart from those without and compiled once.

    Large arrays are the system's fresh memory, as in a process that reads one capture: the C
    library would hand on those of the mutant before, and fill megabytes with zeros for each.
    """
    return {**os.environ, "ROCESCOPE_BOUNDSCHECK": "1", "MALLOC_MMAP_THRESHOLD_": "1000000"}


def start(checkout: Path, environment: dict[str, str], *arguments: object) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "tests.fuzz.run", *map(str, arguments)]
    return subprocess.Popen(
        command,
        cwd=checkout,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def test_mutated_captures_with_bounds_checks(checkout: Path, environment: dict[str, str]) -> None:
    outcomes = []
    first, share = 200, (MUTANTS - 200) // WORKERS
    for parts in ([(0, first)], [(first + i * share, share) for i in range(WORKERS)]):
        workers = [start(checkout, environment, *part) for part in parts]
        for worker in workers:
            out, err = worker.communicate(timeout=1800)
            assert worker.returncode == 0, err[-4000:]
            outcomes.append(json.loads(out))
    assert all(outcome["bounds_checked"] for outcome in outcomes)
    met = {kind: sum(outcome["met"].get(kind, 0) for outcome in outcomes) for kind in KINDS}
    assert sum(met.values()) == MUTANTS
    # Of every kind there are many: the mutator neither destroys everything nor nothing.
    assert all(met[kind] > MUTANTS // 50 for kind in KINDS), met


KINDS = ("RoCE", "damaged", "no RoCE", "unreadable")


def test_random_tables_with_bounds_checks(checkout: Path, environment: dict[str, str]) -> None:
    """Columns that no decoder would make, through tracker, measures and their merging."""
    tests = checkout / "tests" / "analyzer"
    chosen = "any_packets or conserves or common_host_pair or restart"
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-k", chosen]
    files = [tests / "track" / "test_sequence.py", tests / "track" / "test_cost.py"]
    files.append(tests / "test_measuring.py")
    done = subprocess.run(
        [*command, *map(str, files)], cwd=checkout, env=environment, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout[-4000:]


def test_bounds_checks_are_compiled_in(
    tmp_path: Path, checkout: Path, environment: dict[str, str]
) -> None:
    """The proof that the proof can fail: an index outside an array raises."""
    (tmp_path / "beyond.py").write_text(
        "import numpy as np\n"
        "from rocescope.kernels.kernel import kernel\n"
        "@kernel\n"
        "def beyond(a, i):\n"
        "    return a[i]\n"
        "beyond(np.zeros(4), 4)\n"
    )
    command = [sys.executable, str(tmp_path / "beyond.py")]
    done = subprocess.run(command, cwd=checkout, env=environment, capture_output=True, text=True)
    assert "IndexError" in done.stderr


def test_mutants_are_always_the_same_and_differ(data: Path) -> None:
    start_with = seeds(data)
    some = [mutant(n, start_with) for n in range(300)]
    assert some == [mutant(n, seeds(data)) for n in range(300)]
    assert len(set(some)) > 290
    assert max(map(len, some)) < 20_000
