"""The benchmark captures are valid, clean RoCEv2 traffic, as tshark, tcpdump and zlib see it."""

from __future__ import annotations

import io
import struct
import subprocess
import zlib
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path

import dpkt
import generate
import numpy as np
import pytest


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
