"""`rocescope doctor` on this machine, as root and as nobody, and with things taken away."""

import json
import os
import subprocess
import sys

import pytest

from rocescope.commands.live import doctor as command
from rocescope.probes.doctor import doctor

NOBODY = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"]
POWERLESS = ["setpriv", "--bounding-set=-all", "--inh-caps=-all"]


def run(*words, before=()):
    code = "import sys; from rocescope.cli import main; main(sys.argv[1:])"
    return subprocess.run(
        [*before, sys.executable, "-c", code, "doctor", *words],
        capture_output=True,
        text=True,
        env={**os.environ, "COLUMNS": "80"},
        timeout=300,
    )


def states(text):
    return {check["name"]: check["state"] for check in json.loads(text)["checks"]}


@pytest.mark.thorough
@pytest.mark.usefixtures("root", "libibverbs")
def test_where_everything_works(need_tool):
    need_tool("tshark")
    done = run("--format", "json")
    assert (done.returncode, done.stderr) == (0, "")
    found = states(done.stdout)
    assert json.loads(done.stdout)["live_capture_works"] is True
    needed = ("kernel", "capabilities", "bcc", "compiling", "loading", "ring buffer")
    assert {found[name] for name in needed} == {"ok"}
    assert {found[name] for name in ("tc hook", "XDP hook", "uprobes", "libibverbs")} == {"ok"}
    assert found["tshark"] == "ok"


@pytest.mark.thorough
@pytest.mark.usefixtures("root", "libibverbs")
@pytest.mark.parametrize("before", [NOBODY, POWERLESS], ids=["nobody", "powerless root"])
def test_without_privileges(before, need_tool, unavailable):
    need_tool("setpriv")
    if subprocess.run([*before, sys.executable, "-c", "import rocescope"]).returncode:
        unavailable("nobody may not run this Python")
    done = run("--format", "json", before=before)
    assert (done.returncode, done.stderr) == (3, "")
    found = states(done.stdout)
    assert {found[n] for n in ("capabilities", "loading", "ring buffer", "uprobes")} == {"missing"}
    assert {found[n] for n in ("kernel", "bcc", "compiling", "libibverbs")} == {"ok"}
    table = run(before=before)
    assert (table.returncode, table.stderr) == (3, "")
    assert "> run with sudo" in table.stdout
    assert "Live capture does not work: see capabilities, loading, ring" in table.stdout


@pytest.mark.thorough
def test_fits_80_columns():
    lines = run().stdout.splitlines()
    assert len(lines) > 15
    assert max(map(len, lines)) <= 80
    assert all(line == line.rstrip() for line in lines)


def test_a_check_that_fails_itself(monkeypatch):
    def boom():
        raise RuntimeError("no\nway")

    monkeypatch.setattr(doctor, "_CHECKS", (boom,))
    (check,) = doctor.diagnose().checks
    assert (check.name, check.state) == ("boom", "limited")
    assert check.found == "the check failed: RuntimeError: no\nway"
    assert all("\n" not in line for line in command._lines(doctor.diagnose(), 80))
