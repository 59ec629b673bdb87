"""Kernel time to wall time."""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys
import time

import pytest

from rocescope.probes import bpf as clock
from rocescope.probes import replacement
from rocescope.probes.replacement import Replacement
from rocescope.probes.sysfs import DEVICES, devices, gid, gids, growth, read_ports

from .conftest import write

# Kernel time to wall time.

S = 1_000_000_000


def test_offset_is_that_of_the_clocks():
    offset_ns, uncertainty_ns = clock.measure()
    wall, monotonic = time.time_ns(), time.monotonic_ns()
    assert 0 <= uncertainty_ns < 1_000_000
    assert abs(wall - monotonic - offset_ns) < 1_000_000


@pytest.mark.usefixtures("root")
@pytest.mark.parametrize("seconds", ["100000", "-1"])
def test_in_a_time_namespace_the_probes_keep_the_time_of_the_host(seconds, need_tool, unavailable):
    """BPF programs do not know such namespaces (time_namespaces(7))."""
    code = "from rocescope.probes import bpf; print(bpf.measure()[0])"
    command = [need_tool("unshare"), "--time", "--monotonic", seconds, sys.executable, "-c", code]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if "unshare:" in done.stderr:
        unavailable(done.stderr)
    assert abs(int(done.stdout) - clock.measure()[0]) < 100_000_000


def test_offset_stays_until_the_clock_is_set(monkeypatch):
    now = time.monotonic_ns()
    readings = iter([(1 * S, 50), (1 * S + 80_000, 60), (5 * S, 40), (3 * S, 40)])
    monkeypatch.setattr(clock, "measure", lambda: next(readings))
    monkeypatch.setattr(clock.time, "monotonic_ns", lambda: now)
    wall = clock.WallClock()
    wall.check()  # too early to look
    assert (wall.offset_ns, wall.steps) == (1 * S, 0)
    now += 1_100_000_000
    wall.check()  # noise
    assert (wall.offset_ns, wall.steps) == (1 * S, 0)
    now += 1_100_000_000
    wall.check()
    assert (wall.offset_ns, wall.steps, wall.set_back) == (5 * S, 1, 0)
    now += 1_100_000_000
    wall.check()
    assert (wall.offset_ns, wall.steps, wall.set_back) == (3 * S, 2, 1)


# Counters and addresses of RDMA ports, from trees like those of Soft-RoCE devices.


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


# A file has no name until it is complete, whatever becomes of its process.

WRITES_AND_IS_KILLED = """
import os, signal, sys
from rocescope.probes.replacement import Replacement
new = Replacement("out", os.open(sys.argv[1], os.O_PATH | os.O_DIRECTORY))
os.write(new.descriptor, b"half")
os.kill(os.getpid(), signal.SIGKILL)
"""


def begun(folder, name="out"):
    return Replacement(name, os.open(folder, os.O_PATH | os.O_DIRECTORY))


@pytest.fixture(params=["nameless", "hidden name"])
def file_system(request, monkeypatch):
    """One with nameless files, and one without, such as NFS."""
    if request.param == "hidden name":
        opened = os.open

        def without(path, flags, *rest, **more):
            if flags & os.O_TMPFILE == os.O_TMPFILE:
                raise OSError(errno.EOPNOTSUPP, "")
            return opened(path, flags, *rest, **more)

        monkeypatch.setattr(replacement.os, "open", without)


@pytest.mark.usefixtures("file_system")
@pytest.mark.parametrize("old", [None, b"old"])
def test_it_is_there_whole_or_not_at_all(tmp_path, old):
    path = tmp_path / "out"
    if old is not None:
        path.write_bytes(old)
    new = begun(tmp_path)
    os.write(new.descriptor, b"new")
    assert (path.read_bytes() if path.exists() else None) == old
    new.keep()
    new.close()
    assert path.read_bytes() == b"new" and os.listdir(tmp_path) == ["out"]


@pytest.mark.usefixtures("file_system")
@pytest.mark.parametrize("old", [None, b"old"])
def test_a_new_file_replaces_no_older_one(tmp_path, old):
    path = tmp_path / "out"
    if old is not None:
        path.write_bytes(old)
    new = begun(tmp_path)
    os.write(new.descriptor, b"new")
    if old is None:
        new.keep(new=True)
    else:
        with pytest.raises(FileExistsError):
            new.keep(new=True)
    new.close()
    assert path.read_bytes() == (old or b"new") and os.listdir(tmp_path) == ["out"]


@pytest.mark.usefixtures("file_system")
def test_what_is_not_kept_leaves_nothing(tmp_path):
    new = begun(tmp_path)
    os.write(new.descriptor, b"half")
    new.close()
    assert os.listdir(tmp_path) == []


def test_a_killed_process_leaves_nothing(tmp_path):
    code = [sys.executable, "-c", WRITES_AND_IS_KILLED, str(tmp_path)]
    assert subprocess.run(code).returncode == -signal.SIGKILL
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize("mask", [0o022, 0o077])
def test_permissions_follow_the_mask_or_the_older_file(tmp_path, mask):
    before = os.umask(mask)
    try:
        for _ in range(2):
            new = begun(tmp_path)
            new.keep()
            new.close()
            assert (tmp_path / "out").stat().st_mode & 0o777 == 0o666 & ~mask
        (tmp_path / "out").chmod(0o604)
        new = begun(tmp_path)
        new.keep()
        new.close()
    finally:
        os.umask(before)
    assert (tmp_path / "out").stat().st_mode & 0o777 == 0o604


def test_no_descriptor_stays_open(tmp_path):
    before = os.listdir("/proc/self/fd")
    begun(tmp_path).close()
    with pytest.raises(NotADirectoryError):
        (tmp_path / "file").touch()
        Replacement("out", os.open(tmp_path / "file", os.O_PATH))
    assert len(os.listdir("/proc/self/fd")) == len(before)
