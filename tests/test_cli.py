"""The command line: what goes where, exit codes, and one clear line for every mistake.

The engine is replaced here; whole runs on captures are at the end.
"""

from __future__ import annotations

import io
import json
import os
import resource
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any

import factories_results as factories
import jsonschema
import msgspec
import pytest
from factories import Frame, write_pcap
from network import roce

from rocescope import cli
from rocescope.analyzer.decode.mirrors import MirrorOptions
from rocescope.analyzer.errors import CaptureError, UnreadableInput, UsageError
from rocescope.analyzer.pipeline import captures
from rocescope.analyzer.pipeline.options import MAX_FLOWS, AnalyzeOptions, Progress
from rocescope.analyzer.summary.names import PlaneBy
from rocescope.analyzer.wire.registry import UsidFormat
from rocescope.commands.options.progress import COMPILES
from rocescope.tui.session.words import reading_words


@dataclass
class Engine:
    """Stands in for the analysis of captures: returns or raises what a test wants."""

    outcome: Any = None
    paths: list[str] = field(default_factory=list)
    options: dict[str, Any] = field(default_factory=dict)
    compiling: bool = False

    def analyze(self, paths: list[str], options: Any, progress: Any, ended: Any = None) -> Any:
        self.paths = paths
        self.options = {f.name: getattr(options, f.name) for f in fields(options)}
        if progress:
            progress(Progress("x.pcap", 50, 100, 9, 8, compiling=self.compiling))
        if isinstance(self.outcome, BaseException):
            raise self.outcome
        if options.flow_order is not None:
            flows = options.flow_order(self.outcome.flows)
            return msgspec.structs.replace(self.outcome, flows=flows)
        return self.outcome


@pytest.fixture
def engine(monkeypatch: pytest.MonkeyPatch) -> Engine:
    engine = Engine(factories.analysis())
    monkeypatch.setattr(captures, "analyze", engine.analyze)
    return engine


@dataclass
class Done:
    code: int
    out: bytes
    err: str


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Done]:
    """Run a command line in this process; neither output is a terminal."""

    def run(*arguments: str) -> Done:
        out, err = io.BytesIO(), io.StringIO()
        with monkeypatch.context() as patch:
            patch.setattr(sys, "stdout", io.TextIOWrapper(out, "utf-8", write_through=True))
            patch.setattr(sys, "stderr", err)
            patch.setenv("COLUMNS", "80")
            code = cli.run(list(arguments))
            sys.stdout.flush()
            return Done(code, out.getvalue(), err.getvalue())

    return run


def only_line(text: str) -> str:
    assert text.endswith("\n") and text.count("\n") == 1, text
    return text.rstrip("\n")


@pytest.mark.thorough
def test_json_goes_to_standard_output_and_matches_the_schema(
    engine: Engine, run: Callable[..., Done]
) -> None:
    done = run("analyze", "x.pcap", "--format", "json")
    assert (done.code, done.err) == (0, "")
    results = json.loads(done.out)
    assert next(iter(results)) == "schema_version"
    schema = json.loads(run("schema").out)
    jsonschema.Draft202012Validator.check_schema(schema)
    jsonschema.validate(results, schema)
    results["flows"][0]["packets"] = "many"
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(results, schema)


def test_options_reach_the_engine(engine: Engine, run: Callable[..., Done]) -> None:
    done = run(
        *("analyze", "--udp-port", "4792", "a.pcap", "b.pcap", "--udp-port", "4793"),
        *("--window", "2.5ms", "--path-by", "tap", "--concat", "--icrc"),
        *("--link-rate", "400G", "--dscp-priority", "26=3", "--filter", "not cnp"),
        *("--plane-by", "ev:4:2", "--usid", "48:16", "--trimmed-dscp", "12"),
        *("--flow-label", "outer"),
    )
    assert (done.code, done.err) == (0, "")
    assert engine.paths == ["a.pcap", "b.pcap"]
    assert engine.options == {
        "path_by": "tap",
        "window_ns": 2_500_000,
        "filter": "not cnp",
        "concat": True,
        "tap_names": {},
        "ethers": {},
        "rings": None,
        "follow": False,
        "udp_ports": (4791, 4792, 4793),
        "icrc": True,
        "link_rate_bits_per_second": 400_000_000_000,
        "dscp_priority": {26: 3},
        "trimmed_dscps": (12,),
        "flow_label": "outer",
        "usid": UsidFormat(48, 16),
        "plane_by": PlaneBy("ev", 4, 2),
        "mirror": None,
        "fabric": None,
        "conformance": None,
        "idle_ns": None,
        "max_flows": MAX_FLOWS,
        "flow_order": None,
        "flight_recorder": None,
        "job_logs": (),
        "nccl_inspector": None,
        "ranks": None,
    }


def test_a_dash_is_standard_input(engine: Engine, run: Callable[..., Done]) -> None:
    assert run("analyze", "-").code == 0
    assert engine.paths == ["-"]


def test_a_dash_as_output_is_standard_output(engine: Engine, run: Callable[..., Done]) -> None:
    done = run("analyze", "x.pcap", "-f", "csv", "-o", "-")
    assert (done.code, done.err) == (0, "")
    assert done.out == run("analyze", "x.pcap", "-f", "csv").out != b""


def test_flow_tables_leave_warnings_to_standard_error(
    engine: Engine, run: Callable[..., Done]
) -> None:
    engine.outcome = factories.analysis(warnings=["the capture lost 1,234 frames itself"])
    done = run("analyze", "x.pcap", "--format", "csv")
    assert only_line(done.err) == "rocescope: the capture lost 1,234 frames itself"
    assert run("analyze", "x.pcap", "--format", "json").err == ""


CAPTURED = b"captured 2023-11-14 22:13:20.000 to 22:13:21.000 UTC\n"


def test_suffix_of_the_output_decides_the_format(
    engine: Engine, run: Callable[..., Done], tmp_path: Path
) -> None:
    magic = {
        "r.json": b'{"schema_version"',
        "r.csv": b"id,src,dst,",
        "r.parquet": b"PAR1",
        "r.arrow": b"ARROW1",
        "r.txt": CAPTURED,
    }
    for name, begin in magic.items():
        done = run("analyze", "x.pcap", "-o", str(tmp_path / name))
        assert (done.code, done.out, done.err) == (0, b"", "")
        assert (tmp_path / name).read_bytes().startswith(begin)
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(magic)


def test_brief_prints_only_the_diagnosis(engine: Engine, run: Callable[..., Done]) -> None:
    done = run("analyze", "x.pcap", "--brief")
    diagnosis = b"DIAGNOSIS  1 warning, 1 note\n! spine2 drops 0.9 %"
    assert done.out.startswith(CAPTURED + diagnosis)
    assert run("analyze", "x.pcap").out.startswith(done.out)
    assert b"FLOWS" not in done.out


@pytest.mark.parametrize(
    ("severity", "code"), [("critical", 0), ("warning", 1), ("note", 1)]
)  # the worst finding is a warning
@pytest.mark.parametrize("format", ["table", "json", "csv"])
def test_fail_on_sets_the_exit_code_after_the_output(
    engine: Engine, run: Callable[..., Done], format: str, severity: str, code: int
) -> None:
    plain = run("analyze", "x.pcap", "-f", format)
    done = run("analyze", "x.pcap", "-f", format, "--fail-on", severity)
    assert (done.code, done.out, done.err) == (code, plain.out, "")
    assert plain.code == 0
    engine.outcome = factories.analysis(complete=False)
    assert run("analyze", "x.pcap", "-f", format, "--fail-on", severity).code == 130


def test_sort_orders_flows_unknown_last(engine: Engine, run: Callable[..., Done]) -> None:
    done = run("analyze", "x.pcap", "--format", "json", "--sort", "reordering_ratio")
    flows = json.loads(done.out)["flows"]
    ratios = [flow["reordering"] and flow["reordering"]["ratio"] for flow in flows]
    assert ratios == [0.08, 0.0, 0.0, 0.0, None, None]
    done = run("analyze", "x.pcap", "--format", "csv", "--sort", "src")
    assert [line.split(b",")[1] for line in done.out.splitlines()[1:3]] == [
        b"10.0.1.3",
        b"10.0.1.4",
    ]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("analyze", "no capture is given: name one or more files"),
        ("analyze --live", "no interface is given: rocescope analyze --live IFACE"),
        ("analyze x --tap a", "--tap a is not NAME=FILE, such as leaf1-spine3=up3.pcap, nor"),
        ("analyze x --tap a=no", "--tap a=no: there is no file no"),
        ("analyze x --live --tap a=x", "--tap cannot be combined with --live"),
        ("analyze x --live --fabric fat-tree:k=4", "--fabric cannot be combined with --live"),
        ("analyze x --fabric none.yaml", "there is no file none.yaml"),
        ("analyze x --formt json", "Unknown option: --formt. Did you mean --format?"),
        ("analyze x --window 100", "--window '100' has no unit; write a number and ns, us,"),
        ("analyze x --window 0s", "--window must be longer than 0, for example 100ms"),
        ("analyze x --link-rate fast", "--link-rate 'fast' is not a rate; write bits per second"),
        ("analyze x --link-rate=", "--link-rate '' is not a rate; write bits per second"),
        (
            "cluster plan x --work w --link-rate=",
            "--link-rate '' is not a rate; write bits per second",
        ),
        ("capture x --rotate-size=", "--rotate-size '' is not a size; write bytes, or a number"),
        ("analyze x --sort=", "--sort: there is no column ''; columns are those of"),
        ("analyze x --sort pakets", "--sort: there is no column 'pakets'; did you mean packets?"),
        ("analyze x --filter ip.scr==1", "filter: unknown field 'ip.scr' at column 1; did you"),
        ("analyze x --top 0", "--top must be 1 or more"),
        ("analyze x --top 5 --format csv", "--top is for the tables of the report; csv"),
        ("analyze x --brief -f json", "--brief is for the report; json contains everything"),
        ("analyze x --brief --top 5", "--brief prints no table: it cannot be combined with"),
        ("analyze x -o report.doc", "-o report.doc: .doc is not the suffix of a format; a folder"),
        ("analyze x --idle-after 5s", "--idle-after needs --live or --follow"),
        ("analyze x --live --idle-after 5", "--idle-after '5' has no unit; write a number and"),
        ("analyze x --follow --idle-after 0s", "--idle-after must be longer than 0, for"),
        ("live x --idle-after soon", "--idle-after 'soon' is not a duration; write a number"),
        ("analyze x --follow --concat", "--follow reads one growing file and cannot"),
        ("analyze x x", "x is given twice; its packets would count as duplicates"),
        ("analize x", 'Unknown command "analize". Did you mean "analyze"?'),
        ("export x -o packets.csv", "--output packets.csv must end in .parquet, .arrow or"),
        ("export x", "export needs --output, for example: rocescope export capture.pcap -o"),
        ("compare x", "compare needs AFTER, for example: rocescope compare before.json after.json"),
        (
            "generate incast",
            "generate needs --output, for example: rocescope generate permutation -o",
        ),
        ("cluster map", "cluster map needs N, for example: rocescope cluster map 0 --work job"),
        ("trace x --fabric", "trace: --fabric has no value; see rocescope trace --help"),
    ],
)
def test_usage_errors_are_one_line(
    run: Callable[..., Done], engine: Engine, arguments: str, message: str
) -> None:
    done = run(*arguments.split())
    assert (done.code, done.out) == (2, b"")
    assert only_line(done.err).startswith(f"rocescope: {message}")


@pytest.mark.parametrize(
    ("error", "code", "text"),
    [
        (UnreadableInput("x.pcap is empty"), 4, "rocescope: x.pcap is empty"),
        (CaptureError("eth0 needs root"), 3, "rocescope: eth0 needs root"),
        (UsageError("no such tap"), 2, "rocescope: no such tap"),
        (KeyboardInterrupt(), 130, "rocescope: interrupted"),
        (
            ZeroDivisionError("division\nby zero"),
            1,
            "rocescope: internal error: ZeroDivisionError: division by zero; "
            "run with --traceback to see where",
        ),
    ],
)
def test_every_failure_is_one_line_and_an_exit_code(
    run: Callable[..., Done], engine: Engine, error: BaseException, code: int, text: str
) -> None:
    engine.outcome = error
    done = run("analyze", "x.pcap", "--format", "json")
    assert (done.code, done.out) == (code, b"")
    assert only_line(done.err) == text


def test_traceback_on_request(engine: Engine, run: Callable[..., Done]) -> None:
    engine.outcome = ZeroDivisionError("x")
    with pytest.raises(ZeroDivisionError):
        run("analyze", "x.pcap", "--traceback")


def test_interrupted_analysis_is_reported_and_exits_130(
    engine: Engine, run: Callable[..., Done]
) -> None:
    engine.outcome = factories.analysis(complete=False)
    done = run("analyze", "x.pcap", "--format", "json")
    assert done.code == 130
    assert json.loads(done.out)["complete"] is False
    told = "rocescope: interrupted; the report covers the packets read so far"
    assert only_line(done.err) == told


def test_damaged_capture_is_reported_and_exits_4(engine: Engine, run: Callable[..., Done]) -> None:
    engine.outcome = factories.analysis(captures=[factories.capture(damaged_places=1)])
    done = run("analyze", "x.pcap")
    assert done.code == 4
    assert b"SPRAYING" in done.out
    assert only_line(done.err).startswith("rocescope: leaf1.pcap.gz could not be read completely")


def test_progress_as_json_lines(engine: Engine, run: Callable[..., Done]) -> None:
    done = run("analyze", "x.pcap", "--format", "json", "--progress", "json")
    assert json.loads(only_line(done.err)) == {
        "path": "x.pcap",
        "bytes_done": 50,
        "bytes_total": 100,
        "frames": 9,
        "packets": 8,
        "compiling": False,
    }


def test_the_first_run_says_why_it_takes_long(engine: Engine, run: Callable[..., Done]) -> None:
    engine.compiling = True
    done = run("analyze", "x.pcap", "--format", "json")
    assert "compiling kernels" in only_line(done.err)
    assert run("analyze", "x.pcap", "--format", "json", "--progress", "none").err == ""


def test_progress_bar_leaves_standard_output_alone(
    engine: Engine, run: Callable[..., Done]
) -> None:
    plain = run("analyze", "x.pcap", "--format", "csv")
    assert plain.err == ""
    assert run("analyze", "x.pcap", "--format", "csv", "--progress", "bar").out == plain.out


def test_unwritable_output_leaves_nothing_behind(
    engine: Engine, run: Callable[..., Done], tmp_path: Path
) -> None:
    done = run("analyze", "x.pcap", "-o", str(tmp_path / "missing" / "r.json"))
    assert done.code == 1
    assert only_line(done.err).endswith("r.json: no such file or directory")
    (tmp_path / "folder.json").mkdir()
    done = run("analyze", "x.pcap", "-o", str(tmp_path / "folder.json"))
    assert done.code == 1
    assert only_line(done.err).endswith("it is a folder, give a file name")
    done = run("analyze", "x.pcap", "--format", "json", "-o", "/dev/full")
    assert done.code == 1
    assert only_line(done.err) == "rocescope: cannot write /dev/full: no space left on device"
    assert [path.name for path in tmp_path.iterdir()] == ["folder.json"]


# Whole runs.


def start(*arguments: str, **settings: Any) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "rocescope", *arguments]
    return subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, **settings
    )


def test_help_and_version_load_nothing_heavy() -> None:
    heavy = "numpy numba pyarrow textual lark msgspec rocescope.analyzer.wire.packets".split()
    code = (
        "import sys; from rocescope import cli; code = cli.run([sys.argv[1]]);"
        f"print([m for m in {heavy!r} if m in sys.modules], file=sys.stderr); sys.exit(code)"
    )
    for option, expected in (("--help", "analyze"), ("--version", "0.")):
        command = [sys.executable, "-c", code, option]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        assert expected in done.stdout
        assert done.stderr == "[]\n"


@pytest.mark.parametrize(
    "command", ["analyze", "export", "recover-seed", "replay", "schema", "sweep"]
)
def test_every_help_ends_with_examples(run: Callable[..., Done], command: str) -> None:
    text = run(command, "--help").out.decode()
    assert f"  rocescope {command}" in text.partition("Examples:")[2]
    assert max(map(len, text.splitlines())) <= 80


@pytest.mark.parametrize("command", ["schema", "analyze"])
def test_a_reader_that_goes_away_is_no_error(checkout: Path, command: str) -> None:
    capture = str(checkout / "tests" / "data" / "c10_rping_ipv4.atB.pcap")
    process = start(command, *([capture, "--progress", "none"] if command == "analyze" else []))
    assert process.stdout and process.stderr
    process.stdout.close()
    assert process.stderr.read() == ""
    assert process.wait() == 141


@pytest.mark.thorough
def test_a_full_disk_leaves_nothing_behind(tmp_path: Path, data: Path) -> None:
    limit = (4_000, 4_000)  # bytes of a file: a disk that is full after these
    process = start(
        *("export", str(data / "c40_rc_oddities_ipv4.atB.pcap")),
        *("-o", str(tmp_path / "packets.parquet")),
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, limit),
    )
    _, err = process.communicate(timeout=300)
    assert process.returncode == 1
    assert only_line(err).endswith("packets.parquet: file too large")
    assert list(tmp_path.iterdir()) == []


@pytest.fixture
def growing(tmp_path: Path, data: Path) -> Iterator[Path]:
    path = tmp_path / "growing.pcap"
    path.write_bytes((data / "c40_rc_oddities_ipv4.atB.pcap").read_bytes())
    return path


@pytest.mark.thorough
@pytest.mark.parametrize("follow", [False, True])
def test_interrupt_prints_the_report_so_far(growing: Path, follow: bool) -> None:
    """A pipe that does not end is interrupted; a followed file ends in no other way."""
    what = ["--follow", str(growing)] if follow else ["-"]
    options = ("--format", "json", "--progress", "json")
    process = start("analyze", *what, *options, stdin=subprocess.PIPE)
    assert process.stdout and process.stderr and process.stdin
    if not follow:
        process.stdin.buffer.write(growing.read_bytes())  # type: ignore[attr-defined]
        process.stdin.buffer.flush()  # type: ignore[attr-defined]
    packets = 0
    while packets < 564:
        packets = json.loads(process.stderr.readline())["packets"]
    os.kill(process.pid, signal.SIGINT)
    out, err = process.stdout.read(), process.stderr.read()
    assert process.wait(300) == (0 if follow else 130)
    results = json.loads(out)
    assert results["complete"] is follow
    assert sum(capture["roce_packets"] for capture in results["captures"]) == 564
    assert follow or err.splitlines()[-1].startswith("rocescope: interrupted")


@pytest.mark.thorough
@pytest.mark.parametrize(("idle_after", "left"), [("5s", 1500), ("20s", 0)])
def test_flows_of_a_followed_file_end_after_the_time_given(
    tmp_path: Path, idle_after: str, left: int
) -> None:
    """2,500 flows, and packets of one more 10 s later; of the idle ones 1,000 stay listed."""
    frames = [Frame(1000 * qp, roce(0, qp=0x100 + qp)) for qp in range(2500)]
    later = [Frame(10 * 10**9 + psn, roce(psn)) for psn in range(20)]
    path = write_pcap(tmp_path / "growing.pcap", [*frames, *later])
    options = ("--format", "json", "--progress", "json", "--idle-after", idle_after)
    process = start("analyze", "--follow", str(path), *options)
    assert process.stdout and process.stderr
    packets = 0
    while packets < 2520:
        packets = json.loads(process.stderr.readline())["packets"]
    os.kill(process.pid, signal.SIGINT)
    results = json.loads(process.stdout.read())
    assert process.wait(300) == 0
    assert len(results["flows"]) == 2501 - left
    assert results.get("ended", {"flows": 0, "packets": 0})["flows"] == left
    everything = sum(flow["packets"] for flow in results["flows"])
    assert everything + results.get("ended", {"packets": 0})["packets"] == 2520
    assert results["complete"] is True


@pytest.mark.thorough
def test_analysis_of_a_real_capture_matches_the_schema(
    data: Path, run: Callable[..., Done]
) -> None:
    done = run("analyze", str(data / "c40_rc_oddities_ipv4.atB.pcap"), "--format", "json")
    assert (done.code, done.err) == (0, "")
    jsonschema.validate(json.loads(done.out), json.loads(run("schema").out))


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "is empty (0 bytes)"),
        (b"hello, world\n" * 10, "is not a pcap or pcapng capture: it is text"),
    ],
)
def test_unreadable_input_exits_4(
    run: Callable[..., Done], tmp_path: Path, content: bytes, message: str
) -> None:
    path = tmp_path / "x.pcap"
    path.write_bytes(content)
    for command in (["analyze", str(path)], ["export", str(path), "-o", str(tmp_path / "x.arrow")]):
        done = run(*command)
        assert (done.code, done.out) == (4, b"")
        # A machine without compiled kernels says so first.
        assert message in only_line(done.err.replace(f"{COMPILES}\n", ""))
    assert [path.name for path in tmp_path.iterdir()] == ["x.pcap"]


def test_what_was_written_before_a_failure_is_not_lost() -> None:
    """The process ends at once: its buffers and what waits for its end must not."""
    code = (
        "import atexit, rocescope.cli as cli\n"
        "from rocescope.analyzer.errors import UnreadableInput\n"
        "def fail(words):\n"
        "    atexit.register(print, 'at the end')\n"
        "    print('before')\n"
        "    raise UnreadableInput('nothing there')\n"
        "cli._run_command = fail\n"
        "cli.main([])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (4, "before\nat the end\n")
    assert done.stderr == "rocescope: nothing there\n"


@pytest.mark.parametrize(
    "reading",
    [
        {},
        {"udp_ports": (4791, 5000, 6000), "concat": True},
        {"tap_names": {__file__: "leaf1-spine3"}},
        {"plane_by": PlaneBy("ev", 3, 2), "usid": UsidFormat(48, 24), "flow_label": "outer"},
        {"trimmed_dscps": (7, 9), "mirror": MirrorOptions("hardware", None, 20_000)},
        {"mirror": MirrorOptions("capture", "lumina")},
    ],
)
def test_options_of_the_screens_as_words_are_those_options(
    reading: dict[str, Any], engine: Engine, run: Callable[..., Done]
) -> None:
    options = replace(AnalyzeOptions(), **reading)
    done = run("analyze", "x.pcap", *reading_words(options))
    assert done.code == 0, done.err
    assert {name: engine.options[name] for name in reading} == reading
    assert AnalyzeOptions(**engine.options) == options
