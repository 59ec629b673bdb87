"""`rocescope check` on captures: verdict, exit code, formats, one clear line for mistakes."""

from __future__ import annotations

import csv
import io
import json
import struct
from pathlib import Path

import jsonschema
import pytest
from captures import DATA, truth
from factories import START_NS, Frame, write_pcap

from rocescope import cli

CLEAN = DATA / "i01_write_loss0.5_AtoB.atB.pcap.gz"
A, B = bytes([10, 0, 0, 1]), bytes([10, 0, 0, 2])
WRITE_MIDDLE, WRITE_LAST, ACK = 0x07, 0x08, 0x11


def roce(
    number: int, source: bytes, to: bytes, qp: int, opcode: int, psn: int, rest: bytes, flags=0
):
    """A frame written byte by byte: Ethernet, IPv4, UDP 4791, BTH."""
    bth = struct.pack("!BBHI I", opcode, 0x40, 0xFFFF, qp, flags << 24 | psn) + rest + bytes(4)
    udp = struct.pack("!HHHH", 50000, 4791, 8 + len(bth), 0) + bth
    ip = struct.pack("!BBHHHBBH", 0x45, 0, 20 + len(udp), number & 0xFFFF, 0x4000, 64, 17, 0)
    data = bytes(12) + b"\x08\x00" + ip + source + to + udp
    return Frame(START_NS + number * 10_000, data)


@pytest.fixture
def unanswered(tmp_path: Path) -> Path:
    """Frame 9 asks for an ACK that comes only after frame 10, the same two seconds later."""
    frames = []
    for psn in (1, 2, 3, 4, 5, 5):
        ack = struct.pack("!I", 0x1F << 24 | psn)  # as many messages
        late = 200_000 if len(frames) == 9 else 0
        number = len(frames) + 1 + late
        frames.append(roce(number, A, B, 0x11, WRITE_LAST, psn, bytes(1024), flags=0x80))
        if psn < 5 or late:
            frames.append(roce(number + 1, B, A, 0x12, ACK, psn, ack))
    return write_pcap(tmp_path / "unanswered.pcap", frames)


@pytest.fixture
def violating(tmp_path: Path) -> Path:
    """Frame 7 repeats the NAK of frame 6 for a packet that has not come since."""
    frames = []
    for psn in (1, 2, 3, 5):
        frames.append(roce(len(frames) + 1, A, B, 0x11, WRITE_MIDDLE, psn, bytes(1024)))
        if psn < 3:
            ack = struct.pack("!I", 0x1F << 24)
            frames.append(roce(len(frames) + 1, B, A, 0x12, ACK, psn, ack))
    for _ in range(2):
        nak = struct.pack("!I", 0x60 << 24)
        frames.append(roce(len(frames) + 1, B, A, 0x12, ACK, 4, nak))
    return write_pcap(tmp_path / "violating.pcap", frames)


def run(capsys, *arguments: object) -> tuple[int, str, str]:
    """Exit code, standard output and standard error of one command line."""
    # A first run would also say that it compiles.
    code = cli.run(["check", "--progress", "none", *map(str, arguments)])
    streams = capsys.readouterr()
    return code, streams.out, streams.err


def test_a_capture_that_conforms(capsys) -> None:
    code, out, _ = run(capsys, CLEAN)
    assert code == 0
    assert "No rule is violated" in out
    assert max(map(len, out.splitlines())) <= 80


def test_a_violation_names_frames_psn_rule_and_source(capsys, violating: Path) -> None:
    code, out, _ = run(capsys, violating)
    assert code == 1
    assert "nak-once: repeated NAK for PSN 4" in out
    assert "frame 8 (see 7)" in out
    assert "IBTA" in out


def test_formats(capsys, violating: Path, tmp_path: Path) -> None:
    code, out, _ = run(capsys, violating, "--format", "json")
    found = json.loads(out)
    assert code == 1
    (violation,) = found["conformance"]["violations"]
    assert (violation["frame_number"], violation["related_frame"], violation["psn"]) == (8, 7, 4)
    assert cli.run(["schema", "check"]) == 0
    jsonschema.validate(found, json.loads(capsys.readouterr().out))
    (row,) = csv.DictReader(io.StringIO(run(capsys, violating, "-f", "csv")[1]))
    assert row["rule"] == "nak-once"
    for suffix in ("parquet", "arrow", "txt"):
        assert run(capsys, violating, "-o", tmp_path / f"out.{suffix}")[0] == 1
        assert (tmp_path / f"out.{suffix}").stat().st_size


def test_analyze_can_check_too(capsys, violating: Path) -> None:
    assert cli.run(["analyze", str(violating), "--conformance"]) == 0
    assert "CONFORMANCE" in capsys.readouterr().out
    assert cli.run(["analyze", str(violating), "--format", "json"]) == 0
    assert "conformance" not in json.loads(capsys.readouterr().out)


def test_host_counters(capsys, tmp_path: Path) -> None:
    run_of, _ = truth("i01_write")
    grown = run_of["rxe_hw_counters_delta"]["B"]["rxe0"]
    before, after = tmp_path / "before.txt", tmp_path / "after.txt"
    before.write_text("link rxe0/1 " + " ".join(f"{name} 5" for name in grown))
    after.write_text("link rxe0/1 " + " ".join(f"{name} {5 + n}" for name, n in grown.items()))
    code, out, _ = run(capsys, CLEAN, "--counters", before, after, "--host", "10.0.0.2")
    assert code == 0
    assert "3 of 3 counters agree" in out
    after.write_text(after.read_text() + " rx_discards_phy 7")
    before.write_text(before.read_text() + " rx_discards_phy 5")
    _, out, _ = run(capsys, CLEAN, "--counters", before, after, "--host", "10.0.0.2")
    assert "\nrx_discards_phy of 10.0.0.2 grew by 2" in out
    code, _, err = run(capsys, CLEAN, "--counters", before, after, "--host", "10.9.9.9")
    assert (code, err.count("\n")) == (2, 1)
    assert "which holds 10.0.0.1" in err


def test_a_missing_answer_is_judged_next_to_its_host(capsys, unanswered: Path) -> None:
    assert run(capsys, unanswered)[0] == 0
    assert run(capsys, unanswered, "--at-host", "10.0.0.1")[0] == 0  # it sent the requests
    code, out, _ = run(capsys, unanswered, "--at-host", "10.0.0.2", "--format", "json")
    (violation,) = json.loads(out)["conformance"]["violations"]
    assert code == 1
    assert (violation["rule"], violation["psn"]) == ("ack-request", 5)
    assert (violation["frame_number"], violation["related_frame"]) == (9, 10)
    code, _, err = run(capsys, unanswered, CLEAN, "--at-host", "10.0.0.2")
    assert (code, err.count("\n")) == (2, 1) and "10.0.0.2=TAP" in err


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["--host", "10.0.0.1"], "must be given together"),
        (["--top", "0"], "--top"),
        (["--reaction", "soon"], "--reaction"),
        (["--counters", "/nowhere", "/nowhere", "--host", "::1"], "no such file"),
    ],
)
def test_mistakes(capsys, arguments: list[str], text: str) -> None:
    code, _, err = run(capsys, CLEAN, *arguments)
    assert code in (2, 4)
    assert err.count("\n") == 1
    assert text in err
