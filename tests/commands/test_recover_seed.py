"""`rocescope recover-seed --ask` as people call it; captures: `test_replay.py`."""

from __future__ import annotations

import json

import pytest
from traced_lab import lab

from rocescope import cli
from rocescope.discovery.asking import Said

SEEDS = ("--seeds", "0:0x10000")


@pytest.fixture
def run(capfd, monkeypatch):
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


def test_a_router_is_learned_and_tested(run, routers, asked):
    code, out = run(*asked, "--devices", f"netns:{routers.prefix}", *SEEDS)
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
def test_a_function_without_a_seed_is_not_tested(run, routers, asked, monkeypatch):
    ports = [routers.up(cable) for cable in routers.cables if cable.leaf == 1]
    name = "rocescope.discovery.collect.parse_devices"
    monkeypatch.setattr(name, lambda text: linear(ports))
    code, out = run(*asked, "--devices", "netns:x", *SEEDS)
    assert "An unknown linear function fits" in out
    assert "not tested with other flows" in out
    assert "Verified with" not in out
    assert code == 1
