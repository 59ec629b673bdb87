"""replay, sweep and recover-seed as programs: results, exit codes, one line for a mistake."""

from __future__ import annotations

import csv
import io
import json
import shlex
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from captures import DATA

from rocescope import cli
from rocescope.replay.generate.from_pattern import generate
from rocescope.replay.generate.queue_pairs import QueuePairs
from rocescope.replay.strategies.registry import PACKET_STRATEGIES, STRATEGIES
from rocescope.report.files.results import json_schema

FABRIC = ["--fabric", "leaf-spine:leaves=2,spines=4,hosts=4"]
PATTERN = ["--pattern", "permutation:qps=4"]
SEEDS = ["--seeds", "0x12340000:0x12350000"]


def result(capsys: pytest.CaptureFixture[str], *words: str) -> dict[str, object]:
    assert cli.run([*words, "--format", "json"]) == 0
    found = json.loads(capsys.readouterr().out)
    jsonschema.validate(found, json_schema(words[0]))
    assert next(iter(found)) == "schema_version"
    return found  # type: ignore[no-any-return]


@pytest.fixture
def links(data: Path) -> list[str]:
    folder = data / "leafspine" / "r01_clean_write"
    return [str(folder / f"leaf1-spine{i}.pcap.gz") for i in range(1, 5)]


def test_replay(capsys: pytest.CaptureFixture[str]) -> None:
    found = result(capsys, "replay", *PATTERN, *FABRIC, "-s", "ecmp", "-s", "assign:limit=1s")
    ecmp, assign = found["strategies"]  # type: ignore[misc]
    assert (ecmp["name"], assign["name"]) == ("ecmp", "assign")
    assert assign["lower_bound_ns"] <= ecmp["lower_bound_ns"]
    assert assign["solver"]["gap"] >= 0 and ecmp["solver"] is None
    for layer in ("leaf-spine", "spine-leaf"):
        carried = [link["wire_bytes"] for link in ecmp["links"] if link["layer"] == layer]
        same = [link["wire_bytes"] for link in assign["links"] if link["layer"] == layer]
        assert len(carried) == 8 and sum(carried) == sum(same)


def test_a_pattern_is_generated_once_per_run(monkeypatch: pytest.MonkeyPatch) -> None:
    """With a queue pair between any two of a thousand hosts this takes as long as the packets."""
    seeds: list[int] = []

    def counted(*arguments: Any) -> QueuePairs:
        seeds.append(arguments[-1])
        return generate(*arguments)

    monkeypatch.setattr("rocescope.replay.compare.specs.generate", counted)
    words = ["replay", *PATTERN, *FABRIC, "-s", "jsq", "-s", "ecmp", "--runs", "2"]
    assert cli.run(words) == 0
    assert sorted(seeds) == [1, 2]


def test_replay_of_a_capture_with_windows(capsys: pytest.CaptureFixture[str], data: Path) -> None:
    capture = str(data / "leafspine" / "r01_clean_write" / "H1-leaf1.pcap.xz")
    fabric = ["--fabric", "leaf-spine:leaves=2,spines=4,hosts=2", "--map", "order"]
    words = ["replay", capture, *fabric, "-s", "ecmp", "--window", "100ms"]
    found = result(capsys, *words)
    assert found["traffic"]["window_ns"] == 100_000_000  # type: ignore[index]
    layers = found["strategies"][0]["layers"]  # type: ignore[index]
    over = [layer["over_time"] for layer in layers if layer["choice"]]
    assert all(one["windows"] > 1 and 0 < one["peak_utilisation"] < 1 for one in over)


@pytest.mark.thorough
def test_json_is_complete(capsys: pytest.CaptureFixture[str], links: list[str]) -> None:
    fabric = ["--fabric", "leaf-spine:leaves=2,spines=4,hosts=2", "--map", "subnets"]
    words = ["replay", *links, *fabric, "-s", "ecmp:seed=305419896,per-switch=equal"]
    found = result(capsys, *words)
    mapping = found["traffic"]["mapping"]  # type: ignore[index]
    assert mapping["rule"] == "10.1.0.0/16 on leaf1, 10.2.0.0/16 on leaf2"
    assert mapping["hosts"]["10.2.4.10"] == "host4"
    captured, ecmp = found["strategies"]  # type: ignore[misc]
    assert len(ecmp["paths"]) == 96 and ecmp["paths_omitted"] == 0
    loads = dict.fromkeys((link["name"] for link in ecmp["links"]), 0)
    for one in ecmp["paths"]:
        for link in one["links"]:
            loads[link] += one["wire_bytes"]
    assert loads == {link["name"]: link["wire_bytes"] for link in ecmp["links"]}
    first = ecmp["paths"][0]
    assert (first["src"], first["src_host"]) == ("10.1.2.10", "host2")
    assert all(len(one["links"]) == 1 for one in captured["paths"])
    assert len(ecmp["worst"]) == 5 and ecmp["worst_omitted"] == 11
    assert {len(one["largest"]) for one in ecmp["worst"]} == {10}
    more = result(capsys, *words, "--top", "1000")["strategies"][1]  # type: ignore[index]
    assert len(more["worst"]) == 16 and more["worst_omitted"] == 0
    assert all(len(one["largest"]) == one["flows"] for one in more["worst"])


def test_the_mapping_is_printed(capsys: pytest.CaptureFixture[str], links: list[str]) -> None:
    fabric = ["--fabric", "leaf-spine:leaves=2,spines=4,hosts=2", "--map", "subnets"]
    assert cli.run(["replay", *links, *fabric, "-s", "ecmp"]) == 0
    told = " ".join(capsys.readouterr().out.split())
    assert "mapping: 10.1.0.0/16 on leaf1, 10.2.0.0/16 on leaf2; 10.1.1.10 host1" in told


def test_rows_of_links(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.run(["replay", *PATTERN, *FABRIC, "-s", "static", "--format", "csv"]) == 0
    rows = list(csv.DictReader(io.StringIO(capsys.readouterr().out)))
    assert list(rows[0]) == ["strategy", "name", "layer", "flows", "wire_bytes", "over_mean"]
    assert {row["strategy"] for row in rows} == {"static"} and len(rows) == 32


@pytest.mark.parametrize("suffix", ["json", "csv", "parquet", "arrow", "txt"])
def test_results_go_to_files(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"result.{suffix}"
    assert cli.run(["sweep", *PATTERN, *FABRIC, "--seeds", "0:50", "-o", str(path)]) == 0
    assert path.stat().st_size > 100
    assert list(tmp_path.iterdir()) == [path]


def test_sweep(capsys: pytest.CaptureFixture[str]) -> None:
    found = result(
        capsys, "sweep", *PATTERN, *FABRIC, "--hash", "crc32", "--seeds", "0:300:3",
        "--production", "0x9", "--measure", "max-over-mean",
    )  # fmt: skip
    assert found["seeds"] == [0, 300, 100] and found["hash"] == "crc32"
    assert found["production"]["seed"] == 9  # type: ignore[index]
    bins = found["distribution"]["histogram"]  # type: ignore[index]
    assert sum(one["count"] for one in bins) == 100


def test_recover_seed(capsys: pytest.CaptureFixture[str], links: list[str]) -> None:
    found = result(capsys, "recover-seed", *links, *SEEDS)
    first = found["switches"][0]["candidates"][0]  # type: ignore[index]
    assert (first["hash"], first["seed"], first["seeds_that_fit"]) == ("linux", 0x12345678, 1)


def test_recovered_links_have_the_names_of_taps(
    capsys: pytest.CaptureFixture[str], links: list[str]
) -> None:
    taps = [word for i, link in enumerate(links) for word in ("--tap", f"up{i}={link}")]
    found = result(capsys, "recover-seed", *taps, *SEEDS)
    named = found["switches"][0]["links"]  # type: ignore[index]
    assert named == ["up0", "up1", "up2", "up3"]


@pytest.mark.thorough
@pytest.mark.parametrize("named", [False, True])
def test_the_printed_replay_runs_as_printed(
    capsys: pytest.CaptureFixture[str], links: list[str], named: bool
) -> None:
    """It places every flow of the captured links as the switch did."""
    taps = [f"leaf1-spine{i + 1}={link}" for i, link in enumerate(links)]
    files = [word for tap in taps for word in ("--tap", tap)] if named else links
    assert cli.run(["recover-seed", *files, *SEEDS]) == 0
    lines = capsys.readouterr().out.splitlines()
    (line,) = [line.strip() for line in lines if line.startswith("  rocescope replay ")]
    replayed = result(capsys, *shlex.split(line)[1:])
    captured, model = replayed["strategies"]  # type: ignore[misc]
    assert captured["name"] == "as captured"
    loads = {link["name"]: link["wire_bytes"] for link in model["links"]}
    seen = {link["name"]: link["wire_bytes"] for link in captured["links"] if link["wire_bytes"]}
    assert len(seen) == 8 and {name: loads[name] for name in seen} == seen


def test_nothing_recovered_is_a_failure(
    capsys: pytest.CaptureFixture[str], links: list[str]
) -> None:
    words = ["recover-seed", *links, "--hash", "linux", "--seeds", "0:1000"]
    assert cli.run(words) == 1
    assert "No hash fits" in capsys.readouterr().out


def test_one_switch_only(capsys: pytest.CaptureFixture[str], links: list[str]) -> None:
    found = result(capsys, "recover-seed", *links, *SEEDS, "--from", "10.1.0.0/16")
    assert [one["direction"] for one in found["switches"]] == ["from 10.1.0.0/16"]  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["replay", *FABRIC], "give captures, or --pattern"),
        (["replay", *PATTERN, "--fabric", "torus:k=3"], "torus"),
        (["replay", *PATTERN, *FABRIC, "-s", "luck"], "no strategy 'luck'"),
        (
            ["replay", *PATTERN, *FABRIC, "-s", "ecmp,jsq"],
            "give each strategy its own -s: -s ecmp -s jsq",
        ),
        (["replay", *PATTERN, *FABRIC, "--top", "0"], "--top must be 1"),
        (["replay", *PATTERN, *FABRIC, "--map", "order"], "--concat need captures"),
        (["replay", "--pattern", "permutation:qps=x", *FABRIC], "qps 'x' is not a whole number"),
        (["replay", "--pattern", "permutation:colour=1", *FABRIC], "no option 'colour'"),
        (["replay", "--pattern", "permutation:acks=2", *FABRIC], "acks=2: use yes or no"),
        (["replay", "--pattern", "permutation:hosts=99", *FABRIC], "99 hosts"),
        (["replay", "--pattern", "dance", *FABRIC], "dance"),
        (["sweep", *PATTERN, *FABRIC, "--seeds", "9:9"], "no seed"),
        (["sweep", *PATTERN, *FABRIC, "--seeds", "0:0x100000001"], "is not a range"),
        (["sweep", *PATTERN, *FABRIC, "--seeds", "5"], "is not a range"),
        (["sweep", *PATTERN, *FABRIC, "--seeds", "0:9:0"], "no seed"),
        (["sweep", *PATTERN, *FABRIC, "--production", "-1"], "not a seed"),
        (["sweep", *PATTERN, *FABRIC, "--hash", "md5"], "no hash 'md5'"),
        (["sweep", *PATTERN, *FABRIC, "--option", "seed=1"], "use --seeds"),
        (["sweep", *PATTERN, *FABRIC, "--option", "rotate"], "not key=value"),
        (["sweep", *PATTERN, "--fabric", "leaf-spine:leaves=2,spines=1"], "has a choice"),
        (["recover-seed", "a.pcap", "a.pcap"], "given twice"),
        (["recover-seed", "a.pcap", "b.pcap", "--seeds", "0:9:2"], "without a step"),
        (["recover-seed", "a.pcap", "b.pcap", "--weights", "x"], "--weights"),
        (["replay", *PATTERN, *FABRIC, "-o", "x.doc"], "is not that of a format"),
    ],
)
def test_mistakes(capsys: pytest.CaptureFixture[str], words: list[str], told: str) -> None:
    assert cli.run(words) == 2
    output = capsys.readouterr()
    assert output.out == "" and told in output.err and output.err.count("\n") == 1


def test_hosts_that_are_not_on_the_fabric(capsys: pytest.CaptureFixture[str], data: Path) -> None:
    capture = str(data / "leafspine" / "r01_clean_write" / "H1-leaf1.pcap.xz")
    assert cli.run(["replay", capture, *FABRIC]) == 2
    error = capsys.readouterr().err
    assert "no flow runs between hosts" in error and "10.1.1.10" in error and "--map" in error


def test_one_link_is_not_enough(capsys: pytest.CaptureFixture[str], links: list[str]) -> None:
    assert cli.run(["recover-seed", links[0]]) == 2
    assert "one link is not enough" in capsys.readouterr().err


def test_senders_that_are_not_there(capsys: pytest.CaptureFixture[str], links: list[str]) -> None:
    assert cli.run(["recover-seed", *links, "--from", "192.0.2.0/24"]) == 2
    assert "no flow comes from 192.0.2.0/24" in capsys.readouterr().err


def test_a_missing_capture(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.run(["recover-seed", "nowhere.pcap", "else.pcap"]) == 4
    assert "nowhere.pcap" in capsys.readouterr().err


def test_progress_in_json(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["sweep", *PATTERN, *FABRIC, "--seeds", "0:50", "--progress", "json", "-f", "json"]
    assert cli.run(words) == 0
    last = json.loads(capsys.readouterr().err.splitlines()[-1])
    assert last == {"step": "seeds", "done": 50, "total": 50}


def test_captures_that_show_no_choice_of_a_switch_are_said_to_give_no_row(
    capsys: pytest.CaptureFixture[str],
) -> None:
    host = str(DATA / "leafspine/r01_clean_write/H1-leaf1.pcap.xz")
    words = ["replay", host, *FABRIC, "--map", "order", "-s", "ecmp"]
    found = result(capsys, *words)
    assert [one["name"] for one in found["strategies"]] == ["ecmp"]  # type: ignore[attr-defined]
    assert any("no row 'as captured'" in line for line in found["warnings"])  # type: ignore[attr-defined]
    generated = result(capsys, "replay", *PATTERN, *FABRIC, "-s", "ecmp")
    assert not any("as captured" in line for line in generated["warnings"])  # type: ignore[attr-defined]


@pytest.mark.thorough
def test_the_loads_as_captured_come_first_packet_by_packet(
    capsys: pytest.CaptureFixture[str], links: list[str]
) -> None:
    fabric = ["--fabric", "leaf-spine:leaves=2,spines=4,hosts=2", "--map", "order"]
    words = ["replay", *links, *fabric, "--packets", "-s", "ecmp"]
    captured, ecmp = result(capsys, *words)["strategies"]  # type: ignore[misc]
    assert (captured["name"], ecmp["name"]) == ("as captured", "ecmp")
    assert captured["packets"] is None and ecmp["packets"]
    assert {link["name"] for link in captured["links"]} <= {link["name"] for link in ecmp["links"]}
    assert captured["max_over_mean"] > 1
    assert cli.run([*words, "--top", "1"]) == 0
    lines = capsys.readouterr().out.splitlines()
    at = next(i for i, line in enumerate(lines) if line.startswith("strategy "))
    assert lines[at].endswith("x fair") and lines[at + 1].startswith("as captured ")
    assert lines[at + 1].endswith(f"{captured['max_over_mean']:.2f}")
    assert "AS CAPTURED" in lines and all(len(line) <= 80 for line in lines)


def test_every_strategy_on_a_captured_run(capsys: pytest.CaptureFixture[str], data: Path) -> None:
    files = [str(f) for f in sorted((data / "leafspine" / "r01_clean_write").glob("H*.pcap.xz"))]
    fabric = ["--fabric", "leaf-spine:leaves=2,spines=4,hosts=2,oversubscription=1"]
    words = ["replay", *files, *fabric, "--map", "order", "--packets", "-s", "all"]
    found = result(capsys, *words, "--offer", "asap")
    names = [one["name"] for one in found["strategies"]]  # type: ignore[attr-defined]
    assert names == [name for name in (*STRATEGIES, *PACKET_STRATEGIES) if name != "mrc"]
    assert "left out: mrc needs a fabric with planes" in found["warnings"][-1]  # type: ignore[index]
    times = {one["name"]: one["completion_time_ns"] for one in found["strategies"]}  # type: ignore[attr-defined]
    assert None not in times.values()
    # 16 queue pairs per host, hashed to 4 uplinks of half its rate, do not fall evenly.
    assert times["ofan"] < 1.01 * min(times.values()) < times["ecmp"] / 1.2
    bounds = {one["lower_bound_ns"] for one in found["strategies"]}  # type: ignore[attr-defined]
    assert len(bounds) == 1 and bounds.pop() < times["ofan"]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["-s", "mrc"], "needs a fabric with planes"),
        (["-s", "ofan:x=1"], "no option 'x' at column 6; it has no options"),
        (["--model", "mtu=0"], "--model: mtu must be 1 to 65,536"),
        (["--model", "ack-every=0"], "--model: ack-every must be 1 to"),
        (["--model", "trim=64"], "trim needs buffer"),
        (["--model", "trim=8kB,buffer=80kB"], "trim must be less than a packet"),
        (["--model", "buffer=1kB"], "buffer of 1,000 B is smaller than a packet"),
        (["--offer", "asap"], "offer needs captures"),
        (["--runs", "0"], "--runs must be 1 to"),
    ],
)
def test_parameters_of_the_packet_engine(
    capsys: pytest.CaptureFixture[str], options: list[str], words: str
) -> None:
    assert cli.run(["replay", *PATTERN, *FABRIC, "--packets", *options]) == 2
    out, err = capsys.readouterr()
    assert not out and words in err and len(err.splitlines()) == 1


def test_a_run_with_a_failure(capsys: pytest.CaptureFixture[str]) -> None:
    fabric = "leaf-spine:leaves=2,spines=4,hosts=4,rate=100G,delay=500ns"
    words = ["replay", "--pattern", "permutation:message-size=256KiB", "--fabric", fabric]
    both = []
    for more in (["--fail", "spine1@10us"], ["--fail", "spine1@10us", "--transport", "rto=70us"]):
        assert cli.run([*words, "-s", "host-spray", *more, "--format", "json"]) == 0
        both += json.loads(capsys.readouterr().out)["strategies"]
    recovered, lost = both
    assert recovered["completion_time_ns"] and recovered["packets"]["model"]["recovery"] == "ideal"
    assert recovered["packets"]["sent_again"] > 0 == lost["packets"]["sent_again"]
    assert cli.run([*words, "-s", "switch-rr", "--fail", "25%@0", "--converge", "0",
                    "--transport", "recovery=ideal,rate=rho-max"]) == 0  # fmt: skip
    text = " ".join(capsys.readouterr().out.split())
    assert "Conditions: recovery ideal" in text and "rate rho-max, fail 25%@0, converge 0" in text
    words[-1] = fabric.replace("leaves=2", "leaves=3")
    uneven = ["--fail", "leaf1-spine1@0", "--converge", "0"]
    assert cli.run([*words, "-s", "host-dr", *uneven]) == 2
    assert "same number of uplinks" in capsys.readouterr().err
    assert cli.run([*words, "-s", "jsq", "--converge", "0"]) == 2
    assert "--converge needs --fail" in capsys.readouterr().err
    assert lost["completion_time_ns"] is None and "without recovery" in lost["notes"][-1]
