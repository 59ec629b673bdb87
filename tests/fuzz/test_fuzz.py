"""2,000 damaged captures through reader, decoder, tracker and measures, 500 to the results.

Without a crash, a hang or a count that does not add up. `make fuzz` has bounds checks, too: CI runs
100,000 mutants from number 0, so these are among them. `make fuzz N=1 FROM=n` runs mutant n alone.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from .many import environment, fuzz
from .mutate import mutant
from .seeds import seeds


def test_mutated_captures() -> None:
    fuzz(2_000, 0, workers=1, bounds_checks=False)


@pytest.mark.thorough
def test_mutated_captures_in_guarded_memory() -> None:
    fuzz(200, 0, workers=1, bounds_checks=False, guard=True)


@pytest.mark.thorough
def test_a_read_beyond_guarded_memory_names_its_mutant() -> None:
    """A kernel reads one byte too far: unseen in ordinary memory, SIGSEGV in guarded memory."""
    fuzz(20, 0, workers=1, bounds_checks=False, module="tests.fuzz.planted")
    with pytest.raises(AssertionError, match="SIGSEGV at mutant 7: make fuzz N=1 FROM=7"):
        fuzz(20, 0, workers=1, bounds_checks=False, guard=True, module="tests.fuzz.planted")


@pytest.mark.thorough
def test_random_tables_with_bounds_checks(checkout: Path) -> None:
    """Columns that no decoder would make, through tracker, measures and their merging."""
    chosen = "any_packets or conserves or common_host_pair or restart"
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-k", chosen]
    command += ["tests/analyzer/track", "tests/analyzer/measures/test_measuring.py"]
    done = subprocess.run(command, cwd=checkout, env=environment(), capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-4000:]


@pytest.mark.thorough
def test_bounds_checks_are_compiled_in(tmp_path: Path, checkout: Path) -> None:
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
    done = subprocess.run(command, cwd=checkout, env=environment(), capture_output=True, text=True)
    assert "IndexError" in done.stderr


def test_mutants_are_always_the_same_and_differ(data: Path) -> None:
    start_with = seeds(data)
    some = [mutant(n, start_with) for n in range(300)]
    made_again = seeds(data)
    assert some == [mutant(n, made_again) for n in range(300)]
    assert len(set(some)) > 290
    assert max(map(len, some)) < 20_000
