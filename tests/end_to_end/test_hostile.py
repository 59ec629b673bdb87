"""Odd inputs, closed streams, signals: one clear line and an exit code, never a traceback."""

from __future__ import annotations

import os
import re
import shutil
import signal
import struct
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from examples import first
from factories import Frame, pcap_bytes

from rocescope import cli
from rocescope.analyzer.measures.conformance.options import ConformanceOptions
from rocescope.analyzer.pipeline.captures import analyze
from rocescope.analyzer.pipeline.options import AnalyzeOptions

TIME_NS = 1_700_000_000_000_000_000
NOBODY = 65534


def packet(psn: int, qp: int = 0x12, source: int = 1) -> bytes:
    bth = struct.pack(">BBHII", 4, 0, 0xFFFF, qp, psn & 0xFFFFFF) + bytes(20)
    udp = struct.pack(">HHHH", 50000, 4791, 8 + len(bth), 0) + bth
    ip = struct.pack(">BBHHHBBH", 0x45, 0, 20 + len(udp), psn & 0xFFFF, 0x4000, 64, 17, 0)
    hosts = struct.pack(">II", 0x0A000000 + source, 0x0B000001)
    return bytes(12) + b"\x08\x00" + ip + hosts + udp


def capture(count: int, step_ns: int = 1000, **options: Any) -> bytes:
    return pcap_bytes((Frame(TIME_NS + i * step_ns, packet(i)) for i in range(count)), **options)


@pytest.fixture
def small(tmp_path: Path) -> Path:
    path = tmp_path / "small.pcap"
    path.write_bytes(capture(20))
    return path


ANALYZE = ("analyze", "--progress", "none")
"""A first run would also say on standard error that it compiles."""


def run(*arguments: object, **settings: Any) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "rocescope", *map(str, arguments)]
    settings = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True} | settings
    return subprocess.run(command, timeout=300, check=False, **settings)


def shell(line: str) -> subprocess.CompletedProcess[str]:
    line = line.replace("rocescope analyze", f"{sys.executable} -m rocescope {' '.join(ANALYZE)}")
    return subprocess.run(["bash", "-c", line], capture_output=True, text=True, timeout=300)


def one_line(text: str) -> str:
    assert text.startswith("rocescope: ") and text.count("\n") == 1, text
    assert "internal error" not in text
    return text


ARP = bytes(12) + b"\x08\x06" + bytes(46)
HEADER_CLAIMING_2_GB = struct.pack("<IIII", 1, 0, 0x7FFFFFFF, 0x7FFFFFFF)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "is empty (0 bytes)"),
        (b"\x7fELF" + bytes(60), "it is a program (ELF)"),
        (b'{"flows": []}', "it is JSON text"),
        (pcap_bytes([]), "no frame in it"),
        (pcap_bytes([]) + HEADER_CLAIMING_2_GB + bytes(99), "impossible record at byte 24"),
        (pcap_bytes([Frame(TIME_NS, ARP)] * 3), "3 ARP"),
        (pcap_bytes([Frame(TIME_NS, b"x")], link_type=247), "native InfiniBand capture"),
        (pcap_bytes([Frame(TIME_NS, b"", 0)] * 9), "9 truncated in the link header"),
    ],
)
def test_files_that_hold_no_roce(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], content: bytes, message: str
) -> None:
    path = tmp_path / "x.pcap"
    path.write_bytes(content)
    code = cli.run([*ANALYZE, str(path)])
    out, err = capfd.readouterr()
    assert (code, out) == (4, "")
    assert message in one_line(err)


def test_paths_that_are_no_file(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    missing = tmp_path / "missing"
    for path, message in ((tmp_path, "contains no capture"), (missing, "no such file")):
        code = cli.run([*ANALYZE, str(path)])
        out, err = capfd.readouterr()
        assert (code, out) == (4, "")
        assert message in one_line(err)


@pytest.mark.usefixtures("root")
def test_a_file_of_somebody_else(small: Path) -> None:
    small.chmod(0o600)
    code = (
        "import os, sys, rocescope.analyzer.pipeline.captures; from rocescope import cli;"
        f"os.seteuid({NOBODY}); sys.exit(cli.run([*{ANALYZE}, sys.argv[1]]))"
    )
    command = [sys.executable, "-c", code, str(small)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert (done.returncode, done.stdout) == (4, "")
    assert "permission denied" in one_line(done.stderr)


@pytest.mark.thorough
def test_standard_streams_that_are_full_or_closed(small: Path) -> None:
    for options in ("", "--format json", "--format csv"):
        done = shell(f"rocescope analyze {small} {options} > /dev/full")
        assert done.returncode == 1
        assert "cannot write standard output: no space left" in one_line(done.stderr)
    assert shell(f"rocescope analyze {small} >&-").stderr == ""
    done = shell(f"rocescope analyze {small}.missing 2>&-")
    assert (done.returncode, done.stdout) == (4, "")
    done = shell("rocescope analyze - <&-")
    assert done.returncode == 4
    assert "standard input is closed" in one_line(done.stderr)
    done = shell("rocescope analyze - </dev/null")
    assert done.returncode == 4
    assert "standard input is empty" in one_line(done.stderr)


@pytest.mark.thorough
@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_a_reader_that_leaves_in_the_middle(data: Path, unbuffered: str) -> None:
    """PYTHONUNBUFFERED makes writes partial: what is left must not be taken for written."""
    process = subprocess.Popen(
        [sys.executable, "-m", "rocescope", *ANALYZE, "--window", "10us", "--format", "json"]
        + [str(data / "c40_rc_oddities_ipv4.atB.pcap")],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env={**os.environ, "PYTHONUNBUFFERED": unbuffered},
    )
    assert process.stdout and process.stderr
    assert process.stdout.read(100)
    process.stdout.close()
    assert process.stderr.read() == b""
    assert process.wait(300) == 141


@pytest.mark.thorough
def test_a_pipe_and_standard_input_are_captures(small: Path) -> None:
    for line in (f"cat {small} | rocescope analyze -", f"rocescope analyze <(cat {small})"):
        done = shell(line)
        assert (done.returncode, done.stderr) == (0, "")
        assert "20 RoCE packets" in done.stdout


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("number", "code"), [(signal.SIGINT, 0), (signal.SIGTERM, -signal.SIGTERM)]
)
def test_signals_in_the_middle(small: Path, number: signal.Signals, code: int) -> None:
    process = subprocess.Popen(
        [sys.executable, "-m", "rocescope", "analyze", "--follow", str(small)]
        + ["--format", "csv", "--progress", "json"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stderr
    assert any('"packets": 20' in line for line in process.stderr)  # or it ended before
    process.send_signal(number)
    out, err = process.communicate(timeout=300)
    assert process.returncode == code
    assert "Traceback" not in err
    if number == signal.SIGINT:
        assert len(out.splitlines()) == 2
        assert "interrupted" not in err


def test_clocks_that_jump_by_years(tmp_path: Path) -> None:
    path = tmp_path / "x.pcap"
    year = 365 * 86_400 * 10**9
    frames = [Frame((i % 3) * 20 * year + i * 1000, packet(i)) for i in range(300)]
    path.write_bytes(pcap_bytes(frames))
    analysis = analyze([str(path)], AnalyzeOptions(window_ns=1))
    assert sum(analysis.series.packets) == 300 == sum(f.packets for f in analysis.flows)
    assert analysis.captures[0].out_of_order_frames == 100 - 1


@pytest.mark.thorough
def test_three_hundred_taps(tmp_path: Path, small: Path) -> None:
    paths = [tmp_path / f"tap{i}.pcap" for i in range(300)]
    for path in paths:
        shutil.copy(small, path)
    analysis = analyze([str(path) for path in paths], AnalyzeOptions(path_by="tap"))
    assert len(analysis.captures) == 300
    (flow,) = analysis.flows
    assert (flow.packets, flow.tap_copies) == (20, 20 * 299)
    assert set(flow.taps.values()) == {20}


@pytest.mark.thorough
def test_too_many_flows_leave_memory_or_end_with_advice(tmp_path: Path) -> None:
    path = tmp_path / "x.pcap"
    path.write_bytes(pcap_bytes(Frame(TIME_NS + i, packet(0, source=i)) for i in range(2000)))
    result = analyze([str(path)], AnalyzeOptions(max_flows=1900))
    assert result.complete
    told = "too many flows for memory: 525 idle flows removed from memory, 1475 flows are"
    assert result.warnings[0].startswith(told)
    assert sum(flow.packets for flow in result.flows) + result.left.packets == 2000
    path.write_bytes(pcap_bytes(Frame(TIME_NS + i, packet(0, source=i)) for i in range(50)))
    conformance = ConformanceOptions()  # its checks span all flows of a host
    result = analyze([str(path)], AnalyzeOptions(max_flows=40, conformance=conformance))
    assert re.match(
        "ended early: more than 40 flows after 50 packets.*--filter", result.warnings[0]
    )
    assert not result.complete
    assert sum(flow.packets for flow in result.flows) == 50  # what was read
    result = analyze([str(path)], AnalyzeOptions(max_flows=50))
    assert (result.complete, result.warnings, len(result.flows)) == (True, [], 50)


@pytest.mark.thorough
def test_file_names_that_are_not_utf_8(tmp_path: Path) -> None:
    path = os.fsencode(tmp_path) + b"/x\xff.pcap"
    with open(path, "wb") as file:
        file.write(capture(20))
    for format in ("table", "json", "csv", "parquet", "arrow"):
        done = run(*ANALYZE, "--format", format, os.fsdecode(path), text=False)
        assert (done.returncode, done.stderr) == (0, b"")
    done = run("export", "--progress", "none", os.fsdecode(path), "-o", tmp_path / "x.parquet")
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.thorough
@pytest.mark.parametrize("columns", first(2, ["1", "x", "-1", "0", "9" * 5000]), ids=len)
def test_widths_that_are_none(small: Path, columns: str) -> None:
    for command in ((*ANALYZE, small), ("--help",), ("analyze", "--help")):
        done = run(*command, env={**os.environ, "COLUMNS": columns})
        assert (done.returncode, done.stderr) == (0, "")
        assert len(done.stdout) > 500
        assert max(map(len, done.stdout.splitlines())) <= 110


@pytest.mark.thorough
@pytest.mark.parametrize("command", ["--help", "fabric --help", "doctor"])
def test_readers_that_leave_at_once(command: str) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    done = run(*command.split(), stdout=writer)
    os.close(writer)
    assert (done.returncode, done.stderr) == (141, "")


@pytest.mark.parametrize("option", ["--window", "--top", "--link-rate", "--filter"])
def test_numbers_with_thousands_of_digits(small: Path, option: str) -> None:
    done = run(*ANALYZE, small, option, f"qp == {'9' * 5000}")
    assert done.returncode == 2
    assert "too many digits" in one_line(done.stderr)


NINES = "9" * 5000
LINK = "{a: h1, b: leaf, rate: 400G}"
FABRIC = f"nodes: {{leaf: {{kind: switch}}, h1: {{kind: host}}}}\nlinks: [{LINK}]"


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("command", "content", "message"),
    [
        ("fabric IT", FABRIC.replace("400", NINES), "is not a rate"),
        ("check SMALL --host 10.0.0.1 --counters IT IT", f"rx: {NINES}", "too many digits"),
        ("check SMALL --host 10.0.0.1 --counters IT IT", '{"a":' * 100_000, "nested too deeply"),
        ("compare IT IT", '{"a":' * 100_000, "nested too deeply"),
    ],
    ids=["rate", "counter", "deep counters", "deep result"],
)
def test_text_without_measure(
    tmp_path: Path, small: Path, command: str, content: str, message: str
) -> None:
    """Numbers that Python refuses to read, and nesting that it cannot follow."""
    path = tmp_path / "x.json"
    path.write_text(content)
    places = {"IT": path, "SMALL": small}
    done = run(*(places.get(word, word) for word in command.split()))
    assert done.returncode in (2, 4)
    assert message in one_line(done.stderr)


def test_kernels_are_compiled_whatever_the_environment_says(small: Path) -> None:
    done = run(*ANALYZE, small, env={**os.environ, "NUMBA_DISABLE_JIT": "1"})
    assert (done.returncode, done.stderr) == (0, "")


def test_a_fabric_without_end() -> None:
    done = run("fabric", "/dev/zero")
    assert done.returncode == 2
    assert "/dev/zero is larger than" in one_line(done.stderr)
