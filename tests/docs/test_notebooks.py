"""The examples of the notebook page run on captures and give what tshark counts."""

from __future__ import annotations

import json
import re
import subprocess
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import nbformat
import pytest
from examples import first
from nbclient import NotebookClient

# The examples of the notebook page run on captures and give what tshark counts.

NAKS, MARKS = "c40_rc_oddities_ipv4.atB.pcap", "i13_write_ecn_ce2_AtoB.atB.pcap.gz"


@pytest.fixture(scope="module", params=[NAKS, MARKS])
def capture(request: pytest.FixtureRequest, data: Path) -> Path:
    """A capture with NAKs of several codes, and one with CE marks."""
    return data / str(request.param)


@pytest.fixture(scope="module")
def names(
    checkout: Path, capture: Path, tmp_path_factory: pytest.TempPathFactory
) -> dict[str, Any]:
    """The variables left by all code blocks of the page, run in order like a notebook."""
    folder = tmp_path_factory.mktemp("notebook")
    (folder / "capture.pcap").symlink_to(capture)
    blocks = re.findall(
        r"```python\n(.*?)```", (checkout / "docs/notebooks.md").read_text(), re.DOTALL
    )
    assert len(blocks) == 7
    variables: dict[str, Any] = {}
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        for block in blocks:
            exec(block, variables)
    return variables


@pytest.fixture(scope="module")
def tshark_rows(capture: Path, need_tool: Callable[[str], str]) -> list[list[str]]:
    arguments = [need_tool("tshark"), "-n", "-r", str(capture), "-Y", "infiniband.bth"]
    arguments += ["-T", "fields", "-E", "occurrence=f"]
    for field in "ip.src ip.dst infiniband.bth.destqp udp.srcport frame.len ip.dsfield.ecn".split():
        arguments += ["-e", field]
    arguments += ["-e", "infiniband.aeth.syndrome"]
    lines = subprocess.run(arguments, capture_output=True, text=True, check=True).stdout
    return [line.split("\t") for line in lines.splitlines()]


def test_results(capture: Path, names: dict[str, Any]) -> None:
    assert names["worst"]["retransmitted_packets"][0] == max(
        flow.retransmitted_packets or 0 for flow in names["result"].flows
    )


@pytest.mark.thorough
def test_the_notebook_runs(checkout: Path, capture: Path, tmp_path: Path) -> None:
    notebook = nbformat.read(checkout / "docs/first-look.ipynb", as_version=4)
    (tmp_path / "capture.pcap").symlink_to(capture)
    done = NotebookClient(
        notebook, timeout=300, resources={"metadata": {"path": tmp_path}}
    ).execute()
    shown = [
        output["data"]
        for cell in done.cells
        if cell.cell_type == "code"
        for output in cell.outputs
        if "data" in output
    ]
    assert len(shown) == 4
    assert "<table>" in shown[0]["text/html"]


@pytest.mark.thorough
def test_bytes_per_flow(names: dict[str, Any], tshark_rows: list[list[str]]) -> None:
    by_flow: Counter[tuple[str, ...]] = Counter()
    for src, dst, qp, _, length, *_ in tshark_rows:
        by_flow[src, dst, qp] += int(length)
    largest = sorted(by_flow.values(), reverse=True)[:10]
    assert names["per_port"]["wire_bytes"].to_list() == largest


def test_marked_packets(capture: Path, names: dict[str, Any], tshark_rows: list[list[str]]) -> None:
    marked = names["marked"]
    assert marked["packets"].sum() == len(tshark_rows)
    ce = round((marked["ce"] * marked["packets"]).sum())
    assert ce == sum(row[5] == "3" for row in tshark_rows)
    assert ce == (443 if MARKS == capture.name else 0)


def test_naks_by_code(capture: Path, names: dict[str, Any], tshark_rows: list[list[str]]) -> None:
    expected: Counter[int] = Counter()
    for *_, syndrome in tshark_rows:
        if syndrome and int(syndrome, 0) & 0x60 == 0x60:
            expected[int(syndrome, 0)] += 1
    found: Counter[int] = Counter()
    for *_, syndrome, packets in names["naks"].fetchall():
        found[syndrome] += packets
    assert found == expected
    assert sum(found.values()) == (39 if NAKS == capture.name else 0)


def test_silences(names: dict[str, Any]) -> None:
    longest = [row[-1] for row in names["silences"].fetchall()]
    assert 8 <= len(longest) <= 10
    assert longest == sorted(longest, reverse=True)
    assert all(gap > 0 for gap in longest)


# The example notebooks give the outputs that they show.


@pytest.mark.thorough
@pytest.mark.parametrize("name", first(1, ["incident", "hashes"]))
def test_a_notebook_shows_what_it_gives(
    checkout: Path, tmp_path: Path, golden: Callable[[str, str], None], name: str
) -> None:
    notebook = nbformat.read(checkout / f"docs/{name}.ipynb", as_version=4)
    (tmp_path / "docs").mkdir()
    (tmp_path / "tests").symlink_to(checkout / "tests")
    resources = {"metadata": {"path": tmp_path / "docs"}}
    done = NotebookClient(notebook, timeout=300, resources=resources).execute()
    done.metadata = {"kernelspec": done.metadata["kernelspec"], "language_info": {"name": "python"}}
    shown: list[dict[str, Any]] = []
    for cell in done.cells:
        cell.metadata = {}
        shown += cell.get("outputs", [])
    golden(f"docs/{name}.ipynb", json.dumps(done, indent=1, ensure_ascii=False) + "\n")
    assert all(output["output_type"] != "error" for output in shown)
    assert sum("image/svg+xml" in output.get("data", {}) for output in shown) >= 3
    if name == "incident":
        report = (tmp_path / "docs/incident.html").read_text()
        assert "spine2 loses everything from leaf2 to leaf1" in report
