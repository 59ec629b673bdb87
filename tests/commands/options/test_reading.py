"""--dscp-priority."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from job_logs import LOSSY, write_logs

from rocescope import cli
from rocescope.analyzer.errors import UsageError
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
