"""From calls of libibverbs and packets on a wire to flows with the name of their process."""

import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from jobs import HERE, THERE, Job, frame
from network import Network, Watched, roce_frames
from processes import status_of_threads
from waiting import until

from rocescope.analyzer.errors import CaptureError
from rocescope.analyzer.measures.measuring import Measuring
from rocescope.analyzer.summary.summarize import Summary
from rocescope.probes.live import LiveOptions, LiveSource
from rocescope.probes.owners import helper as observer
from rocescope.probes.owners import watch as watch_module
from rocescope.probes.owners.helper import Observer
from rocescope.probes.owners.join import local_addresses
from rocescope.probes.owners.uprobes import Uprobes
from rocescope.probes.owners.watch import OwnerWatch

from ...commands.test_capture import Capturing, read

# From calls of libibverbs and packets on a wire to flows with the name of their process.

# From calls of libibverbs and packets on a wire to flows with the name of their process.


@pytest.fixture
def jobs():
    jobs = [Job(5), Job(6)]
    yield jobs
    for job in jobs:
        job.kill()


@pytest.mark.usefixtures("root", "libibverbs")
@pytest.mark.thorough
def test_flows_know_their_processes(jobs, tmp_path):
    with Network(f"rs-owner-{os.getpid()}") as net:
        net.ip("addr", "add", f"{HERE}/24", "dev", "left")
        source = LiveSource([net.interface("left")], LiveOptions(ring_bytes=1 << 20))
        with OwnerWatch([net.name]) as watch:
            jobs[0].connect(0x21, 0x51)
            jobs[1].connect(0x22, 0x52)
            with Watched(source) as seen:
                # Only requests that nobody answers: only the probes can pair these flows.
                for psn in range(20):
                    for local, remote in ((0x21, 0x51), (0x22, 0x52)):
                        net.send([frame(HERE, THERE, remote, psn, 0x04)], "left")
                        net.send([frame(THERE, HERE, local, 500 + psn, 0x04)], "right")
                net.send([frame(THERE, "10.0.0.9", 0x21, 1, 0x04)], "right")  # another host's
            measuring = Measuring(1_000_000, many_taps=True)
            for table in seen.tables:
                measuring.update(table)
            watch.update(wait=True)
            owners = watch.owners(measuring.tracker, source.registry.endpoints)
            summary = Summary(measuring, source.registry, "entropy", owners)
    flows = {(f.src, f.dst, f.dest_qp): f for f in summary.flows()}
    owned = {key: (f.owner.pid, f.owner.rank, f.owner.end) for key, f in flows.items() if f.owner}
    one, other = jobs
    assert owned == {
        (HERE, THERE, 0x51): (one.pid, 5, "source"),
        (THERE, HERE, 0x21): (one.pid, 5, "destination"),
        (HERE, THERE, 0x52): (other.pid, 6, "source"),
        (THERE, HERE, 0x22): (other.pid, 6, "destination"),
    }
    assert {f.owner.command[:6] for f in flows.values() if f.owner} == {"python"}
    assert len(flows) == 5
    pairs = {frozenset((c.a_qp, c.b_qp)): c.evidence for c in summary.connections}
    assert pairs == {
        frozenset((0x21, 0x51)): ["host_probe"],
        frozenset((0x22, 0x52)): ["host_probe"],
    }


@pytest.mark.usefixtures("root", "libibverbs")
def test_a_container_with_a_library_of_its_own(tmp_path):
    """A process in another root folder with its own copy of the library is watched as well."""
    from rocescope.probes.owners.uprobes import installed_libraries, mapped_libraries

    copy = tmp_path / "libibverbs.so.1"
    copy.write_bytes(Path(installed_libraries()[0]).read_bytes())
    code = f"import ctypes; ctypes.CDLL({str(copy)!r}); print('up', flush=True); input()"
    process = subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    try:
        assert process.stdout.readline() == "up\n"
        assert f"/proc/{process.pid}/root{copy}" in mapped_libraries()
        with Uprobes(installed_libraries()) as probes:
            assert f"/proc/{process.pid}/root{copy}" in probes.refresh()
            assert probes.refresh() == []
    finally:
        process.communicate("\n")


@pytest.mark.usefixtures("root", "libibverbs")
def test_addresses_of_this_host():
    with Network(f"rs-addr-{os.getpid()}") as net:
        net.ip("link", "set", "lo", "up")
        net.ip("addr", "add", "10.1.2.3/24", "dev", "left")
        net.ip("addr", "add", "fd00::5/64", "dev", "left", "nodad")
        from rocescope.probes.hooks.interfaces import in_namespace

        found = in_namespace(net.name, local_addresses)
    assert {a for a in found if not a.startswith("fe80")} == {
        "10.1.2.3", "fd00::5", "127.0.0.1", "::1"
    }  # fmt: skip
    assert local_addresses("/nonexistent") == set()


@pytest.mark.usefixtures("root", "libibverbs")
def test_a_process_that_lives_shortly_has_a_rank():
    """Its environment can be read only while it lives: the probes are listened to often."""
    with OwnerWatch() as watch:
        short = Job(9)
        short.connect(0x23, 0x53)

        def known():
            watch.listen()
            return any(pair.pid == short.pid for pair in watch.queue_pairs)

        until(known)
        short.kill()
        watch.update(wait=True)
        (pair,) = [pair for pair in watch.queue_pairs if pair.pid == short.pid]
    assert pair.rank.rank == 9


def helper_of(watch):
    return watch._process.pid


@pytest.mark.usefixtures("root", "libibverbs")
def test_many_queue_pairs_come_in_order_and_destroyed_ones_too(jobs):
    with OwnerWatch() as watch:
        for number in range(0x100, 0x100 + 300):
            jobs[0].connect(number, number + 1)
        for number in range(0x100, 0x100 + 100):
            jobs[0]("destroy", number, {})
        watch.update(wait=True)
        mine = [pair for pair in watch.queue_pairs if pair.pid == jobs[0].pid]
    assert sorted(pair.local_qp for pair in mine) == list(range(0x100, 0x100 + 300))
    ended = [pair.local_qp for pair in mine if pair.destroyed_ns is not None]
    assert sorted(ended) == list(range(0x100, 0x100 + 100))


@pytest.mark.usefixtures("root", "libibverbs")
def test_a_helper_that_hangs_never_holds_up_the_capture(monkeypatch):
    """As on a file system of another user, which may answer never."""
    with OwnerWatch() as watch:
        monkeypatch.setattr(watch_module, "_ANSWERS_WITHIN_S", 0.2)
        os.kill(helper_of(watch), signal.SIGSTOP)
        try:
            for _ in range(1000):  # more than a socket holds
                watch.listen()
                watch.update()
            with pytest.raises(CaptureError, match="does not answer"):
                watch.update(wait=True)
        finally:
            os.kill(helper_of(watch), signal.SIGCONT)
        watch.update()  # nothing more happens


@pytest.mark.usefixtures("root", "libibverbs")
def test_a_helper_that_hangs_is_said_during_the_capture(monkeypatch):
    """Without waiting: the rings would overflow."""
    monkeypatch.setattr(watch_module, "_SILENT_S", 0.2)
    with OwnerWatch() as watch:
        os.kill(helper_of(watch), signal.SIGSTOP)
        try:
            watch.update()
            time.sleep(0.3)
            with pytest.raises(CaptureError, match="does not answer"):
                watch.update()
            assert watch._process.poll() is None  # nothing has waited for its end
            watch.update()  # it is said once
        finally:
            os.kill(helper_of(watch), signal.SIGCONT)


@pytest.mark.usefixtures("root", "libibverbs")
def test_a_helper_that_is_killed_is_said_once():
    with OwnerWatch() as watch:
        os.kill(helper_of(watch), signal.SIGKILL)
        with pytest.raises(CaptureError, match="has ended"):
            watch.update(wait=True)
        watch.update(wait=True)


# Owners of queue pairs as comments of a capture file, read by capinfos and our own reader.


def comments(path, capinfos):
    text = subprocess.run([capinfos, str(path)], check=True, capture_output=True, text=True).stdout
    return re.findall(r"(owner: .*)", text)


@pytest.mark.usefixtures("root", "libibverbs")
@pytest.mark.thorough
@pytest.mark.parametrize("ending", [signal.SIGINT, signal.SIGKILL])
def test_owners_learned_during_the_capture_are_in_the_file(tmp_path, need_tool, ending):
    capinfos, path = need_tool("capinfos"), tmp_path / "out.pcapng"
    job = Job(5)
    try:
        with Network(f"rs-comment-{os.getpid()}") as net:
            capture = Capturing(net, "left", "-w", str(path))
            until(path.exists)
            net.send(roce_frames(20))
            job.connect(0x21, 0x51)
            if ending == signal.SIGKILL:
                until(lambda: b"owner: " in path.read_bytes())
            written = path.stat().st_size
            net.send(roce_frames(30))
            if ending == signal.SIGKILL:
                until(lambda: path.stat().st_size > written + 30 * 96)
            assert capture.end(ending) == (0 if ending == signal.SIGINT else -ending)
    finally:
        job.kill()
    (comment,) = comments(path, capinfos)
    head = "owner: QP 0x000021 (rxe_test) to QP 0x000051 at 10.0.0.2: pid "
    assert comment.startswith(f"{head}{job.pid} python")
    assert comment.endswith(", rank 5")
    # Sections do not disturb: the same interfaces, every packet once.
    frames, taps = read([path])
    assert frames == [frame[:128] for frame in roce_frames(20) + roce_frames(30)]
    assert [(tap.frames, tap.dropped) for tap in taps.items][1][0] == 50


# What the helper process knows of queue pairs, without the process.

# What the helper process knows of queue pairs, without the process.


@pytest.mark.usefixtures("root", "libibverbs")
def test_a_killed_process_owns_nothing_more():
    job = Job(5)
    with Observer() as watch:
        job.connect(0x31, 0x61)
        watch.update()
        assert [p.destroyed_ns for p in watch.queue_pairs if p.local_qp == 0x31] == [None]
        job.kill()
        watch.queue_pairs.bury(1)
        assert [p.destroyed_ns for p in watch.queue_pairs if p.local_qp == 0x31] == [1]


@pytest.mark.usefixtures("root", "libibverbs")
def test_what_cannot_be_watched_is_said(monkeypatch):
    def refuse():
        raise CaptureError("no libibverbs to watch: install libibverbs1")

    monkeypatch.setattr(observer, "Uprobes", refuse)
    with Observer() as watch:
        watch.update()
        assert watch.reasons[0] == "no libibverbs to watch: install libibverbs1"
        assert watch.lost == 0


# The process that watches queue pairs: its end and its privileges.


@pytest.mark.usefixtures("root", "libibverbs")
def test_the_helper_ends_with_the_process_that_started_it():
    code = (
        "from rocescope.probes.owners.watch import OwnerWatch\n"
        "watch = OwnerWatch(); print(watch._process.pid, flush=True); input()\n"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    helper = int(process.stdout.readline())
    process.kill()
    process.communicate()
    until(lambda: not Path(f"/proc/{helper}/exe").exists())


@pytest.mark.usefixtures("root", "libibverbs")
def test_it_has_an_unprivileged_user_and_can_only_watch():
    with OwnerWatch() as watch:
        threads = status_of_threads(watch._process.pid)
    assert threads
    for status in threads:
        assert 0 not in status.users and 0 not in status.groups
        assert status.kept == {"CAP_BPF", "CAP_PERFMON", "CAP_SYS_PTRACE", "CAP_DAC_READ_SEARCH"}
        assert status.no_new_privileges
