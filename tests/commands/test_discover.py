"""`rocescope discover` as people call it."""

from __future__ import annotations

import json

import pytest
from answers import recorded

from rocescope import cli
from rocescope.replay.fabrics.parse import parse_fabric


@pytest.fixture
def run(capfd, monkeypatch):
    """Run a command line: (exit code, standard output, standard error)."""
    monkeypatch.setenv("COLUMNS", "80")

    def run(*arguments):
        code = cli.run(["discover", *(str(a) for a in arguments)])
        out, err = capfd.readouterr()
        return code, out, err

    return run


@pytest.mark.parametrize("suffix", ["yaml", "json"])
def test_the_fabric_as_a_file(suffix, run, tmp_path):
    file = tmp_path / f"fabric.{suffix}"
    code, out, _ = run(recorded(tmp_path) / "flapped", "-o", file, "--rate", "25G")
    assert code == 0
    assert "4 switches, 4 hosts, 12 links, from the answers of 8 devices" in out
    fabric = parse_fabric(str(file))
    assert fabric.links.rate_bits_per_second[0] == 25_000_000_000
    assert fabric.origin.ports[7] == ("swp4", "swp2")


def test_the_report_as_json(run, tmp_path):
    code, out, _ = run(recorded(tmp_path) / "flapped", "--format", "json")
    assert code == 0
    kinds = [remark["kind"] for remark in json.loads(out)["remarks"]]
    assert kinds == ["management network", "lost member", "lost member"]


def test_the_commands_to_run(run):
    code, out, _ = run("--commands", "frr")
    assert code == 0
    assert "ip -j route > NAME.route.json" in out.splitlines()
    *_, routes, pairs, _, _ = out.splitlines()
    assert routes == "vtysh -c 'show ip route json' > NAME.frr-route.json"
    assert pairs == "rdma -j resource show qp > NAME.qp.json"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((), "give an inventory or a folder with answers, or --commands linux"),
        (("nowhere",), "nowhere is not a folder with answers of devices"),
        ((".", "-o", "x.txt"), "the suffix of x.txt is not .yaml or .json"),
        ((".", "--rate", "fast"), "--rate"),
        ((".", "--raw", "raw"), "--raw and --dry-run need an inventory"),
    ],
)
def test_mistakes(arguments, message, run):
    code, out, err = run(*arguments)
    assert (code, out) == (2, "")
    assert message in err


def test_a_damaged_answer_in_a_folder_is_a_failure(run, tmp_path):
    folder = recorded(tmp_path) / "healthy"
    (folder / "leaf1.lldp.json").write_text("[" * 100_000)
    code, out, _ = run(folder)
    assert code == 1
    assert "unexpected answer: leaf1: leaf1.lldp.json: not the output of" in " ".join(out.split())


def test_what_would_run_where(run, tmp_path):
    file = tmp_path / "inventory.yaml"
    file.write_text("switches: {leaf1: {dialect: frr, ssh: mgmt1}}\nhosts: {h1: }\n")
    code, out, _ = run(file, "--dry-run", "--raw", tmp_path / "raw")
    lines = out.splitlines()
    assert code == 0
    assert lines[0] == "leaf1 (switch, frr, ssh mgmt1): ip -j route"
    assert "leaf1 (switch, frr, ssh mgmt1): vtysh -c 'show ip route json'" in lines
    assert lines[-1].startswith("h1 (host, linux, ssh h1): ")
    assert not (tmp_path / "raw").exists()


def test_the_gate(run):
    code, out, _ = run("--print-gate", "frr")
    assert code == 0
    assert out.startswith("#!/bin/sh\n")
    assert "vtysh -c 'show ip route json'" in out
