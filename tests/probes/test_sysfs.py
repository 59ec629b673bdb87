"""Counters and addresses of RDMA ports, from trees like those of Soft-RoCE devices."""

from pathlib import Path

import pytest

from rocescope.probes.sysfs import DEVICES, devices, gid, gids, growth, read_ports


def write(path: Path, text):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"{text}\n")


@pytest.fixture
def tree(tmp_path):
    """Device rxe0 with one port: counters, addresses, and the settings among them."""
    port = tmp_path / "rxe0" / "ports" / "1"
    for name, value in {"port_xmit_data": 1000, "port_rcv_data": 5, "link_downed": 0}.items():
        write(port / "counters" / name, value)
    for name, value in {"sent_pkts": 10, "rcvd_pkts": 20, "lifespan": 10}.items():
        write(port / "hw_counters" / name, value)
    write(port / "gids" / "0", "fe80:0000:0000:0000:5054:00ff:fe12:3456")
    write(port / "gids" / "1", "0000:0000:0000:0000:0000:ffff:0a00:0001")
    write(port / "gids" / "2", "0000:0000:0000:0000:0000:0000:0000:0000")
    return tmp_path


def test_reading(tree):
    (port,), reason = read_ports(tree)
    assert reason is None
    assert (port.device, port.port) == ("rxe0", 1)
    assert port.counters == {"link_downed": 0, "port_rcv_data": 5, "port_xmit_data": 1000}
    assert port.hw_counters == {"rcvd_pkts": 20, "sent_pkts": 10}


def test_growth(tree):
    before, _ = read_ports(tree)
    port = tree / "rxe0" / "ports" / "1"
    write(port / "counters" / "port_xmit_data", 1750)
    write(port / "counters" / "port_rcv_data", 2)
    write(port / "hw_counters" / "new_counter", 9)
    after, _ = read_ports(tree)
    (change,) = growth(before, after)
    assert change.counters == {"link_downed": 0, "port_xmit_data": 750}
    assert change.hw_counters == {"rcvd_pkts": 0, "sent_pkts": 0}
    assert change.restarted == ["port_rcv_data"]
    assert growth([], after) == []


def test_counters_that_cannot_be_read(tree):
    port = tree / "rxe0" / "ports" / "1"
    write(port / "counters" / "port_xmit_data", "N/A (no PMA)")
    (port / "counters" / "link_downed").unlink()
    (port / "counters" / "link_downed").mkdir()
    (found,), _ = read_ports(tree)
    assert found.counters == {"port_rcv_data": 5}


def test_as_linux_6_1_shows_rxe(tmp_path):
    """No folder `counters`; what `grep .` printed of hw_counters behind an ib_send_bw."""
    port = tmp_path / "rxe0" / "ports" / "1"
    printed = """ack_deferred:6 completer_retry_err:12 duplicate_request:0 lifespan:12 link_downed:0
        out_of_seq_request:0 rcvd_pkts:48465 rcvd_rnr_err:8 rcvd_seq_err:0 rdma_recvs:0
        rdma_sends:48041 retry_exceeded_err:0 retry_rnr_exceeded_err:0 send_err:0 send_rnr_err:0
        sent_pkts:50457"""
    counted = dict(pair.split(":") for pair in printed.split())
    for name, value in counted.items():
        write(port / "hw_counters" / name, value)
    write(port / "gids" / "0", "fe80:0000:0000:0000:7445:30ff:feda:ef2e")
    write(port / "gids" / "1", "0000:0000:0000:0000:0000:ffff:0a00:0001")
    write(port / "gids" / "2", "0000:0000:0000:0000:0000:0000:0000:0000")
    (found,), reason = read_ports(tmp_path)
    assert reason is None and found.counters == {}
    counted.pop("lifespan")
    assert found.hw_counters == {name: int(value) for name, value in counted.items()}
    assert gids("rxe0", tmp_path) == ["fe80::7445:30ff:feda:ef2e", "10.0.0.1"]


def test_nothing_there(tmp_path):
    assert read_ports(tmp_path / "none") == (
        [],
        "no RDMA device: the kernel's RDMA modules are not loaded",
    )
    assert read_ports(tmp_path) == ([], "no RDMA device has a port")
    (tmp_path / "d" / "ports" / "1").mkdir(parents=True)
    (port,), reason = read_ports(tmp_path)
    assert (port.counters, port.hw_counters) == ({}, {})
    assert reason == "the RDMA devices offer no counters"
    assert devices(tmp_path / "none") == []


def test_addresses(tree):
    assert gid("rxe0", 1, 0, tree) == "fe80::5054:ff:fe12:3456"
    assert gid("rxe0", 1, 1, tree) == "10.0.0.1"
    assert gid("rxe0", 1, 2, tree) is None
    assert gid("rxe0", 2, 0, tree) is None
    assert gids("rxe0", tree) == ["fe80::5054:ff:fe12:3456", "10.0.0.1"]
    assert gids("rxe1", tree) == []
    assert gid(str(tree / "rxe0"), 1, 0, tree) is None  # a path is no name of a device
    assert gid("../" + tree.name + "/rxe0", 1, 0, tree) is None


def test_this_machine():
    """Whatever it has, reading it works and agrees with the folders."""
    ports, reason = read_ports()
    assert bool(ports) == bool(list(DEVICES.glob("*/ports/*")))
    assert ports or reason
