"""Kernels that are too old, and those that refuse BPF."""

from __future__ import annotations

import os

import pytest

from rocescope.probes.doctor import check_kernel
from rocescope.probes.rights import privileges


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
def test_bpf_is_refused(monkeypatch, error, held, found):
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
