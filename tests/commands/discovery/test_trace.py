"""`rocescope trace` as people call it."""

from __future__ import annotations

import csv
import json

import pytest
from answers import routers_of

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
