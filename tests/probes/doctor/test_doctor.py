"""`rocescope doctor` on this machine, as root and as nobody, and with things taken away."""

import json
import os
import subprocess
import sys

import pytest

from rocescope.analyzer.errors import CaptureError
from rocescope.commands.live import doctor as command
from rocescope.probes.doctor import check_hooks, check_kernel, check_software, doctor
from rocescope.probes.doctor.diagnosis import Check, Diagnosis
from rocescope.probes.rights import privileges

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


def test_lines():
    works = Diagnosis(True, [Check("kernel", "ok", "Linux 9", True), Check("tshark", "ok", "5")])
    assert command._lines(works, 80) == [
        "Needed for live capture",
        "  ok       kernel            Linux 9",
        "",
        "More",
        "  ok       tshark            5",
        "",
        "Live capture works. Start with: sudo rocescope capture IFACE -w roce.pcapng",
    ]
    ill = Diagnosis(False, [Check("bcc", "missing", "none", True, "it compiles", "apt-get x")])
    assert command._lines(ill, 80)[1:4] == [
        "  missing  bcc               none",
        " " * 29 + "- it compiles",
        " " * 29 + "> apt-get x",
    ]


def test_no_bcc(monkeypatch):
    def absent():
        raise CaptureError("live capture needs bcc: install it")

    monkeypatch.setattr(check_software, "import_bcc", absent)
    monkeypatch.setattr("rocescope.probes.program.compile.import_bcc", absent)
    bcc, compiling = check_software.bcc(), check_software.compiling()
    assert (bcc.state, bcc.needed) == ("missing", True) and "python3-bpfcc" in bcc.remedy
    assert (compiling.state, compiling.found) == ("missing", "bcc is missing")
    assert doctor.diagnose().live_capture_works is False


def test_old_kernel(monkeypatch):
    for module in (check_kernel, check_hooks, privileges):
        monkeypatch.setattr(module, "kernel_version", lambda: (5, 4))
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
def test_bpf_is_refused(monkeypatch, error, held, found):
    def refuse(*_, **__):
        raise OSError(error, os.strerror(error))

    monkeypatch.setattr("rocescope.probes.bpf.call_out", refuse)
    monkeypatch.setattr(privileges, "effective_capabilities", lambda: held)
    for look in (check_kernel.loading, check_kernel.ring_buffer):
        check = look()
        assert (check.state, check.found, check.needed) == ("missing", found, True)
        assert check.remedy
    assert check_hooks.tc_hook().state in ("missing", "limited")
    assert check_hooks.xdp_hook().state in ("missing", "limited")


def test_no_tcx(monkeypatch):
    monkeypatch.setattr(check_hooks, "_try_link", lambda *_: 22)
    assert check_hooks.tc_hook().state == "limited"
    assert check_hooks.xdp_hook().found == "refused: EINVAL"


def test_no_libibverbs(monkeypatch):
    monkeypatch.setattr(check_software, "all_libraries", list)
    monkeypatch.setattr(check_hooks, "all_libraries", list)
    assert check_software.libibverbs().found == "not installed"
    assert check_hooks.uprobes().found == "not tried: no libibverbs"


def test_a_broken_library(monkeypatch, tmp_path):
    broken = tmp_path / "libibverbs.so.1"
    broken.write_bytes(b"junk")
    monkeypatch.setattr(check_software, "all_libraries", lambda: [str(broken)])
    check = check_software.libibverbs()
    assert check.state == "limited" and "not an ELF file" in check.found


def test_a_check_that_fails_itself(monkeypatch):
    def boom():
        raise RuntimeError("no\nway")

    monkeypatch.setattr(doctor, "_CHECKS", (boom,))
    (check,) = doctor.diagnose().checks
    assert (check.name, check.state) == ("boom", "limited")
    assert check.found == "the check failed: RuntimeError: no\nway"
    assert all("\n" not in line for line in command._lines(doctor.diagnose(), 80))
