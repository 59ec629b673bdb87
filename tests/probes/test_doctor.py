"""Hooks that a kernel does not have, or does not give."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

from rocescope.analyzer.errors import CaptureError
from rocescope.commands import doctor as command
from rocescope.probes import doctor
from rocescope.probes import doctor as check_hooks
from rocescope.probes import doctor as check_kernel
from rocescope.probes import doctor as check_software
from rocescope.probes import live as privileges

# Hooks that a kernel does not have, or does not give.


def test_no_tcx(monkeypatch):
    monkeypatch.setattr(check_hooks, "_try_link", lambda *_: 22)
    assert check_hooks.tc_hook().state == "limited"
    assert check_hooks.xdp_hook().found == "refused: EINVAL"


@pytest.mark.parametrize(("error", "state"), [(1, "missing"), (22, "limited"), (38, "limited")])
def test_bpf_is_refused(error, state, monkeypatch):
    def refuse(*_, **__):
        raise OSError(error, os.strerror(error))

    monkeypatch.setattr("rocescope.probes.bpf.call_out", refuse)
    assert check_hooks.tc_hook().state == check_hooks.xdp_hook().state == state


def test_jumbo_frames(monkeypatch):
    monkeypatch.setattr(check_hooks, "_try_link", lambda *_: 0)
    for version, words in (((5, 17), "no jumbo frames"), ((5, 18), "jumbo frames too")):
        monkeypatch.setattr(check_hooks, "kernel_version", lambda version=version: version)
        assert check_hooks.xdp_hook().found == f"XDP links, {words}"


def test_no_libibverbs(monkeypatch):
    monkeypatch.setattr(check_hooks, "all_libraries", list)
    assert check_hooks.uprobes().found == "not tried: no libibverbs"


# Kernels that are too old, and those that refuse BPF.


def test_old_kernel(monkeypatch):
    monkeypatch.setattr(check_kernel, "kernel_version", lambda: (5, 4))
    kernel = check_kernel.kernel()
    assert (kernel.state, kernel.needed) == ("missing", True) and "tcpdump" in kernel.remedy


@pytest.mark.parametrize(
    ("error", "held", "found"),
    [
        (1, 0, "no permission to try"),
        (1, -1, "refused despite the capabilities: EPERM"),
        (22, -1, "refused: EINVAL"),
        (38, -1, "refused: ENOSYS"),
    ],
)
def test_bpf_is_refused_check_kernel(monkeypatch, error, held, found):
    def refuse(*_, **__):
        raise OSError(error, os.strerror(error))

    monkeypatch.setattr("rocescope.probes.bpf.call_out", refuse)
    monkeypatch.setattr(privileges, "effective_capabilities", lambda: held)
    for look in (check_kernel.loading, check_kernel.ring_buffer):
        check = look()
        assert (check.state, check.found, check.needed) == ("missing", found, True)
        assert check.remedy


def test_options_of_the_kernel(monkeypatch):
    monkeypatch.setattr(check_kernel, "_configuration_text", lambda: "CONFIG_BPF_JIT=y\n")
    check = check_kernel.kernel_options()
    assert check.state == "limited" and "CONFIG_BPF_SYSCALL" in check.found
    assert "CONFIG_BPF_JIT" not in check.found
    monkeypatch.setattr(check_kernel, "_configuration_text", lambda: None)
    assert check_kernel.kernel_options().found.startswith("not readable")


@pytest.mark.parametrize(
    ("soft", "version", "state"),
    [(1 << 16, (5, 4), "limited"), (1 << 30, (5, 4), "ok"), (-1, (5, 4), "ok"), (0, (5, 15), "ok")],
)
def test_locked_memory(soft, version, state, monkeypatch):
    monkeypatch.setattr(check_kernel, "kernel_version", lambda: version)
    monkeypatch.setattr(check_kernel.resource, "getrlimit", lambda _: (soft, soft))
    assert check_kernel.locked_memory().state == state


# Software that is missing or broken.


def test_no_bcc(monkeypatch):
    def absent():
        raise CaptureError("live capture needs bcc: install it")

    monkeypatch.setattr(check_software, "import_bcc", absent)
    monkeypatch.setattr("rocescope.probes.program.compile.import_bcc", absent)
    bcc, compiling = check_software.bcc(), check_software.compiling()
    assert (bcc.state, bcc.needed) == ("missing", True) and "python3-bpfcc" in bcc.remedy
    assert (compiling.state, compiling.found) == ("missing", "bcc is missing")
    assert doctor.diagnose().live_capture_works is False


def test_no_libibverbs_check_software(monkeypatch):
    monkeypatch.setattr(check_software, "all_libraries", list)
    assert check_software.libibverbs().found == "not installed"


def test_a_broken_library(monkeypatch, tmp_path):
    broken = tmp_path / "libibverbs.so.1"
    broken.write_bytes(b"junk")
    monkeypatch.setattr(check_software, "all_libraries", lambda: [str(broken)])
    check = check_software.libibverbs()
    assert check.state == "limited" and "not an ELF file" in check.found


# `rocescope doctor` on this machine, as root and as nobody, and with things taken away.

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
