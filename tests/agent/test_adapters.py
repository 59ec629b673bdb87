"""Adapters of a made-up /sys/class/infiniband, and what is read from them."""

from __future__ import annotations

import pytest

from rocescope.agent import adapters as under_test
from rocescope.agent.adapters import Adapter, Adapters, AdapterState
from rocescope.probes.owners.nldev import QueuePairCounters
from rocescope.probes.owners.queue_pairs import Resource


def pair(qp, state="RTS", device="mlx5_0", type="RC", pid=7):
    return Resource(device, 1, qp, 5, type, state, 0, 0, pid, "train")


@pytest.fixture
def sysfs(tmp_path):
    ndevs = tmp_path / "mlx5_0" / "ports" / "1" / "gid_attrs" / "ndevs"
    ndevs.mkdir(parents=True)
    (ndevs / "0").write_text("eth2\n")
    counters = tmp_path / "mlx5_0" / "ports" / "1" / "counters"
    counters.mkdir()
    (counters / "port_xmit_packets").write_text("30")
    (counters / "port_rcv_packets").write_text("12")
    (tmp_path / "rxe0").mkdir()
    (tmp_path / "rxe0" / "parent").write_text("eth3\n")
    return tmp_path


def test_adapters_of_interfaces(sysfs):
    adapters = Adapters(sysfs)
    assert adapters.of_interface("eth2") == [Adapter("mlx5_0", is_software=False)]
    assert adapters.of_interface("eth3") == [Adapter("rxe0", is_software=True)]
    assert adapters.of_interface("eth4") == adapters.of_interface("") == []
    assert Adapters(sysfs / "missing").of_interface("eth2") == []


def test_adapters_in_other_namespaces_are_unknown(sysfs):
    assert Adapters(sysfs).of_interface("eth2", "blue") is None, "not those of the host's eth2"
    assert Adapters(sysfs / "missing").of_interface("eth2", "blue") == []


def test_looks_are_rare(sysfs, monkeypatch):
    rows = [pair(1, type="GSI"), pair(0x11), pair(0x12, "ERR")]
    counted = [QueuePairCounters("mlx5_0", 1, (0x11,), 7, {"out_of_sequence": 3})]
    monkeypatch.setattr(under_test, "dump_queue_pairs", lambda: (rows, None))
    monkeypatch.setattr(under_test, "dump_counters", lambda: (counted, None))
    now = [100.0]
    monkeypatch.setattr(under_test.time, "monotonic", lambda: now[0])
    adapters = Adapters(sysfs)
    assert adapters.look() and not adapters.look()
    now[0] += 15
    assert adapters.look()
    state = adapters.state
    assert state.states() == {("mlx5_0", "RC", "RTS"): 1, ("mlx5_0", "RC", "ERR"): 1}
    assert [one.local_qp for one in state.in_error()] == [0x12]
    assert state.in_error("rxe0") == [] and len(state.in_error("mlx5_0")) == 1
    assert state.packets == {("mlx5_0", "out"): 30, ("mlx5_0", "in"): 12}
    assert state.counters == counted


def test_owner_is_of_this_interface():
    state = AdapterState([pair(0x11), pair(0x11, device="mlx5_1", pid=8)])
    assert state.owner([Adapter("mlx5_1", is_software=False)], 0x11).pid == 8
    assert state.owner([], 0x11) is None


def test_a_host_without_adapters(tmp_path):
    adapters = Adapters(tmp_path)
    assert adapters.look() and adapters.state == AdapterState()
