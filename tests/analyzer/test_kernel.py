"""Kernels are cached on disk, and the cache never hides that bounds checks were asked for."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from rocescope.analyzer import kernel

MODULE = """
import numpy as np
from rocescope.analyzer.kernel import inlined, kernel, subkernel

@inlined
def element(values, index):
    return values[index]

@subkernel
def pass_on(values, index):
    return element(values, index)

@kernel
def outer(values, index):
    return pass_on(values, index)

print(outer(np.arange(3), 2))
outer(np.arange(3), 3)
"""


@pytest.mark.parametrize("first", ["0", "1"])
def test_bounds_are_checked_when_asked_whatever_is_cached(tmp_path: Path, first: str) -> None:
    module = tmp_path / "kernels.py"
    module.write_text(MODULE)

    def run(checked: str) -> subprocess.CompletedProcess[str]:
        environment = os.environ | {"ROCESCOPE_BOUNDSCHECK": checked}
        environment["NUMBA_CACHE_DIR"] = str(tmp_path / "cache")
        command = [sys.executable, str(module)]
        return subprocess.run(command, capture_output=True, text=True, env=environment)

    second = "1" if first == "0" else "0"
    for checked in (first, second, first):
        done = run(checked)
        assert done.stdout == "2\n"
        assert ("IndexError" in done.stderr) == (checked == "1")
    assert list((tmp_path / "cache").rglob("*.nbi"))


def test_old_folders_of_others_are_left_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """NUMBA_CACHE_DIR may be any folder: only our own part of it is cleaned."""
    theirs, ours = tmp_path / "project", tmp_path / "rocescope" / "0123"
    for folder in (theirs, ours):
        folder.mkdir(parents=True)
        os.utime(folder, (0, 0))
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path))
    assert kernel._cache_base() == str(tmp_path / "rocescope")
    assert theirs.exists() and not ours.exists()


def test_machine_code_is_never_taken_from_a_folder_others_can_write_to(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kernel.tempfile, "tempdir", str(tmp_path))
    own = kernel._temporary_base()
    assert os.stat(own).st_mode & 0o777 == 0o700
    assert kernel._temporary_base() == own
    os.chmod(own, 0o777)
    other = kernel._temporary_base()
    assert other != own and os.stat(other).st_mode & 0o777 == 0o700
