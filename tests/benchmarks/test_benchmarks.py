"""Figures outside their bands end a reproduction with exit code 1."""

from __future__ import annotations

import io
import re
import struct
import subprocess
import sys
import zlib
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path

import before_after
import churn
import dpkt
import generate
import hashing
import numpy as np
import pytest
from bands import Bands
from measure import CommandFailed, Cost, alternately, median, run

# Figures outside their bands end a reproduction with exit code 1.


def test_figures_within_their_bands(capsys: pytest.CaptureFixture[str]) -> None:
    bands = Bands()
    bands.within("a", 1.0, 1.0, 2.0)
    bands.holds("b is larger", True)
    with pytest.raises(SystemExit) as ended:
        bands.end()
    assert (ended.value.code, capsys.readouterr().out) == (0, "")


@pytest.mark.parametrize("value", [0.9, 2.1, float("nan")])
def test_a_figure_outside(value: float, capsys: pytest.CaptureFixture[str]) -> None:
    bands = Bands()
    bands.within("a", value, 1.0, 2.0)
    bands.holds("b is larger", False)
    with pytest.raises(SystemExit) as ended:
        bands.end()
    assert ended.value.code == 1
    assert capsys.readouterr().out.count("OUTSIDE ITS BAND") == 2


# Memory of an analysis in which queue pairs come and go.


@pytest.mark.thorough
def test_memory_is_bounded_by_the_flows_that_are_active():
    """10,000 new queue pairs a minute: the limit that an hour of them keeps, too. In a process of
    its own, because Linux counts the memory of a parent into the peak of its child.
    """
    command = [sys.executable, churn.__file__, "6", "5000"]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    ended, peak = map(int, re.search(r"(\d+) flows ended, peak (\d+) MB", done.stdout).groups())
    assert ended > 40_000
    assert peak < 400


@pytest.mark.thorough
@pytest.mark.parametrize("mode", ["live", "session"])
def test_live_sums_are_exact_and_the_worst_stay_listed(mode):
    """`measured` compares them; here flows leave memory in the minutes after the first."""
    command = [sys.executable, churn.__file__, "3", "5000", mode]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    ended, peak = map(int, re.search(r"(\d+) flows ended, peak (\d+) MB", done.stdout).groups())
    assert ended > 0
    assert peak < 1000


@pytest.mark.thorough
def test_no_command_takes_much_more_memory_than_recorded():
    """A step that needs more on purpose records it: `before_after.py --record`."""
    command = [sys.executable, before_after.__file__, "--check"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count(" of the recorded") == len(before_after.WORKS)


def test_more_memory_than_recorded_is_noticed():
    """Recorded is what it takes, and then nothing; in a process of its own, as above."""
    code = """
import before_after as b
b.IMPORTS = "-c", "pass"
works = [b.Work("schema", lambda folder: ["schema"])]
imports, found = b.peaks(works)
print(b.check(works, {"schema": found["schema"] - imports}), b.check(works, {"schema": 0.0}))
"""
    folder = Path(before_after.__file__).parent
    done = subprocess.run(
        [sys.executable, "-c", code], check=True, capture_output=True, text=True, cwd=folder
    )
    assert done.stdout.splitlines()[-1] == "0 1"


# The benchmark captures are valid, clean RoCEv2 traffic, as tshark, tcpdump and zlib see it.


def capture(packets: int, **options: int) -> bytes:
    file = io.BytesIO()
    generate.write(file, packets, **options)
    return file.getvalue()


def frames_of(pcap: bytes) -> list[tuple[float, bytes]]:
    return list(dpkt.pcap.Reader(io.BytesIO(pcap)))


# Values computed by hand from the kernel's rdma_calc_flow_label and rdma_flow_label_to_udp_sport.
@pytest.mark.parametrize(
    ("local", "remote", "port"),
    [
        (0x11, 0x12, 49458),
        (211, 212, 61118),
        (0x1000, 0x1001, 53264),
        (0xABCDEF, 0x123456, 50120),
    ],
)
def test_source_port_is_the_one_linux_derives(local: int, remote: int, port: int) -> None:
    ports = generate.linux_source_port(np.array([local, remote]), np.array([remote, local]))
    assert ports.tolist() == [port, port]


def test_tshark_sees_writes_of_eight_packets_in_order(
    tmp_path: Path, need_tool: Callable[[str], str]
) -> None:
    path = tmp_path / "clean.pcap"
    path.write_bytes(capture(6_000, connections=12, snap=96))
    names = "ip.src ip.checksum.status udp.srcport infiniband.bth.opcode infiniband.bth.destqp"
    names += " infiniband.bth.psn infiniband.aeth.msn infiniband.reth.dmalen ip.len udp.length"
    names += " ip.dsfield.ecn frame.len"
    arguments = [
        need_tool("tshark"),
        "-r",
        str(path),
        "-T",
        "fields",
        "-o",
        "ip.check_checksum:TRUE",
    ]
    for name in names.split():
        arguments += ["-e", name]
    lines = subprocess.run(arguments, capture_output=True, text=True, check=True).stdout
    rows = [line.split("\t") for line in lines.splitlines()]
    assert len(rows) == 6_000

    next_psn: dict[str, int] = {}
    ports = defaultdict(set)
    opcodes = defaultdict(list)
    ce = acks = 0
    for _, checksum, port, opcode, qp, psn, _, dma, ip_len, udp_len, ecn, frame_len in rows:
        assert checksum == "1"  # good
        assert int(ip_len) + 14 == int(frame_len) == int(udp_len) + 34
        if int(opcode) == generate.ACK:
            acks += 1
            continue
        ports[qp].add(port)
        opcodes[qp].append(int(opcode))
        assert int(psn) == next_psn.get(qp, int(psn))
        next_psn[qp] = (int(psn) + 1) % (1 << 24)
        assert dma == ("8192" if int(opcode) == generate.WRITE_FIRST else "")
        ce += ecn == "3"

    assert len(ports) == 12
    assert sorted(len(p) for p in ports.values()) == [1] * 6 + [8] * 6
    for sequence in opcodes.values():
        message = [generate.WRITE_FIRST, *[generate.WRITE_MIDDLE] * 6, generate.WRITE_LAST]
        assert sequence == (message * len(sequence))[: len(sequence)]
    assert 600 < acks < 6_000 / 9 + 12
    assert abs(ce - (6_000 - acks) / 97) < 12


def test_icrc_of_whole_frames_is_right() -> None:
    for _, frame in frames_of(capture(200, connections=4, snap=0)):
        ip = bytearray(frame[14:-4])
        for i in (1, 8, 10, 11, 26, 27, 32):
            ip[i] = 0xFF
        assert struct.unpack("<I", frame[-4:]) == (zlib.crc32(b"\xff" * 8 + ip),)


def test_the_same_seed_gives_the_same_bytes_and_another_seed_does_not() -> None:
    assert capture(500) == capture(500)
    assert capture(500) != capture(500, seed=2)


def test_chunks_join_without_a_seam(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(generate, "CHUNK_BYTES", 70 * 64 * 3)  # three packets of each connection
    records = frames_of(capture(3_333, snap=70))
    times = [time for time, _ in records]
    assert len(records) == 3_333
    assert times == sorted(times)
    psns = defaultdict(list)
    for _, frame in records:
        if frame[42] != generate.ACK:
            psns[frame[47:50]].append(int.from_bytes(frame[51:54]))
    assert len(psns) == 64
    for sequence in psns.values():
        assert sequence == [(sequence[0] + i) % (1 << 24) for i in range(len(sequence))]


def test_a_snap_length_that_cuts_headers_is_refused() -> None:
    with pytest.raises(ValueError, match="snap must be 0 or 70 to 1098"):
        capture(1, snap=60)


# The peers of the hash benchmark choose the members that the models choose.


@pytest.mark.parametrize("model", hashing.PEERS)
def test_peers_agree(model, monkeypatch):
    few = {name: (peer, 2) for name, (peer, _) in hashing.PEERS[model].items()}
    monkeypatch.setitem(hashing.PEERS, model, few)
    measured = hashing.row(model, hashing.some_keys().take(slice(40)), seeds=3, rounds=1)
    assert set(measured.peers) == set(few)
    assert measured.millions > 0


def test_a_peer_that_disagrees_is_told(monkeypatch):
    wrong = hashing.each(lambda row, seed: 1)
    monkeypatch.setitem(hashing.PEERS, "crc32", {"zlib": (wrong, 1)})
    with pytest.raises(SystemExit, match="crc32: zlib chose other members"):
        hashing.row("crc32", hashing.some_keys(), seeds=3, rounds=1)


# The benchmark's stop-watch: times and memory belong to the child, failures have their reason.


def python(code: str, **options: bool) -> Cost:
    return run([sys.executable, "-c", code], **options)


def test_waiting_takes_wall_time_and_no_cpu_time() -> None:
    cost = python("import time; time.sleep(0.5)")
    assert cost.wall >= 0.5
    assert cost.cpu < 0.5


def test_peak_memory_is_what_the_child_touched(checkout: Path) -> None:
    # In a process of its own: this one is large by now, see `run`.
    measuring = """
import sys
from measure import run
print(run([sys.executable, "-c", "b = b'x' * 300_000_000"]).peak_bytes)
"""
    command = [sys.executable, "-c", measuring]
    folder = checkout / "benchmarks"
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=True)
    assert 300e6 < int(done.stdout) < 330e6


def test_one_core_means_one_core() -> None:
    cost = python("import os; print(len(os.sched_getaffinity(0)))", one_core=True, keep_output=True)
    assert cost.output == "1\n"


def test_a_failing_command_says_what_it_said() -> None:
    with pytest.raises(CommandFailed, match=r"exit 3: out of coffee"):
        python("import sys; print('out of coffee', file=sys.stderr); sys.exit(3)")


def test_sides_take_turns_and_each_figure_has_its_own_median() -> None:
    order = []

    def side(name: str) -> Cost:
        order.append(name)
        return Cost(len(order), 10 - len(order), len(order) * 100)

    ours, peer = alternately(3, lambda: side("ours"), lambda: side("peer"))
    assert order == ["ours", "peer"] * 3
    assert median(ours) == Cost(3, 7, 300)
    assert median(peer) == Cost(4, 6, 400)
    assert ours[2].less(ours[0]) == Cost(4, -4, 500)
