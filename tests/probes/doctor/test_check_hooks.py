"""Hooks that a kernel does not have, or does not give."""

from __future__ import annotations

import os

import pytest

from rocescope.probes.doctor import check_hooks


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
