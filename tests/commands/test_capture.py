"""`capture --annotate`: comments as tshark reads them; without them nothing is lost."""

from __future__ import annotations

import errno
import json
import os
import re
import signal
import struct
import subprocess
import sys
import threading
import time
from collections import Counter
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from captures import data
from counted import Counted, packet, traffic
from examples import first
from job_logs import nccl
from lua_tshark import tshark as tshark_annotating
from network import Network, bth, ethernet, ipv4, roce, roce_frames, udp
from waiting import until

from rocescope import cli
from rocescope.analyzer.capture.rings import concatenated
from rocescope.analyzer.capture.source import open_capture
from rocescope.analyzer.errors import RocescopeError
from rocescope.analyzer.pipeline.captures import analyze
from rocescope.analyzer.pipeline.options import AnalyzeOptions
from rocescope.analyzer.wire.taps import Taps
from rocescope.commands.capture import annotate_capture
from rocescope.probes import bpf
from rocescope.report.files import encode

# `rocescope capture` as people run it: files, pipes, signals, full disks, missing rights.

COMMAND = [sys.executable, "-m", "rocescope", "capture"]


class Capturing:
    """A running capture."""

    def __init__(self, net: Network, *arguments: str, **options: object) -> None:
        self.process = subprocess.Popen(
            [*COMMAND, "--netns", net.name, *arguments],
            stderr=subprocess.PIPE,
            text=True,
            **options,  # type: ignore[call-overload]
        )
        assert self.process.stderr is not None
        self.said = self.process.stderr.readline()
        assert self.said.startswith("rocescope: capturing on"), self.said

    def end(self, number: int = signal.SIGINT) -> int:
        """Send a signal and wait; what it said on standard error is in `said`."""
        self.process.send_signal(number)
        return self.wait()

    def wait(self) -> int:
        assert self.process.stderr is not None
        late = threading.Timer(60, self.process.kill)  # a signal without effect fails the test
        late.start()
        self.said += self.process.stderr.read()
        late.cancel()
        return self.process.wait(300)

    def link_ids(self) -> list[int]:
        """Numbers of the BPF links this process holds."""
        texts = []
        for path in Path(f"/proc/{self.process.pid}/fdinfo").iterdir():
            with suppress(FileNotFoundError):  # closed meanwhile
                texts.append(path.read_text())
        return [
            int(n) for text in texts for n in re.findall(r"^link_id:\s*(\d+)", text, re.MULTILINE)
        ]


def link_exists(number: int) -> bool:
    get_fd_by_id = 30
    try:
        os.close(bpf.call(get_fd_by_id, struct.pack("II4x", number, 0)))
    except OSError as error:
        assert error.errno == errno.ENOENT
        return False
    return True


def tshark(path: Path, *fields: str) -> list[str]:
    command = ["tshark", "-n", "-r", str(path), "-T", "fields"]
    for field in fields:
        command += ["-e", field]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.splitlines()


def read(paths: list[Path]) -> tuple[list[bytes], Taps]:
    taps, frames = Taps(), []
    names = [str(path) for path in paths]
    source = concatenated(names, taps) if len(paths) > 1 else open_capture(names[0], taps)
    with source as capture:
        for batch in capture.batches():
            pairs = zip(batch.offset.tolist(), batch.captured.tolist(), strict=True)
            frames += [batch.data[at : at + n].tobytes() for at, n in pairs]
    return frames, taps


def test_file_holds_what_was_sent(network, tmp_path, need_tool):
    need_tool("tshark")
    net, path = network(), tmp_path / "out.pcapng"
    sent = [roce(psn, payload_bytes=psn % 50) for psn in range(500)]
    capture = Capturing(net, "left", "-w", str(path))
    before = time.time()
    net.send(sent)
    after = time.time()
    assert capture.end() == 0
    assert "500 packets written, 500 RoCE packets seen, 0 lost" in capture.said
    frames, taps = read([path])
    assert frames == [frame[:128] for frame in sent]
    assert [(tap.name.rpartition("/")[2], tap.dropped) for tap in taps.items] == [
        (f"{path.name}:{net.interface('left')} {way}".rpartition("/")[2], 0)
        for way in ("in", "out")
    ]
    lines = tshark(path, "frame.time_epoch", "infiniband.bth.psn", "frame.len", "frame.cap_len")
    rows = [line.split("\t") for line in lines]
    assert [int(row[1]) for row in rows] == list(range(500))
    assert [int(row[2]) for row in rows] == [len(frame) for frame in sent]
    assert [int(row[3]) for row in rows] == [min(len(frame), 128) for frame in sent]
    assert before - 0.001 <= float(rows[0][0]) <= float(rows[-1][0]) <= after + 0.001
    info = subprocess.run(
        [need_tool("capinfos"), "-M", str(path)], check=True, capture_output=True, text=True
    ).stdout
    assert re.search(r"Number of packets: +500", info)
    assert re.search("hook: (tcx|clsact)", info) and "kernel: Linux" in info
    assert re.search(r"Strict time order: +True", info)


@pytest.mark.usefixtures("libibverbs")
@pytest.mark.parametrize("number", first(2, [signal.SIGINT, signal.SIGTERM, signal.SIGHUP]))
def test_signals_end_it_in_good_order(network, tmp_path, number):
    net, path = network(), tmp_path / "out.pcapng"
    capture = Capturing(net, "left", "-w", str(path))
    links = capture.link_ids()
    assert len(links) >= 2 and all(map(link_exists, links))  # those on libibverbs too
    net.send(roce_frames(10))
    assert capture.end(number) == 0
    assert len(read([path])[0]) == 10
    assert not any(map(link_exists, links))


@pytest.mark.thorough
def test_a_closed_terminal_ends_it_in_good_order(network, tmp_path):
    """SIGHUP, and standard error that can no longer be written; the file is complete."""
    net, path = network(), tmp_path / "out.pcapng"
    ours, terminal = os.openpty()
    process = subprocess.Popen(
        [*COMMAND, "--netns", net.name, "left", "-w", str(path)],
        stderr=terminal,
        start_new_session=True,
    )
    os.close(terminal)
    assert b"capturing on" in os.read(ours, 4096)
    net.send(roce_frames(10))
    os.close(ours)
    process.send_signal(signal.SIGHUP)
    assert process.wait(300) == 0
    frames, taps = read([path])
    assert len(frames) == 10
    assert [tap.dropped for tap in taps.items] == [0, 0]


@pytest.mark.thorough
def test_nohup_is_respected(network, tmp_path):
    net = network()
    capture = Capturing(
        net, "left", preexec_fn=lambda: signal.signal(signal.SIGHUP, signal.SIG_IGN)
    )
    capture.process.send_signal(signal.SIGHUP)
    net.send(roce_frames(10))
    assert capture.end() == 0
    assert "10 packets captured" in capture.said


@pytest.mark.thorough
def test_kill_9_leaves_no_clsact_filter(network):
    """Filters are no links: a guard removes them, and the qdisc they were the only ones on."""
    net = network()
    capture = Capturing(net, "right", "--hook", "clsact")
    assert "rocescope" in net.run("tc", "filter", "show", "dev", "right", "egress")
    assert capture.end(signal.SIGKILL) == -signal.SIGKILL
    until(lambda: "clsact" not in net.run("tc", "qdisc", "show", "dev", "right"))


@pytest.mark.thorough
def test_the_guard_of_a_killed_capture_leaves_the_filters_of_another(network, tmp_path):
    net, path = network(), tmp_path / "out.pcapng"
    killed = Capturing(net, "right", "--hook", "clsact")
    stays = Capturing(net, "right", "--hook", "clsact", "-w", str(path))
    assert killed.end(signal.SIGKILL) == -signal.SIGKILL
    for way in ("ingress", "egress"):
        show = ("tc", "filter", "show", "dev", "right", way)
        until(lambda show=show: net.run(*show).count("direct-action") == 1)
    net.send(roce_frames(100))
    until(lambda: path.exists() and path.stat().st_size > 100 * 96)
    assert stays.end() == 0
    assert "100 packets written, 100 RoCE packets seen, 0 lost" in stays.said
    assert "clsact" not in net.run("tc", "qdisc", "show", "dev", "right")


@pytest.mark.thorough
@pytest.mark.parametrize("hook", ["tc", "xdp"])
def test_kill_9_leaves_a_readable_file_and_no_program(network, tmp_path, hook):
    net, path = network(), tmp_path / "out.pcapng"
    capture = Capturing(net, "right", "-w", str(path), "--hook", hook)
    links = capture.link_ids()
    assert links and all(map(link_exists, links))
    net.send(roce_frames(200))
    until(lambda: path.exists() and path.stat().st_size > 200 * 96)
    assert capture.end(signal.SIGKILL) == -signal.SIGKILL
    frames, _ = read([path])
    assert frames == [frame[:128] for frame in roce_frames(200)]
    until(lambda: not any(map(link_exists, links)))  # released after the process is reaped
    assert "prog/xdp" not in net.ip("-d", "link", "show", "right")


@pytest.mark.thorough
def test_standard_output(network, need_tool):
    net = network()
    capture = Capturing(net, "left", "-w", "-", "--count", "30", stdout=subprocess.PIPE)
    net.send(roce_frames(50))
    assert capture.process.stdout is not None
    data = capture.process.stdout.buffer.read()  # type: ignore[attr-defined]
    assert capture.wait() == 0
    out = subprocess.run(
        [need_tool("tshark"), "-n", "-r", "-", "-T", "fields", "-e", "infiniband.bth.psn"],
        input=data,
        check=True,
        capture_output=True,
    ).stdout
    assert out.split() == [b"%d" % psn for psn in range(30)]


@pytest.mark.thorough
def test_a_closed_pipe_ends_it(network):
    net = network()
    capture = Capturing(net, "left", "-w", "-", stdout=subprocess.PIPE)
    assert capture.process.stdout is not None
    capture.process.stdout.close()
    net.send(roce_frames(50))
    assert capture.wait() == 141
    assert "Traceback" not in capture.said


@pytest.mark.thorough
def test_count_and_duration(network, tmp_path):
    net, path = network(), tmp_path / "out.pcapng"
    capture = Capturing(net, "left", "-w", str(path), "--count", "7")
    net.send(roce_frames(20))
    assert capture.wait() == 0
    assert len(read([path])[0]) == 7
    capture = Capturing(net, "left", "-w", str(path), "--duration", "300ms")
    net.send(roce_frames(20))
    assert capture.wait() == 0
    assert len(read([path])[0]) == 20


@pytest.mark.thorough
def test_counting_only(network):
    net = network()
    capture = Capturing(net, "left", "--count", "5")
    net.send(roce_frames(5))
    assert capture.wait() == 0
    assert "5 packets captured of 5 RoCE packets, 0 lost" in capture.said


@pytest.mark.thorough
def test_filter_is_in_the_file(network, tmp_path, need_tool):
    net, path = network(), tmp_path / "out.pcapng"
    capture = Capturing(net, "left", "-w", str(path), "--filter", "psn < 10")
    net.send(roce_frames(30) + [ethernet(ipv4(udp(bytes(60), dport=4793)))] * 3)
    assert capture.end() == 0
    assert len(read([path])[0]) == 10
    assert "20 filtered out, 3 packets of Ultra Ethernet seen, not captured" in capture.said
    info = subprocess.run([need_tool("capinfos"), str(path)], check=True, capture_output=True)
    assert b"filter: psn < 10" in info.stdout


@pytest.mark.thorough
def test_losses_are_in_the_file(network, tmp_path):
    net, path = network(), tmp_path / "out.pcapng"
    capture = Capturing(net, "left", "-w", str(path), "--ring", "4096")
    net.send(roce_frames(6000))
    assert capture.end() == 0
    frames, taps = read([path])
    dropped = taps[1].dropped
    assert dropped is not None and dropped > 0
    assert len(frames) + dropped == 6000
    assert f"{dropped} lost because the ring was full" in capture.said


@pytest.mark.thorough
def test_rotation_by_size(network, tmp_path):
    net, path = network(), tmp_path / "out.pcapng"
    arguments = ("--rotate-size", "10kB")
    capture = Capturing(net, "left", "-w", str(path), *arguments)
    net.send(roce_frames(600))  # many of them arrive in one batch
    assert capture.end() == 0
    files = sorted(tmp_path.iterdir())
    assert len(files) >= 7
    assert all(re.fullmatch(r"out_\d{5}_\d{14}\.pcapng", file.name) for file in files)
    # A file ends with the packet that reaches the size, and the counters of two interfaces.
    assert all(10_000 < file.stat().st_size < 10_000 + 600 for file in files[:-1])
    frames, taps = read(files)
    assert frames == [frame[:128] for frame in roce_frames(600)]
    assert sum(tap.dropped or 0 for tap in taps.items) == 0


@pytest.mark.thorough
def test_files_that_are_smaller_than_their_head_hold_a_packet_each(network, tmp_path):
    net = network()
    capture = Capturing(net, "left", "-w", str(tmp_path / "out.pcapng"), "--rotate-size", "50")
    net.send(roce_frames(5))
    assert capture.end() == 0
    frames, _ = read(sorted(tmp_path.iterdir()))
    assert frames == [frame[:128] for frame in roce_frames(5)]


@pytest.mark.thorough
def test_rotation_by_time_keeps_the_newest(network, tmp_path):
    net, path = network(), tmp_path / "out.pcapng"
    arguments = ("--rotate-every", "100ms", "--files", "2")
    capture = Capturing(net, "left", "-w", str(path), *arguments)
    until(lambda: list(tmp_path.glob("out_00004_*")))
    assert capture.end() == 0
    before, last = sorted(int(file.name[4:9]) for file in tmp_path.iterdir())
    assert before + 1 == last >= 4


@pytest.mark.thorough
def test_full_disk_keeps_what_is_written(network, tmp_path):
    net = network()
    disk = tmp_path / "disk"
    disk.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", str(disk)], check=True)
    try:
        path = disk / "out.pcapng"
        capture = Capturing(net, "left", "-w", str(path))
        net.send(roce_frames(3000))
        assert capture.wait() == 1
        assert "no space left for" in capture.said
        assert "readable" in capture.said
        assert "Traceback" not in capture.said
        frames, taps = read([path])
        assert 300 < len(frames) < 500
        assert frames == [frame[:128] for frame in roce_frames(len(frames))]
        assert taps[1].dropped == 0  # the counters found room
        written = int(re.search(r"(\d+) packets written", capture.said).group(1))
        assert written == len(frames)
    finally:
        subprocess.run(["umount", str(disk)], check=True)


@pytest.mark.thorough
def test_full_device(network):
    net = network()
    done = subprocess.run(
        [*COMMAND, "--netns", net.name, "left", "-w", "/dev/full"],
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 1
    assert "no space left for /dev/full" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.thorough
def test_a_pipe_that_nobody_reads_is_not_waited_for(network, tmp_path):
    """No signal ends such a wait."""
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    done = run_failing(network(), "left", "-w", str(pipe))
    assert done.returncode == 1
    assert "nobody reads from this pipe: start its reader first" in done.stderr


def test_folder_that_does_not_exist(network, tmp_path):
    net = network()
    done = run_failing(net, "left", "-w", str(tmp_path / "no" / "out.pcapng"))
    assert done.returncode == 1
    assert "no such file or directory" in done.stderr


def run_failing(net: Network, *arguments: str, prefix: tuple[str, ...] = ()):
    return subprocess.run(
        [*prefix, *COMMAND, "--netns", net.name, *arguments],
        capture_output=True,
        text=True,
        timeout=300,
    )


@pytest.mark.thorough
@pytest.mark.parametrize("missing", ["bpf,-perfmon,-sys_admin", "net_admin", "sys_admin"])
def test_missing_capabilities_are_named(network, missing, need_tool):
    prefix = (need_tool("setpriv"), f"--bounding-set=-{missing}")
    done = run_failing(network(), "left", prefix=prefix)
    assert done.returncode == 3
    lines = done.stderr.splitlines()
    assert len(lines) == 1
    for name in missing.replace("-", "").split(","):
        assert f"CAP_{name.upper()}" in lines[0]
    assert "run with sudo" in lines[0]


@pytest.mark.thorough
def test_the_three_capabilities_are_enough(network, need_tool):
    """Without CAP_SYS_ADMIN, inside the namespace."""
    net = network()
    drop = ",".join(f"-{name}" for name in ("sys_admin", "sys_resource", "net_raw", "sys_ptrace"))
    done = subprocess.run(
        [
            *("ip", "netns", "exec", net.name, need_tool("setpriv"), f"--bounding-set={drop}"),
            *(*COMMAND, "left", "--duration", "100ms"),
        ],
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    assert "0 packets captured" in done.stderr


@pytest.mark.parametrize(
    ("arguments", "code", "what"),
    [
        (("nowhere0",), 3, "there is no interface nowhere0"),
        (("lo", "--ring", "lots"), 2, "is not a size"),
        (("lo", "--files", "3"), 2, "--files must be"),
        (("lo", "--rotate-size", "1MB"), 2, "--rotate-every need a file"),
        (("lo", "--annotate"), 2, "give -w FILE"),
        (("lo", "-w", "a", "--nccl-log", "x"), 2, "in the comments of --annotate: give both"),
        (("lo", "--counters", "--nccl-log", "x"), 2, "combined with --nccl-log"),
        (("lo", "--annotate", "-w", "-"), 2, "give -w FILE"),
        (("lo", "--annotate", "-w", "/dev/null"), 2, "a regular file"),
        (("lo", "--annotate", "-w", "a", "--rotate-size", "1MB"), 2, "combined with rotation"),
        (("lo", "--annotate", "--counters"), 2, "combined with --annotate"),
        (("lo", "--count", "0"), 2, "--count"),
        (("lo", "--snaplen", "20"), 2, "snap length"),
        (("lo", "--filter", "psn =="), 2, "filter"),
        (("lo", "--filter", "payload > 5"), 2, "the kernel has no payload"),
        (("lo", "--hook", "kprobe"), 2, "--hook"),
        (("lo", "--udp-port", "70000"), 2, "--udp-port must be 1"),
        ((), 2, "IFACE"),
    ],
)
def test_mistakes_are_one_line(live_capture, capsys, arguments, code, what):
    assert cli.run(["capture", *arguments]) == code
    said = capsys.readouterr().err
    assert what in said
    assert len(said.splitlines()) == 1


@pytest.mark.thorough
def test_nothing_can_be_written_but_the_file(network, need_tool, checkout):
    """A read-only installation, temporary folder and home."""
    net = network()
    home = Path.home()
    inside = (
        f"for folder in {checkout} {home} /tmp /var /usr; do mount --bind $folder $folder"
        " && mount -o remount,bind,ro $folder || exit 99; done;"
        f" {' '.join(COMMAND)} left --duration 100ms -w -"
    )
    command = ["ip", "netns", "exec", net.name, need_tool("unshare"), "-m", "sh", "-c", inside]
    done = subprocess.run(command, capture_output=True, timeout=300, cwd="/")
    assert done.returncode == 0, done.stderr
    assert b"0 packets written" in done.stderr
    assert done.stdout.startswith(b"\n\r\r\n")


@pytest.mark.thorough
def test_wakeups_are_few(network):
    """An idle capture sleeps: it takes little processor time."""
    net = network()
    capture = Capturing(net, "left")
    tasks = Path(f"/proc/{capture.process.pid}/task")

    def wakeups() -> tuple[float, int]:
        texts = [(task / "status").read_text() for task in tasks.iterdir()]
        counts = (
            re.search(r"^voluntary_ctxt_switches:\s*(\d+)", text, re.MULTILINE) for text in texts
        )
        return time.monotonic(), sum(int(count[1]) for count in counts if count)

    begin, before = wakeups()
    time.sleep(1)
    end, after = wakeups()
    capture.end()
    assert after - before < 40 * (end - begin)  # however long this process was paused


# `capture --annotate`: comments as tshark reads them; without them nothing is lost.


def verdicts(path: Path) -> Counter[str]:
    words = ["-Y", "rocescope", "-T", "fields", "-e", "rocescope.verdict"]
    return Counter(tshark_annotating("-r", str(path), *words))


def total(path: Path, name: str) -> int:
    flows = analyze([str(path)], AnalyzeOptions()).flows
    return sum(getattr(flow, name) or 0 for flow in flows)


@pytest.mark.thorough
def test_the_file_has_the_verdicts_of_its_analysis(network, tmp_path, need_tool):
    """Reordered packets of Soft-RoCE, replayed over the interface; the capture gives up root."""
    need_tool("tshark")
    net, path = network(), tmp_path / "out.pcapng"
    raw = tmp_path / "raw.pcapng"  # the capture keeps this name when the other one is taken
    path.touch()
    os.link(path, raw)
    sent = read([data("i03_write_reorder5_AtoB.atB")])[0][:4000]
    capture = Capturing(net, "left", "-w", str(path), "--annotate")
    net.send(sent)
    assert capture.end() == 0, capture.said
    assert not os.path.samefile(path, raw)
    assert read([path])[0] == read([raw])[0]
    found = verdicts(path)
    assert found["reordered"] == total(raw, "reordered_packets") > 50
    assert found["retransmitted"] == total(raw, "retransmitted_packets") > 50
    assert f"{found.total():,} of {len(read([raw])[0]):,} frames have a comment" in capture.said
    assert not verdicts(raw)
    assert sorted(tmp_path.iterdir()) == [path, raw]


@pytest.mark.thorough
def test_a_link_stays_and_what_was_captured_on_another_port_is_judged(network, tmp_path, need_tool):
    need_tool("tshark")
    net, link = network(), tmp_path / "link.pcapng"
    link.symlink_to("file.pcapng")
    capture = Capturing(
        net, "left", "-w", str(link), "--annotate", "--udp-port", "4800", "--filter", "psn < 5"
    )
    for psn in (0, 1, 4, 2, 3, 5):
        net.send([ethernet(ipv4(udp(bth(psn) + bytes(68), dport=4800)))])
    assert capture.end(signal.SIGTERM) == 0, capture.said
    assert os.readlink(link) == "file.pcapng"
    assert verdicts(link) == {"ahead": 1, "reordered": 2}


@pytest.mark.thorough
def test_a_full_disk_leaves_the_capture_as_it_is(network, tmp_path):
    net, disk = network(), tmp_path / "disk"
    disk.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", str(disk)], check=True)
    try:
        path = disk / "out.pcapng"
        capture = Capturing(net, "left", "-w", str(path), "--annotate", "--count", "300")
        sent = roce_frames(300)
        net.send(sent)
        assert capture.wait() == 1
        assert f"{path} has all packets, but no comments" in capture.said
        assert capture.said.endswith(f"cannot write {path}: no space left on device\n")
        assert read([path])[0] == [frame[:128] for frame in sent]
        assert list(disk.iterdir()) == [path]
    finally:
        subprocess.run(["umount", str(disk)], check=True)


@pytest.mark.thorough
def test_no_packet_is_no_error(network, tmp_path):
    path = tmp_path / "out.pcapng"
    capture = Capturing(network(), "left", "-w", str(path), "--annotate")
    assert capture.end() == 0
    assert read([path])[0] == [] and "comments" not in capture.said


@pytest.fixture
def captured(tmp_path):
    """A pcapng of a host."""
    path = tmp_path / "out.pcapng"
    packed = data("h01_rxe_at_the_host")
    path.write_bytes(subprocess.run(["gzip", "-dc", packed], capture_output=True).stdout)
    return path


def test_an_interrupt_before_the_file_takes_its_name_leaves_the_capture(
    captured, monkeypatch, capsys
):
    before, frames = captured.read_bytes(), len(read([captured])[0])

    def interrupted(_descriptor: int) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(os, "fsync", interrupted)
    with pytest.raises(KeyboardInterrupt):
        annotate_capture(captured, frames, (4791,), quiet=True)
    assert captured.read_bytes() == before and os.listdir(captured.parent) == [captured.name]
    assert capsys.readouterr().err == (
        f"rocescope: {captured} has all packets, but no comments: `export --pcapng` writes them\n"
    )


def test_a_file_that_others_have_changed_is_not_replaced(captured, capsys):
    before, frames = captured.read_bytes(), len(read([captured])[0])
    with pytest.raises(RocescopeError, match=f"{frames + 1} were captured"):
        annotate_capture(captured, frames + 1, (4791,), quiet=True)
    assert captured.read_bytes() == before
    annotate_capture(captured, frames, (4791,), quiet=True)
    assert captured.read_bytes() != before and len(read([captured])[0]) == frames


def test_comments_name_the_ranks_of_logs(captured, tmp_path, need_tool):
    """The queue pairs of the capture that a log names, whichever they are."""
    need_tool("tshark")
    flow = analyze([str(captured)], AnalyzeOptions()).flows[0]
    log = tmp_path / "job.log"
    log.write_text("".join(f"{line}\n" for line in nccl("b", 2, 3, 11, flow.dst, [flow.dest_qp])))
    annotate_capture(captured, len(read([captured])[0]), (4791,), True, (str(log),))
    words = ["-T", "fields", "-Y", "rocescope.dst_rank == 3", "-e", "rocescope.src_rank"]
    assert set(tshark_annotating("-r", str(captured), *words)) - {""} == {"11"}


# `rocescope capture --counters` as users run it.


def run(net: Any, *arguments: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "rocescope", "capture", "--counters", net.interface("left")]
    process = subprocess.Popen(
        [*command, *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert process.stderr is not None
    assert "counting on" in process.stderr.readline()
    return process


@pytest.mark.thorough
def test_interface_goes_away(network):
    net = network()
    process = run(net)
    net.send([packet(1)])
    net.ip("link", "del", "left")
    _, err = process.communicate(timeout=300)
    assert process.returncode == 0
    assert (
        "all interfaces have disappeared or lost their probes" in err and "1 packets counted" in err
    )


@pytest.mark.thorough
def test_command_writes_json(network, tmp_path):
    net = network()
    process = run(net, "--format", "json", "--interval", "200ms")
    net.send(traffic())
    results = [json.loads(process.stdout.readline()) for _ in range(2)]
    process.send_signal(2)
    out, err = process.stdout.read(), process.stderr.read()
    assert process.wait() == 0
    results += [json.loads(line) for line in out.splitlines()]
    assert len(results) >= 3
    assert sum(flow["packets"] for flow in results[-1]["flows"]) == len(traffic())
    assert re.search(rf"{len(traffic())} packets counted, 0 of them missing", err)
    file = tmp_path / "counters.json"
    process = run(net, "-w", str(file), "--duration", "300ms")
    net.send([packet(1)])
    assert process.communicate(timeout=300)[0] == ""
    assert json.loads(file.read_text())["flows"][0]["packets"] == 1


@pytest.mark.thorough
def test_command_prints_a_report(network):
    net = network()
    process = run(net, "--duration", "300ms")
    net.send(traffic())
    out, _ = process.communicate(timeout=300)
    assert "6 flows" in out or "3 flows carry data" in out
    assert "0x000013" in out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--counters", "--ring", "1MiB"], "cannot be combined with --ring"),
        (["--counters", "--count", "5"], "cannot be combined with --count"),
        (["--counters", "--sample", "5"], "cannot be combined with --sample"),
        (["--counters", "-w", "x.json", "--format", "table"], "writes JSON to files"),
        (["--interval", "1s"], "--interval needs --counters"),
        (["--max-flows", "100"], "--max-flows needs --counters"),
    ],
)
def test_options_that_make_no_sense(capsys, arguments, message):
    assert cli.run(["capture", "lo", *arguments]) == 2
    said = capsys.readouterr().err
    assert message in said
    assert len(said.splitlines()) == 1


@pytest.mark.thorough
def test_every_format_takes_it(network):
    net = network()
    with Counted(net) as counted:
        net.send(traffic())
    for name in ("json", "csv", "parquet", "arrow"):
        assert encode(counted.analysis, name)
