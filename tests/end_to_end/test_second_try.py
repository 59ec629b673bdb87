"""`--second-try`: only a test that fails alone, too, makes a run fail."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.thorough
SUPPORT = str(Path(__file__).parent.parent / "support")
TESTS = """
import os
import pathlib

import pytest

BESIDE = "PYTEST_XDIST_WORKER" in os.environ


def test_good():
    pass


@pytest.mark.parametrize("of", ["a b", "x@y"])
@pytest.mark.xdist_group("together")
def test_beside_others(of):
    assert not BESIDE, "the machine was busy"


@pytest.fixture
def left():
    yield
    assert not BESIDE, "a port is in use"


def test_what_it_leaves(left):
    pass
"""
WRONG = """
def test_always():
    assert "the code" == "wrong"
"""
SKIPPED = """
def test_skipped_alone():
    if not BESIDE:
        pytest.skip("no")
    assert False
"""
MANY = """
@pytest.mark.parametrize("of", range(11))
def test_many(of):
    assert not BESIDE
"""


def tried(folder, tests):
    """The exit code and the lines of a run with two workers."""
    (folder / "pytest.ini").touch()
    (folder / "conftest.py").write_text('pytest_plugins = ["second_try"]')
    (folder / "test_these.py").write_text(tests)
    clean = {name: text for name, text in os.environ.items() if not name.startswith("PYTEST_")}
    clean |= {"PYTHONPATH": SUPPORT, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    words = ["-m", "pytest", "-p", "xdist", "-n", "2", "--dist", "loadgroup", "--second-try"]
    done = subprocess.run(
        [sys.executable, *words], cwd=folder, capture_output=True, text=True, env=clean
    )
    return done.returncode, done.stdout.splitlines()


def test_what_passes_alone_is_named_and_counted(tmp_path):
    code, lines = tried(tmp_path, TESTS)
    assert code == 0 and "= 4 passed in " in lines[-1], lines
    told = [line for line in lines if line.startswith("failed beside other tests, passed alone")]
    nodes = ["beside_others[a b]", "beside_others[x@y]", "what_it_leaves"]
    assert sorted(told) == [
        f"failed beside other tests, passed alone: test_these.py::test_{node}" for node in nodes
    ]
    assert any("AssertionError: the machine was busy" in line for line in lines)


def test_what_fails_alone_has_failed(tmp_path):
    code, lines = tried(tmp_path, TESTS + WRONG + SKIPPED)
    assert code == 1 and "= 2 failed, 4 passed in " in lines[-1], lines
    told = sorted(line for line in lines if line.startswith("failed alone, too"))
    assert [line.rpartition("::")[2] for line in told] == ["test_always", "test_skipped_alone"]


def test_many_failures_are_no_chance(tmp_path):
    code, lines = tried(tmp_path, TESTS + MANY)
    assert code == 1 and "= 13 failed, 2 passed, 1 error in " in lines[-1], lines
    assert not any("second try" in line for line in lines)


def test_a_run_that_ended_early_has_failed(tmp_path):
    code, lines = tried(tmp_path, "import nothing_of_this_name" + TESTS)
    assert code not in (0, 5) and not any("second try" in line for line in lines)
