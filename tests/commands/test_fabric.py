"""`rocescope fabric` and `rocescope generate` as people call them."""

from __future__ import annotations

import json

import pytest

from rocescope import cli
from rocescope.replay.fabrics.parse import parse_fabric


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
