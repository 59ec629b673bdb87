"""`rocescope trace` as people call it."""

from __future__ import annotations

import csv
import json
import struct

import pytest
from answers import routers_of
from router_namespaces import frames, mac
from traced_lab import lab

from rocescope import cli


@pytest.fixture
def run(capfd, monkeypatch):
    """Run a command line: (exit code, standard output, standard error)."""
    monkeypatch.setenv("COLUMNS", "80")

    def run(*arguments):
        code = cli.run(["trace", *(str(a) for a in arguments)])
        out, err = capfd.readouterr()
        return code, out, err

    return run


@pytest.fixture
def files(data):
    return sorted((data / "leafspine" / "r01_clean_write").glob("H[13]*.pcap.xz"))


@pytest.fixture
def routers(data, tmp_path):
    topology = data / "leafspine" / "r01_clean_write" / "topology.json"
    return f"linux:{routers_of(json.loads(topology.read_text()), tmp_path)}"


def test_report_and_rows(run, files, routers, tmp_path):
    code, out, _ = run(*files, "--fabric", routers, "-s", "static", "--top", 2)
    assert code == 0
    assert "flows is known to the destination" in " ".join(out.split())
    assert all(len(line) <= 80 for line in out.splitlines())
    code, _, _ = run(*files, "--fabric", routers, "-s", "static", "-o", tmp_path / "paths.csv")
    assert code == 0
    rows = list(csv.DictReader((tmp_path / "paths.csv").open()))
    assert all(row["complete"] == "true" for row in rows)
    assert rows[0]["links"].split()[1].startswith("leaf")


def test_mistakes(run, files, routers):
    code, _, err = run(*files, "--fabric", routers, "--top", 0)
    assert (code, "--top must be 1 or more" in err) == (2, True)
    code, _, err = run(files[0], files[0], "--fabric", routers)
    assert (code, "is given twice" in err) == (2, True)
    code, _, err = run(*files, "--fabric", "leaf-spine:leaves=2")
    assert (code, "no flow runs between hosts" in err) == (2, True)


def test_verified_with_taps(run, data):
    files = sorted((data / "leafspine" / "r01_clean_write").glob("leaf1-*.pcap.gz"))
    fabric = "leaf-spine:leaves=2,spines=4,hosts=2"
    code, out, _ = run(*files, "--fabric", fabric, "--map", "order", "--verify", "taps")
    assert code == 0
    # No hash is known: the taps decide, and nothing was predicted there.
    assert "0 of 0 predicted hops on captured links agree" in out
    assert "Not checked (no tap)" in out
    code, _, err = run(files[0], "--fabric", fabric, "--verify", "taps")
    assert (code, "captures of several taps" in err) == (2, True)


def test_counters_need_two_readings(run, files, routers, tmp_path):
    code, _, err = run(*files, "--fabric", routers, "--verify", "counters")
    assert (code, "needs --counters BEFORE --counters AFTER" in err) == (2, True)
    both = ("--verify", "counters", "--counters", tmp_path, "--counters", tmp_path / "x")
    code, _, err = run(*files, "--fabric", routers, *both)
    assert (code, "NAME.link.json" in err) == (2, True)


@pytest.mark.usefixtures("root")
def test_asked_and_advised(run, need_tool, tmp_path):
    """Real routers in namespaces, as people call the command."""
    need_tool("ip")
    with lab() as routers:
        fabric = routers.save(tmp_path / "answers")
        assert cli.run(["discover", str(fabric), "-o", str(tmp_path / "fabric.yaml")]) == 0
        frames_of = frames(routers.flows(120, 4), mac(1, 1, 1))
        capture = [struct.pack("<IHHiIII", 0xA1B23C4D, 2, 4, 0, 0, 65535, 1)]
        for number, frame in enumerate(frames_of):
            size = len(frame)
            capture += [struct.pack("<IIII", 1_700_000_000, 1000 * number, size, size), frame]
        (tmp_path / "hosts.pcap").write_bytes(b"".join(capture))
        ways = ("--devices", f"netns:{routers.prefix}", "--ask", "all", "--advise")
        common = ("--fabric", tmp_path / "fabric.yaml", *ways)
        code, out, _ = run(tmp_path / "hosts.pcap", *common)
    text = " ".join(out.split())
    assert code == 0
    assert "240 of 240 questions answered by 3 switches; 240 of 240 answers agree" in text
    assert "Judge the changes; nothing is applied." in text
