"""The output of `rdma -j resource show qp`, whatever it holds."""

from __future__ import annotations

import json
import os

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rocescope.probes.owners import resources
from rocescope.probes.owners.resources import Resource, command_of, parse_resources, rdma_tool

ROW = {
    "ifindex": 0, "ifname": "mlx5_0", "port": 1, "lqpn": 17, "rqpn": 18, "type": "RC",
    "state": "RTS", "rq-psn": 5, "sq-psn": 9, "pid": 4711, "comm": "python",
}  # fmt: skip


def test_rows():
    kernel = {"ifname": "mlx5_0", "lqpn": 1, "type": "GSI", "state": "RTS", "comm": "[ib_core]"}
    rows, reason = parse_resources(json.dumps([ROW, kernel]))
    assert reason is None
    assert rows[0] == Resource("mlx5_0", 1, 17, 18, "RC", "RTS", 5, 9, 4711, "python")
    assert (rows[1].pid, rows[1].command, rows[1].remote_qp) == (None, "ib_core", None)
    assert parse_resources("") == ([], None)


@pytest.mark.parametrize("odd", [7, {"lqpn": 1}, {"ifname": "a"}, {**ROW, "lqpn": "17"}, None])
def test_odd_rows_are_counted(odd):
    rows, reason = parse_resources(json.dumps([ROW, odd]))
    assert len(rows) == 1 and reason == "rdma resource show: 1 rows could not be parsed"


def test_odd_numbers_are_unknown():
    rows, _ = parse_resources(json.dumps([{**ROW, "rqpn": True, "pid": "4711"}]))
    assert (rows[0].remote_qp, rows[0].pid) == (None, None)


@given(st.text(max_size=40))
def test_any_text(text):
    rows, reason = parse_resources(text)
    assert rows == [] or reason is None


def test_the_name_of_a_process(tmp_path):
    with open("/proc/self/comm") as file:
        assert command_of(os.getpid()) == file.read().rstrip("\n")
    assert command_of(7, str(tmp_path)) == ""


def test_the_tool_is_looked_for_on_the_path_and_then_in_the_folders_of_root(tmp_path, monkeypatch):
    on_path, of_root = tmp_path / "path", tmp_path / "sbin"
    for folder in (on_path, of_root):
        folder.mkdir()
    monkeypatch.setenv("PATH", str(on_path))
    monkeypatch.setattr(resources, "_TOOL_FOLDERS", str(of_root))
    assert rdma_tool() is None
    for folder in (of_root, on_path):
        (folder / "rdma").touch(mode=0o755)
        assert rdma_tool() == str(folder / "rdma")
