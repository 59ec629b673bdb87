"""What is missing is said by name, with the remedy, on one line."""

from __future__ import annotations

import errno
import os
import sys
import tempfile
import types

import pytest

from rocescope.analyzer.errors import CaptureError
from rocescope.probes import bpf
from rocescope.probes.program import bcc_module, stub_headers
from rocescope.probes.program.compile import load
from rocescope.probes.rights import privileges

EVERYTHING = (1 << 41) - 1


def without(*bits: int) -> int:
    return EVERYTHING & ~sum(1 << bit for bit in bits)


@pytest.mark.parametrize(
    ("held", "namespaces", "missing"),
    [
        (EVERYTHING, True, []),
        (without(39), False, []),  # CAP_SYS_ADMIN stands for it
        (without(21), False, []),
        (without(21), True, ["CAP_SYS_ADMIN"]),
        (without(12), False, ["CAP_NET_ADMIN"]),
        (without(21, 39), False, ["CAP_BPF"]),
        (0, False, ["CAP_NET_ADMIN", "CAP_PERFMON", "CAP_BPF"]),
    ],
)
def test_capabilities(monkeypatch, held, namespaces, missing):
    monkeypatch.setattr(privileges, "effective_capabilities", lambda: held)
    assert privileges.missing_capabilities(namespaces) == missing
    if missing:
        with pytest.raises(CaptureError, match=f"needs {', '.join(missing)}: run with sudo"):
            privileges.check(["some"] if namespaces else [])


def test_effective_capabilities_are_those_of_the_kernel():
    with open("/proc/self/status", encoding="ascii") as file:
        line = next(line for line in file if line.startswith("CapEff"))
    assert privileges.effective_capabilities() == int(line.split()[1], 16)


def test_old_kernel(monkeypatch):
    monkeypatch.setattr(privileges, "kernel_version", lambda: (5, 4))
    with pytest.raises(CaptureError, match=r"needs Linux 5\.15 or later.*tcpdump"):
        privileges.check()


@pytest.mark.parametrize(
    ("code", "what"),
    [
        (errno.ENOSYS, "has no BPF"),
        (errno.EPERM, "seccomp"),
        (errno.EINVAL, "no BPF ring buffer"),
        (errno.ENOMEM, "raise the memory limit"),
        (errno.EMFILE, "too many open files"),
    ],
)
def test_ring_that_cannot_be_made(monkeypatch, code, what):
    def refuse(*_: object, **__: object) -> int:
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(privileges, "effective_capabilities", lambda: EVERYTHING)
    monkeypatch.setattr(bpf, "create_map", refuse)
    with pytest.raises(CaptureError, match=what) as caught:
        privileges.check()
    assert len(str(caught.value).splitlines()) == 1
    assert caught.value.exit_code == 3


def test_no_bcc(monkeypatch):
    monkeypatch.setitem(sys.modules, "bcc", None)
    monkeypatch.setattr(bcc_module, "_SYSTEM_PACKAGES", "/nowhere")
    monkeypatch.setattr(sys, "path", list(sys.path))
    with pytest.raises(CaptureError, match="apt-get install python3-bpfcc"):
        bcc_module.import_bcc()


def test_another_package_named_bcc(monkeypatch):
    monkeypatch.setitem(sys.modules, "bcc", types.ModuleType("bcc"))
    monkeypatch.setattr(bcc_module, "_SYSTEM_PACKAGES", "/nowhere")
    monkeypatch.setattr(sys, "path", ["/nowhere"])
    with pytest.raises(CaptureError, match="bcc on PyPI is another package"):
        bcc_module.import_bcc()


def test_stub_headers_are_in_no_folder_that_the_environment_names(monkeypatch, tmp_path):
    """A user who keeps TMPDIR when becoming root could replace them."""
    monkeypatch.setenv("BCC_KERNEL_SOURCE", "/before")
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    with stub_headers.stub_headers():
        folder = os.environ["BCC_KERNEL_SOURCE"]
        assert os.path.isfile(f"{folder}/include/linux/kconfig.h")
        assert os.listdir(tmp_path) == []
    assert os.environ["BCC_KERNEL_SOURCE"] == "/before"


def test_a_program_the_verifier_refuses(live_capture):
    reads_uninitialised = bytes.fromhex("bf20000000000000 9500000000000000")
    with pytest.raises(CaptureError, match=r"verifier rejects the bad probe \(EACCES\)") as caught:
        load(bpf.PROG_XDP, reads_uninitialised, "bad")
    assert "!read_ok" in str(caught.value)
