"""`--nccl-log` and filters by rank, on a real capture with logs of its queue pairs."""

import json

import pyarrow.parquet as pq
import pytest
from job_logs import LOSSY, write_logs

from rocescope.analyzer.errors import UsageError
from rocescope.cli import run
from rocescope.commands.options.logs import JobLogs


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
