"""`rocescope fabric` and `rocescope generate` as people call them."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path

import jsonschema
import pytest
from traced_lab import lab

from rocescope import cli
from rocescope.discovery.asking import Said
from rocescope.replay.fabrics.parse import parse_fabric
from rocescope.report.files.results import json_schema

# `rocescope fabric` and `rocescope generate` as people call them.


@pytest.fixture
def run(capfd, monkeypatch):
    """Run a command line: (exit code, standard output, standard error)."""
    monkeypatch.setenv("COLUMNS", "80")

    def run(*arguments):
        code = cli.run([str(a) for a in arguments])
        out, err = capfd.readouterr()
        return code, out, err

    return run


def test_the_report(run):
    code, out, _ = run("fabric", "leaf-spine:leaves=4,spines=4,hosts=8,oversubscription=2")
    assert code == 0
    assert out.splitlines()[0].endswith("32 hosts, 8 switches")
    assert "Every host reaches every other host over at most 4 links" in out
    leaf, tables = [line.split() for line in out.splitlines() if line.startswith("leaf  ")]
    assert tables == ["leaf", "3", "1", "4", "13"]
    assert leaf == ["leaf", "4", "3.20", "Tb/s", "1.60", "Tb/s", "2:1"]
    assert all(len(line) <= 80 for line in out.splitlines())


def test_paths_and_blast_radius(run):
    spec = "multi-plane:planes=2,leaves=2,spines=4,hosts=4"
    code, out, _ = run("fabric", spec, "--paths", "host1,host8", "--blast-radius", "each")
    assert code == 0
    assert "8 of equal cost, 4 by each of 2 ports, through at most 3 switches" in out
    assert ["plane1.spine1", "4", "8", "0", "-", "25", "%", "7/8"] in [
        line.split() for line in out.splitlines()
    ]
    assert all(len(line.rstrip()) <= 80 for line in out.splitlines())
    code, _, err = run("fabric", spec, "--paths", "host1,host99")
    assert code == 2 and "'host99'" in err and len(err.splitlines()) == 1


def test_a_fabric_that_does_not_work_is_exit_1(run):
    code, out, _ = run("fabric", "rail:rails=2,servers=2,spines=0")
    assert code == 1 and "cannot reach each other" in out


def test_json(run):
    code, out, _ = run("fabric", "fat-tree:k=4", "--format", "json")
    report = json.loads(out)
    assert code == 0 and next(iter(report)) == "schema_version"
    assert (report["hosts"], report["switches"], report["bisection_ratio"]) == (16, 20, 1.0)


@pytest.mark.parametrize("suffix", ["yaml", "json", "graphml"])
def test_conversion(suffix, run, tmp_path):
    file = tmp_path / f"f.{suffix}"
    assert run("fabric", "fat-tree:k=4,down=leaf1-spine2", "-o", file)[0] == 0
    code, out, _ = run("fabric", "fat-tree:k=4,down=leaf1-spine2", "--to", suffix)
    assert code == 0 and out.encode() == file.read_bytes()
    assert parse_fabric(str(file)).hosts == 16


def test_help_on_parameters(run):
    code, out, _ = run("fabric", "rail:help")
    assert code == 0 and "  servers " in out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("fabric", "leaf-spine:leaves=x"), "leaves 'x' is not a whole number"),
        (("fabric", "fat-tree:k=4", "-o", "x.doc"), "suffix of x.doc selects no format"),
        (("generate", "star", "-o", "x.pcap"), "no pattern 'star'"),
        (("generate", "random", "-o", "x.pcap", "--hosts", "1"), "--hosts must be 2 to"),
        (("generate", "random", "-o", "x.pcap", "--snaplen", "20"), "--snaplen must be 0 or 90"),
        (("generate", "random", "-o", "x.pcap", "--message-size", "big"), "--message-size 'big'"),
        (("generate", "random", "-o", "x.pcap", "--rate", "1"), "--rate '1' has no unit"),
        (("generate", "random", "-o", "x.pcap", "--seed", "-1"), "--seed must be 0 or more"),
        (("generate", "random", "-o", "x.pcap", "--operation", "read"), "--operation must be"),
        (
            ("generate", "random", "-o", "x.pcap", "--fabric", "fat-tree:k=4", "--hosts", "17"),
            "--hosts 17 is more than the 16 hosts",
        ),
    ],
)
def test_mistakes_are_one_line_and_exit_2(arguments, message, run, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    code, out, err = run(*arguments)
    assert code == 2 and out == "" and message in err and err.count("\n") == 1
    assert not list(tmp_path.iterdir())


def test_generate_writes_what_analyze_reads(run, tmp_path):
    file = tmp_path / "g.pcap"
    code, out, err = run(
        "generate", "permutation", "-o", file, "--fabric", "leaf-spine:leaves=2,hosts=4",
        "--qps", 2, "--spray", 4, "--message-size", "64KiB", "--snaplen", 0,
    )  # fmt: skip
    assert code == 0 and out == ""
    # 8 hosts x 2 queue pairs x 4 messages of 8 packets and an ACK
    assert "576 packets of 16 queue pairs" in err
    code, out, _ = run("analyze", file, "--icrc", "--format", "json")
    analysis = json.loads(out)
    assert code == 0 and analysis["events"] == [] and analysis["warnings"] == []
    assert len(analysis["connections"]) == 16
    sprayed = [f["spraying_width"] for f in analysis["flows"] if f["payload_bytes"]]
    assert sprayed == pytest.approx([4.0] * 16, rel=1e-3)
    assert {f["src"] for f in analysis["flows"]} == {f"10.0.0.{n}" for n in range(1, 9)}


# aggregate as a program: results, exit codes, one line for a mistake.

FABRIC = ["--fabric", "leaf-spine:leaves=1,spines=1,hosts=16,rate=100G"]
JOBS = ["--jobs", "count=2,workers=3,fragments=100,window=32,iterations=2"]
WORDS = ["aggregate", *FABRIC, *JOBS, "--memory", "48", "-s", "atp", "-s", "esa"]


def test_json_keeps_to_its_schema(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.run([*WORDS, "--format", "json"]) == 0
    found = json.loads(capsys.readouterr().out)
    jsonschema.validate(found, json_schema("aggregate"))
    assert [one["name"] for one in found["schemes"]] == ["atp", "esa"]
    assert any(text.startswith("esa: the values of priorities") for text in found["assumed"])


def test_rows_per_scheme_and_job(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.run([*WORDS, "--format", "csv"]) == 0
    rows = list(csv.DictReader(io.StringIO(capsys.readouterr().out)))
    assert [(row["scheme"], row["name"]) for row in rows] == [
        ("atp", "job1 comm"), ("atp", "job2 comm"), ("esa", "job1 comm"), ("esa", "job2 comm"),
    ]  # fmt: skip
    assert all(float(row["completion_ns"]) > 0 for row in rows)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--runs", "0"], "--runs must be 1 to"),
        (["--loss", "0.9"], "--loss must be 0 to 0.5"),
        (["--loss", "nan"], "--loss must be 0 to 0.5"),
        (["--duplicate", "0.3", "--reorder", "0.3"], "must be at most 0.5"),
        (["--jitter", "-1"], "--jitter must be 0 to 10"),
        (["--seed", "-1"], "--seed must be 0 to"),
        (["--memory", "0"], "--memory must be 1 to"),
        (["-s", "magic"], "there is no scheme 'magic'"),
        (["--jobs", "workers=70"], "workers '70' is not a whole number from 1 to 62"),
        (["--jobs", "count=3,workers=8"], "do not fit the free hosts"),
        (["--until", "soon"], "--until"),
        (["--top", "0"], "--top must be 1 or more"),
        (["--jobs", ""], "--jobs is empty"),
    ],
)
def test_mistakes(capsys: pytest.CaptureFixture[str], words: list[str], said: str) -> None:
    assert cli.run([*WORDS, *words]) == 2
    error = capsys.readouterr().err
    assert said in error and error.count("\n") == 1


def test_a_captured_ring_is_a_job(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    ring = str(tmp_path / "ring.pcap")
    words = ["--hosts", "4", "--message-size", "99200", "--messages", "2"]
    assert cli.run(["generate", "ring-allreduce", "-o", ring, *words]) == 0
    words = ["aggregate", ring, *FABRIC, "-s", "atp", "--format", "json"]
    assert cli.run([*words, "--jobs", "workers=2,fragments=50,window=32"]) == 0
    first, other = json.loads(capsys.readouterr().out)["jobs"]
    assert first["name"] == "job1 captured ring" and len(first["workers"]) == 4
    # 400 packets of 248 bytes, twice and without a silence between them.
    assert abs(first["fragments"] * first["iterations"] - 800) <= 2 and first["captured_ns"] > 0
    assert other["name"] == "job2 comm" and other["captured_ns"] is None
    assert not {*first["workers"], first["server"]} & {*other["workers"], other["server"]}

    assert cli.run([*words[:-2], "--window", "0"]) == 2
    assert "--window must be 1 to" in capsys.readouterr().err
    assert cli.run(["aggregate", *FABRIC]) == 2
    assert "give captures, or jobs with --jobs" in capsys.readouterr().err
    assert cli.run([*WORDS, "--map", "order"]) == 2
    assert "need captures" in capsys.readouterr().err


# `rocescope recover-seed --ask` as people call it; captures: `test_replay.py`.

SEEDS = ("--seeds", "0:0x10000")


@pytest.fixture
def run_recover_seed(capfd, monkeypatch):
    """Run a command line: (exit code, standard output)."""
    monkeypatch.setenv("COLUMNS", "80")

    def run(*arguments):
        code = cli.run(["recover-seed", *(str(a) for a in arguments)])
        return code, " ".join(capfd.readouterr().out.split())

    return run


@pytest.fixture
def routers(need_tool, root):
    need_tool("ip")
    with lab() as made:
        yield made


@pytest.fixture
def asked(routers, tmp_path):
    """The options that ask leaf1 of the lab."""
    folder = routers.save(tmp_path / "answers")
    assert cli.run(["discover", str(folder), "-o", str(tmp_path / "fabric.yaml")]) == 0
    return "--ask", "leaf1", "--fabric", tmp_path / "fabric.yaml"


def test_a_router_is_learned_and_tested(run_recover_seed, routers, asked):
    code, out = run_recover_seed(*asked, "--devices", f"netns:{routers.prefix}", *SEEDS)
    assert code == 0
    assert "Verified with other flows: 200 of 200 answers name the computed link." in out


def linear(ports):
    """A switch whose link is an XOR of bits of the UDP source port: no hash of Linux does this."""

    def run(requests):
        lines = []
        for line in requests[0].stdin.decode().splitlines():
            words = line.split()
            dst, src, iif, sport = words[2], words[4], words[6], int(words[10])
            link = (sport >> 3 ^ sport >> 7) & 1 | ((sport >> 2 ^ sport >> 9) & 1) << 1
            answer = {"dst": dst, "from": src, "iif": iif, "dev": ports[link]}
            lines.append(json.dumps([answer]) + "\n")
        return [Said("".join(lines).encode(), "")]

    return run


@pytest.mark.thorough
def test_a_function_without_a_seed_is_not_tested(run_recover_seed, routers, asked, monkeypatch):
    ports = [routers.up(cable) for cable in routers.cables if cable.leaf == 1]
    name = "rocescope.discovery.collect.parse_devices"
    monkeypatch.setattr(name, lambda text: linear(ports))
    code, out = run_recover_seed(*asked, "--devices", "netns:x", *SEEDS)
    assert "An unknown linear function fits" in out
    assert "not tested with other flows" in out
    assert "Verified with" not in out
    assert code == 1
