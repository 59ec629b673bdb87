"""--dscp-priority."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from job_logs import LOSSY, write_logs

from rocescope import cli
from rocescope.analyzer.errors import UnreadableInput, UsageError
from rocescope.cli import run
from rocescope.commands.options.reading import (
    JobLogs,
    Ports,
    Reading,
    ReadingInTasks,
    fabric_links,
    mirror_options,
    parse_dscp_priorities,
)
from rocescope.commands.options.taps import (
    MAPPED,
    NAMING,
    OFFERED,
    Mapped,
    Naming,
    Offered,
    captures_in,
    check_inputs,
    check_uncombined,
    expanded,
)
from rocescope.replay.compare.request import ReplayRequest

# --dscp-priority.

# --dscp-priority.


@pytest.mark.parametrize(
    ("text", "priorities"),
    [("26=3", {26: 3}), ("26=3, 48=6,0=0", {26: 3, 48: 6, 0: 0}), ("1=2,1=2", {1: 2})],
)
def test_pairs(text, priorities):
    assert parse_dscp_priorities(text) == priorities


@pytest.mark.parametrize(
    "text", ["", "26", "26=8", "64=1", "-1=1", "a=b", "26=3,,1=1", "1=2,1=3", "\x1b[31m=1"]
)
def test_anything_else_is_one_clear_error(text):
    with pytest.raises(UsageError, match="--dscp-priority") as error:
        parse_dscp_priorities(text)
    assert "\x1b" not in str(error.value)


def test_no_pair_at_all_is_an_error_of_the_command(capsys):
    assert cli.run(["analyze", "x.pcap", "--dscp-priority", ""]) == 2
    assert "--dscp-priority '': give DSCP=PRIORITY" in capsys.readouterr().err


# The links of a fabric for the analyzer.

LAB = """
nodes:
  leaf1: {}
  leaf2: {}
  spine1: {}
  H1: {kind: host, addresses: [10.1.1.10, "fd10::10"]}
  H2: {kind: host}
links:
  - [H1, leaf1]
  - [H2, leaf2]
  - {a: leaf1, b: spine1, count: 2}
  - [leaf2, spine1]
  - {a: leaf2, b: leaf1, up: false}
"""


def test_links_that_are_up_and_addresses(tmp_path: Path) -> None:
    path = tmp_path / "lab.yaml"
    path.write_text(LAB)
    found = fabric_links(str(path))
    cables = [("H1", "leaf1"), ("H2", "leaf2"), ("leaf1", "spine1"), ("leaf1", "spine1"),
              ("leaf2", "spine1")]  # fmt: skip
    assert sorted(found.links) == sorted([*cables, *(cable[::-1] for cable in cables)])
    assert found.hosts == {"H1", "H2"}
    named = {a: found.host_of(a) for a in ("10.1.1.10", "fd10::10", "10.0.0.1", "10.0.0.2")}
    assert named == {"10.1.1.10": "H1", "fd10::10": "H1", "10.0.0.1": None, "10.0.0.2": "H2"}


def test_a_spec_and_a_mistake() -> None:
    found = fabric_links("leaf-spine:leaves=2,spines=2,hosts=1,down=leaf1-spine2")
    assert ("leaf1", "spine1") in found.links and ("leaf1", "spine2") not in found.links
    assert found.host_of("10.0.0.2") == "host2" and found.host_of("fd10::1") == "host1"
    with pytest.raises(UsageError, match="there is no file nowhere.yaml"):
        fabric_links("nowhere.yaml")


# `--nccl-log` and filters by rank, on a real capture with logs of its queue pairs.


def test_a_pattern_without_a_file_is_a_mistake(tmp_path):
    assert JobLogs().patterns() == ()
    with pytest.raises(UsageError, match="no file is named"):
        JobLogs([str(tmp_path / "*.log")]).patterns()


def test_export_has_ranks_and_filters_by_them(data, tmp_path):
    logs, out = write_logs(tmp_path, data), tmp_path / "p.parquet"
    words = ["export", str(data / LOSSY), "-o", str(out), "--nccl-log", logs]
    assert run([*words, "--filter", "dst_rank == 11 and nak"]) == 0
    rows = pq.read_table(out, columns=["src", "src_rank", "dst_rank", "comm"]).to_pylist()
    assert len(rows) > 100
    assert {tuple(row.values()) for row in rows} == {("10.0.0.2", 3, 11, "0xabc123")}


def test_frames_for_wireshark_are_filtered_by_rank_too(data, tmp_path, capsys):
    logs, out = write_logs(tmp_path, data), tmp_path / "p.pcapng"
    words = ["export", str(data / LOSSY), "--pcapng", "-o", str(out), "--nccl-log", logs]
    assert run([*words, "--filter", "src_rank == 11"]) == 0
    capsys.readouterr()
    assert run(["analyze", str(out), "--format", "json"]) == 0
    flows = json.loads(capsys.readouterr().out)["flows"]
    assert {flow["src"] for flow in flows} == {"10.0.0.1"}


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ([], "needs the logs of the job"),
        (["--nccl-log"], "no rank is known in this capture; job logs: none of the"),
    ],
)
def test_a_filter_that_cannot_be_answered_is_one_line(data, tmp_path, capsys, words, says):
    logs = write_logs(tmp_path, data, "c16_rc_write_bidir.atB.pcap.gz")
    capture = str(data / "c15_rc_write_ipv6_gid.atB.pcap.gz")
    given = [*words, logs] if words else []
    assert run(["analyze", capture, "--filter", "rank == 3", *given]) == 2
    said = capsys.readouterr()
    assert said.out == "" and says in said.err and said.err.count("\n") == 1


def test_replay_names_the_ranks_of_its_flows(data, tmp_path, capsys):
    logs = write_logs(tmp_path, data)
    words = ["replay", str(data / LOSSY), "--fabric", "leaf-spine:leaves=2,spines=2,hosts=1"]
    words += ["--map", "order", "-s", "ecmp", "--nccl-log", logs]
    assert run([*words, "--format", "json", "--filter", "rank == 3"]) == 0
    (strategy, *_) = json.loads(capsys.readouterr().out)["strategies"]
    ranks = {(one["src"], one["src_rank"], one["dst_rank"]) for one in strategy["paths"]}
    assert ranks == {("10.0.0.1", 11, 3), ("10.0.0.2", 3, 11)}
    one_way = [*words, "--format", "json", "--filter", "src_rank == 11"]
    assert run(one_way) == 0
    (leaving, *_) = json.loads(capsys.readouterr().out)["strategies"]
    assert {(one["src"], one["dst_rank"]) for one in leaving["paths"]} == {("10.0.0.1", 3)}
    (largest, *_) = strategy["worst"][0]["largest"]
    assert largest["comm"] == "0xabc123"
    assert run(words) == 0
    assert "(rank 11>3)" in capsys.readouterr().out
    generated = ["replay", "--pattern", "permutation", "--fabric", words[3], "--nccl-log", logs]
    assert run(generated) == 2
    assert "--nccl-log needs captures" in capsys.readouterr().err


# Options of mirrors.


def test_packets_as_captured():
    assert mirror_options("capture", None, None, None) is None


def test_what_is_restored(tmp_path):
    file = tmp_path / "switch.yml"
    file.write_text("counter: {ingress: {1: 2}, egress: {2: 2}}")
    found = mirror_options("capture", "lumina", "20us", file)
    assert (found.clock, found.format, found.drop_duplicates_ns) == ("capture", "lumina", 20_000)
    assert found.switch_counters.ingress == {"1": 2}
    assert mirror_options("hardware", None, None, None).clock == "hardware"


def test_options_that_need_or_exclude_another(tmp_path):
    with pytest.raises(UsageError, match="--switch-counters needs --mirror-format lumina"):
        mirror_options("capture", None, None, tmp_path)
    with pytest.raises(UsageError, match="--clock hardware cannot be combined"):
        mirror_options("hardware", "lumina", None, None)
    with pytest.raises(UsageError, match="--drop-duplicates"):
        mirror_options("capture", None, "soon", None)


# How captures are read.


def test_ports_besides_4791():
    assert Ports().udp_ports == (4791,)
    assert Ports([4971, 5000]).udp_ports == (4791, 4971, 5000)


def test_options_of_an_analysis():
    made = Reading(usid="48:16", filter="cnp", trimmed_dscp=[5], concat=True).options(["a"], {})
    assert (made.usid.block_bits, made.usid.usid_bits) == (48, 16)
    assert (made.filter, made.trimmed_dscps, made.concat) == ("cnp", (5,), True)
    assert made.mirror is None and not made.follow


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"filter": "psn ="}, "filter: "),
        ({"usid": "33:16"}, "is not a uSID format"),
        ({"plane_by": "moon"}, "--plane-by"),
        ({"follow": True, "concat": True}, "--follow reads one growing file"),
        ({"follow": True, "tap": ["(?P<tap>.*)"]}, "--follow reads one file"),
        ({"clock": "hardware", "mirror_format": "lumina"}, "--clock hardware cannot be combined"),
    ],
)
def test_mistakes_are_told_before_a_file_is_opened(options, message):
    with pytest.raises(UsageError, match=message):
        Reading(**options).options(["/none"], {})


def test_names_and_one_tap():
    with pytest.raises(UsageError, match="--tap cannot be combined with --concat"):
        ReadingInTasks(concat=True).options(["a"], {"a": "up"})


# Files, folders and patterns as arguments.

# Files, folders and patterns as arguments.


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Captures at two levels, and other files."""
    names = [
        "a/r.pcap",
        "a/r.pcap12",
        "b/x.pcapng.zst",
        "b/x.json",
        "c.cap",
        "notes.txt",
        "d.pcap2x",
    ]
    for name in names:
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()
    return tmp_path


def test_the_captures_of_a_folder(folder: Path) -> None:
    below = [folder / name for name in ("a/r.pcap", "a/r.pcap12", "b/x.pcapng.zst", "c.cap")]
    assert captures_in(folder) == expanded([folder]) == below
    assert captures_in(folder, "*") == below[-1:]
    (folder / "empty").mkdir()
    with pytest.raises(UnreadableInput, match="empty contains no capture"):
        captures_in(folder / "empty")


def test_a_file_given_twice(folder: Path) -> None:
    one, link = folder / "c.cap", folder / "latest.cap"
    link.symlink_to(one)
    gone = folder / "gone.pcap"
    check_inputs([one, folder / "a/r.pcap", gone])
    for files, said in (
        ([one, one], f"{one} is given twice"),
        ([gone, one, gone], f"{gone} is given twice"),
        ([one, link], f"{one} and {link} are one file, which is given twice"),
        ([one, folder / "a" / ".." / "c.cap"], "are one file, which is given twice"),
    ):
        with pytest.raises(UsageError) as error:
            check_inputs(files)
        assert said in str(error.value)


def test_odd_names_are_captures_and_other_files_are_counted(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("A.PCAP", "b\nc.pcap", "notes.txt", "x.json"):
        (tmp_path / name).touch()
    assert captures_in(tmp_path) == [tmp_path / "A.PCAP", tmp_path / "b\nc.pcap"]
    assert capsys.readouterr().err.endswith(": 2 files are not named like a capture: ignored\n")

    def denied(folder: Path) -> list[str]:
        raise PermissionError(13, "Permission denied", folder)

    monkeypatch.setattr("os.listdir", denied)
    with pytest.raises(UnreadableInput, match=": Permission denied$"):
        captures_in(tmp_path)


def test_patterns_name_files(folder: Path) -> None:
    found = [folder / "a/r.pcap", folder / "a/r.pcap12"]
    assert expanded([folder / "?/r.pcap*"]) == expanded([folder / "a*"]) == found
    gone, literal = folder / "x[1].pcap", folder / "y[1].pcap"
    literal.touch()
    assert expanded([gone, literal, Path("-")]) == [gone, literal, Path("-")]


# Captures and the names of their taps, as arguments.


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """a/1.pcap, a/2.pcap and b/1.pcap in the working folder."""
    monkeypatch.chdir(tmp_path)
    paths = [Path("a/1.pcap"), Path("a/2.pcap"), Path("b/1.pcap")]
    for path in paths:
        path.parent.mkdir(exist_ok=True)
        path.touch()
    return paths


def test_names_by_path_or_file_name(files: list[Path]) -> None:
    naming = Naming(["leaf1-spine1=b/1.pcap", "leaf1-spine2=2.pcap"])
    paths, names = naming.captures(files)
    assert paths == ["a/1.pcap", "a/2.pcap", "b/1.pcap"]
    assert names == {"b/1.pcap": "leaf1-spine1", "a/2.pcap": "leaf1-spine2"}


def test_a_file_that_only_the_option_gives_is_also_a_capture(files: list[Path]) -> None:
    paths, names = Naming(["up1=./a/1.pcap", "up2=b/1.pcap"]).captures(files[:1])
    assert paths == ["a/1.pcap", "b/1.pcap"]
    assert names == {"a/1.pcap": "up1", "b/1.pcap": "up2"}
    assert Naming(["up1=a/1.pcap"]).captures(()) == (["a/1.pcap"], {"a/1.pcap": "up1"})


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["a/1.pcap"], "--tap a/1.pcap is not NAME=FILE, such as leaf1-spine3=up3.pcap, nor"),
        (["=a/1.pcap"], "--tap =a/1.pcap is not NAME=FILE"),
        (["up1="], "--tap up1= is not NAME=FILE"),
        (["up1=a/3.pcap"], "--tap up1=a/3.pcap: there is no file a/3.pcap"),
        (["up1=1.pcap"], "--tap: 1.pcap is a/1.pcap or b/1.pcap: give it with its folder"),
        (["up1=a/1.pcap", "up1=b/1.pcap"], "a/1.pcap and b/1.pcap have the same name up1"),
        (["up1=a/1.pcap", "up2=a/1.pcap"], "--tap up2=a/1.pcap: the tap of this file is already"),
        (["2.pcap=a/1.pcap"], "a/2.pcap and a/1.pcap have the same name 2.pcap"),
    ],
)
def test_mistakes(files: list[Path], options: list[str], message: str) -> None:
    with pytest.raises(UsageError) as told:
        Naming(options).captures(files)
    assert message in str(told.value)


def test_no_capture(files: list[Path]) -> None:
    with pytest.raises(UsageError, match="no capture is given"):
        NAMING.captures(())
    assert NAMING.captures((), none_needed=True) == ([], {})


def test_names_on_both_sides_of_a_comparison(files: list[Path]) -> None:
    sides = [files[:2], files[2:]]
    assert Naming(["up1=1.pcap", "up2=a/2.pcap"]).of_each(sides) == [
        {"a/1.pcap": "up1", "a/2.pcap": "up2"},
        {"b/1.pcap": "up1"},
    ]
    assert Naming(["up1=a/1.pcap", "up1=b/1.pcap"]).of_each(sides) == [
        {"a/1.pcap": "up1"},
        {"b/1.pcap": "up1"},
    ]
    for options, message in (
        (["up1=3.pcap"], "no capture that is compared has this name"),
        (["up1=1.pcap", "up1=a/2.pcap"], "have the same name up1"),
        (["up1=1.pcap", "up2=b/1.pcap"], "the tap of this file is already up1"),
    ):
        with pytest.raises(UsageError, match=message):
            Naming(options).of_each(sides)


def test_not_with_concat() -> None:
    check_uncombined({}, concat=True)
    check_uncombined({"a.pcap": "up1"}, concat=False)
    with pytest.raises(UsageError, match="--tap cannot be combined with --concat"):
        check_uncombined({"a.pcap": "up1"}, concat=True)


def test_an_expression_names_the_taps_of_ring_files(files: list[Path]) -> None:
    expression = "(?P<tap>[^/]+)/[0-9]"
    reading = Reading(tap=[expression])
    paths, names = reading.captures([Path()])
    assert paths == ["a/1.pcap", "a/2.pcap", "b/1.pcap"]
    assert names == {"a/1.pcap": "a", "a/2.pcap": "a", "b/1.pcap": "b"}
    assert reading.options(paths, names).rings == expression
    assert Reading(tap=["up1=a/1.pcap"]).rings is None


def test_folders_whose_names_are_not_text_are_different_taps(files: list[Path]) -> None:
    paths = [Path(os.fsdecode(name)) for name in (b"\xff/1.pcap", b"\xfe/1.pcap")]
    _, names = Reading(tap=["(?P<tap>[^/]+)/"]).captures(paths)
    assert list(names.values()) == [r"\xff", r"\xfe"]
    _, names = Naming([os.fsdecode(b"\xff=2.pcap")]).captures(files)
    assert names == {"a/2.pcap": r"\xff"}


@pytest.mark.parametrize(
    ("reading", "message"),
    [
        (Reading(tap=["(?P<tap>["]), "is not a regular expression: unterminated character set"),
        (Reading(tap=["(?P<tap>a{9999999999999999999})"]), "is not a regular expression: the r"),
        (Reading(tap=[f"(?P<tap>{'(' * 9999}a{')' * 9999})"]), "is not a regular expression: max"),
        (
            Reading(tap=["a/(?P<tap>.)"]),
            r"names no tap of b/1.pcap: change the expression, or omit",
        ),
        (Reading(tap=["(?P<tap>x*)"]), "names no tap of a/1.pcap"),
        (Reading(tap=["(?P<tap>.)/", "up=b/1.pcap"]), "names all taps: give no other --tap"),
        (Naming(["(?P<tap>.)/"]), "is for analyze, tui and cluster plan"),
    ],
)
def test_mistakes_of_expressions(files: list[Path], reading: Naming, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        reading.captures(files)


def test_expressions_elsewhere(files: list[Path]) -> None:
    with pytest.raises(UsageError, match="no capture is given"):
        Reading(tap=["(?P<tap>.)/"]).captures(())
    with pytest.raises(UsageError, match="compare takes --tap NAME=FILE"):
        Naming(["(?P<tap>.)/"]).of_each([files])
    with pytest.raises(UsageError, match="--follow reads one file"):
        Reading(tap=["(?P<tap>.)/"], follow=True).options(files[:1], {})


# The traffic of a fabric as arguments becomes the request of a replay.

FABRIC = "leaf-spine:leaves=2,spines=2,hosts=2"


@pytest.fixture
def files_replaying(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    monkeypatch.chdir(tmp_path)
    paths = [Path("1.pcap"), Path("2.pcap")]
    for path in paths:
        path.touch()
    return paths


def test_without_an_option_the_request_has_its_own_defaults(files_replaying: list[Path]) -> None:
    expected = ReplayRequest(FABRIC, captures=("1.pcap", "2.pcap"))
    assert OFFERED.request(FABRIC, files_replaying) == expected
    assert (MAPPED.map, MAPPED.filter, MAPPED.concat) == ("exact", None, False)


def test_every_option_is_in_the_request(files_replaying: list[Path]) -> None:
    offered = Offered(tap=["up1=2.pcap"], map="order", filter="qp == 17", pattern="permutation")
    asked = offered.request(FABRIC, files_replaying, seed=7, strategies=("ecmp",))
    assert asked == ReplayRequest(
        FABRIC,
        ("ecmp",),
        ("1.pcap", "2.pcap"),
        "permutation",
        tap_names={"2.pcap": "up1"},
        map="order",
        filter="qp == 17",
        seed=7,
    )
    assert Offered(concat=True).request(FABRIC, files_replaying).concat
    assert isinstance(offered, Mapped)


def test_a_pattern_needs_no_capture() -> None:
    asked = Offered(pattern="incast:qps=4").request(FABRIC, ())
    assert (asked.captures, asked.pattern) == ((), "incast:qps=4")


def test_files_of_one_tap_have_no_names_of_their_own(files_replaying: list[Path]) -> None:
    with pytest.raises(UsageError, match="--tap cannot be combined with --concat"):
        Offered(tap=["up1=1.pcap"], concat=True).request(FABRIC, files_replaying)
