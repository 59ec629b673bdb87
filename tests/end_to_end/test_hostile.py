"""Odd inputs, closed streams, signals: one clear line and an exit code, never a traceback."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import struct
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from examples import first
from factories import Frame, Pcapng, pcap_bytes
from tui_driver import drive, text_of
from waiting import until

from rocescope import cli
from rocescope.analyzer.measures.conformance.options import ConformanceOptions
from rocescope.analyzer.pipeline.captures import analyze
from rocescope.analyzer.pipeline.options import AnalyzeOptions
from rocescope.tui.exports import analysis_file
from rocescope.tui.session.session import Session

# Odd inputs, closed streams, signals: one clear line and an exit code, never a traceback.

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
    for options in ("", "--format json", "--format csv"):
        done = shell(f"rocescope analyze {small} {options} >&-")
        assert done.returncode == 1
        assert "cannot write standard output: bad file descriptor" in one_line(done.stderr)
    done = shell(f"rocescope analyze {small} -o {small}.json >&-")
    assert (done.returncode, done.stderr) == (0, "")
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
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_signals_in_the_middle(small: Path, number: signal.Signals) -> None:
    """Both end a followed file, which ends in no other way."""
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
    assert process.returncode == 0
    assert len(out.splitlines()) == 2
    assert "Traceback" not in err and "interrupted" not in err


@pytest.mark.parametrize(
    ("ignoring", "number", "code"),
    [("", "INT", 130), ("", "TERM", 143), ("trap '' INT; ", "TERM", 143)],
)
def test_signals_before_the_end_of_a_pipe(
    small: Path, ignoring: str, number: str, code: int
) -> None:
    """What was read is reported; a shell starts background jobs with SIGINT ignored."""
    process = subprocess.Popen(
        ["bash", "-c"]
        + [f"{ignoring}exec {sys.executable} -m rocescope analyze - -f csv --progress json"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert process.stdin and process.stderr
    process.stdin.write(small.read_bytes())
    process.stdin.flush()
    assert any(b'"packets": 20' in line for line in process.stderr)
    process.send_signal(signal.Signals[f"SIG{number}"])
    process.wait(300)
    out, err = process.communicate()
    assert process.returncode == code
    assert len(out.splitlines()) == 2
    assert err.splitlines()[-1].startswith(b"rocescope: interrupted; the report covers")


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


# Captures of a few kB that once took minutes or gigabytes: a report in bounded memory.

MEGABYTES = 400
"""Largest memory of a run; the kinds took 854 MB to more than 9 GB."""
# ru_maxrss would begin with the memory of the test process, which it is forked from.
ANALYZED = """
import pathlib, re, sys
from rocescope import cli
code = cli.run(["analyze", "--progress", "none", "--format", "json", sys.argv[1]])
status = pathlib.Path("/proc/self/status").read_text()
peak = int(re.search("VmHWM:[^0-9]*([0-9]+)", status)[1]) // 1024
print(f"peak {peak} MB", file=sys.stderr)
sys.exit(code)
"""
READ_IN_PART = "could not be read completely; the report covers the rest"
CAPTURES = {
    "bomb.pcap": (4, None, READ_IN_PART),
    "many_taps.pcapng": (0, 800, None),
    "most_interfaces.pcapng": (0, 300, None),
    "names.pcapng": (0, 60, None),
    "owner_comments.pcapng": (0, 20, None),
    "ranks.pcapng": (0, 20, None),
    "set_back.pcap": (0, 100, None),
    "wild_time.pcapng": (0, 60, None),
    "zeros.pcap": (4, 1, READ_IN_PART),
}
"""Exit code, RoCE packets (None: a part of them) and the message of each."""


def test_each_capture_has_its_outcome(data: Path) -> None:
    found = {path.name.removesuffix(".zst") for path in (data / "hostile").glob("*.zst")}
    assert found == CAPTURES.keys()


@pytest.mark.parametrize("name", first(4, CAPTURES))
def test_it_ends_with_what_was_read(data: Path, name: str) -> None:
    code, packets, message = CAPTURES[name]
    path = data / "hostile" / f"{name}.zst"
    assert path.stat().st_size < 20_000
    done = subprocess.run(
        [sys.executable, "-c", ANALYZED, str(path)], capture_output=True, text=True, check=False
    )
    *lines, peak = done.stderr.splitlines()
    lines = [line for line in lines if "compiling kernels" not in line]
    assert done.returncode == code, done.stderr
    assert lines == ([] if message is None else [f"rocescope: {name}.zst {message}"])
    assert int(peak.split()[1]) < MEGABYTES
    (capture,) = json.loads(done.stdout)["captures"]
    assert capture["roce_packets"] == packets or (packets is None and capture["roce_packets"] > 0)


# Names from outside in every output: none steers a terminal, a browser or a spreadsheet.

NAMES = {
    "lines": "a\nSECOND\tb\rc",
    "escape": "\x1b]0;x\x07",
    "C1 control": "a\x9b2Jb",
    "delete": "a\x7fb",
    "direction": "\u202egnp\u2066x\u200f",
    "end of markup": "[/]",
    "link": "[link=http://x]y[/link]",
    "formula": "=cmd|'x'!A0",
    "page": "<script>alert(1)</script>",
}
COLOUR = re.compile(r"\x1b\[[0-9;]*m")


@pytest.fixture(params=list(NAMES.values()), ids=list(NAMES))
def named(request: pytest.FixtureRequest, tmp_path: Path) -> dict[str, str]:
    """A capture and a fabric: names of the file, its interfaces, an owner, a host, a switch."""
    name: str = request.param
    path = tmp_path / f"{name.replace('/', '|')}.pcapng"
    owner = f"owner: QP 0x000012 at 11.0.0.1: pid 7 {name}, rank 3"
    many = Pcapng().section(comment=owner).interface(name=name).interface(name=f"{name}2")
    for i in range(30):
        many.enhanced(TIME_NS + i * 9_000, packet(i))
        if i % 4:
            many.enhanced(TIME_NS + i * 9_000 + 500, packet(i), interface=1)
    path.write_bytes(many.bytes())
    fabric = tmp_path / "fabric.json"
    assert cli.run(["fabric", "leaf-spine:leaves=2,spines=2,hosts=1", "-o", str(fabric)]) == 0
    text = fabric.read_text()
    for known in ("leaf1", "host1", "spine2"):
        text = text.replace(f'"{known}"', json.dumps(f"{name}{known}"))
    fabric.write_text(text)
    missing = tmp_path / f"{name.replace('/', '|')}-missing.pcap"
    empty = tmp_path / f"{name.replace('/', '|')}.txt"
    empty.touch()
    places = {"CAP": path, "FABRIC": fabric, "MISSING": missing, "EMPTY": empty}
    return {"NAME": name} | {word: str(place) for word, place in places.items()}


COMMANDS = [
    "analyze CAP",
    "analyze CAP --brief",
    "analyze CAP --color always",
    "analyze CAP --format json",
    "analyze CAP --format csv",
    "analyze CAP --fabric FABRIC",
    "analyze MISSING",
    "analyze EMPTY",
    "check CAP",
    "check CAP --format json",
    "check CAP --format csv",
    "compare CAP CAP",
    "compare CAP CAP --format json",
    "fabric FABRIC",
    "fabric FABRIC --format json",
    "fabric FABRIC --paths NAME,NAME",
    "fabric NAME",
    "fabric CAP",
    "replay CAP --fabric FABRIC",
    "replay CAP --fabric FABRIC --format json",
    "replay --pattern all-to-all --fabric FABRIC",
    "sweep CAP --fabric FABRIC --seeds 2",
    "sweep --pattern all-to-all --fabric FABRIC --seeds 2 --format json",
    "trace CAP --fabric FABRIC",
    "trace CAP --fabric FABRIC --format json",
    "discover MISSING",
    "discover NAME",
    "export CAP -o MISSING.NAME",
    "analyze CAP --tap NAME=NAME",
    "analyze CAP --filter NAME",
]


@pytest.mark.thorough
@pytest.mark.parametrize("command", COMMANDS)
def test_no_command_prints_them_raw(
    named: dict[str, str], capfd: pytest.CaptureFixture[str], command: str
) -> None:
    capfd.readouterr()
    words = [_filled(word, named) for word in command.split()]
    with suppress(SystemExit):
        cli.run(words)
    out, err = capfd.readouterr()
    for line in COLOUR.sub("", out + err).splitlines():
        assert line.isprintable(), (command, line)
        assert not line.lstrip().startswith("SECOND"), (command, line)
    assert "internal error" not in err
    assert "\x1b]8" not in out
    if "csv" in command:
        assert not re.search(r'(^|,)"?[=+@]', out, re.MULTILINE)
    elif "json" in command and out:
        json.loads(out)


def _filled(word: str, named: dict[str, str]) -> str:
    return re.sub("CAP|FABRIC|MISSING|EMPTY|NAME", lambda found: named[found[0]], word)


@pytest.mark.parametrize("key", first(2, ["1", "2", "3", "4", "7", "8", "D"]))
def test_no_screen_shows_them_raw(named: dict[str, str], key: str) -> None:
    for line in drive([Path(named["CAP"])], [key], look=text_of):
        assert line.isprintable(), line


def test_no_page_runs_them(named: dict[str, str]) -> None:
    session = Session.open([named["CAP"]])
    session.start()
    try:
        until(lambda: not session.running)
        page = analysis_file(session, ".html").decode()
    finally:
        session.close()
    assert "<script" not in page
    assert all(line.isprintable() for line in page.splitlines())
