"""The framing kernels compiled with bounds checks never reach outside their arrays."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest


@pytest.mark.thorough
def test_random_and_damaged_captures_with_bounds_checks(checkout: Path) -> None:
    """Numba raises IndexError when checks are compiled in; the twins' tests would fail by it."""
    environment = {**os.environ, "ROCESCOPE_BOUNDSCHECK": "1"}
    here = checkout / "tests" / "analyzer" / "capture"
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-k", "twin or cut"]
    files = [str(here / "test_pcap.py"), str(here / "test_pcapng.py")]
    done = subprocess.run(
        [*command, *files], cwd=checkout, env=environment, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout[-4000:]
    assert "4 passed" in done.stdout
