"""The examples of CONTRIBUTING.md work as they stand on the page."""

from __future__ import annotations

import importlib.util
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
from captures import data

from rocescope import cli
from rocescope.analyzer.diagnosis import diagnose
from rocescope.analyzer.pipeline.captures import analyze
from rocescope.analyzer.pipeline.options import AnalyzeOptions
from rocescope.replay.fabrics.parse import parse_fabric
from rocescope.replay.packets.event_driven import run_event_driven
from rocescope.replay.packets.model.model import Model
from rocescope.replay.packets.offers import collective
from rocescope.replay.packets.open_loop import run_open_loop
from rocescope.replay.strategies import registry as strategies
from rocescope.report.words import human

WITH_THE_COUNTER = """
import csv, importlib.util, json, sys
import pyarrow.parquet
import rocescope.cli
from rocescope.report.files.schemas import json_schema
from rocescope.tui.flow_columns import COLUMNS
from rocescope.tui.screens.flow_row import flow_cells
from rocescope.tui.session.session import Session

tree, capture = sys.argv[1:]
assert rocescope.cli.__file__.startswith(tree)

def run(*words):
    assert rocescope.cli.run([*words, "-o", f"{tree}/output"]) == 0
    return f"{tree}/output"

analysis = json.load(open(run("analyze", capture, "--format", "json")))
sort = "--sort", "short_packets"
rows = list(csv.DictReader(open(run("analyze", capture, "--format", "csv", *sort))))
parquet = pyarrow.parquet.read_table(run("analyze", capture, "--format", "parquet"))
schema = json_schema("analyze")
spec = importlib.util.spec_from_file_location("generate", f"{tree}/docs/generate.py")
generate = importlib.util.module_from_spec(spec)
spec.loader.exec_module(generate)

session = Session.open([capture])
session.start()
assert session.wait(300)
snapshot = session.snapshot()
session.set_filter("short > 0")
(place,) = (i for i, column in enumerate(COLUMNS) if column.title == "SHORT")
paths = snapshot.paths["entropy"]
print(json.dumps({
    "json": [flow["short_packets"] for flow in analysis["flows"]],
    "csv": [int(row["short_packets"]) for row in rows],
    "parquet": parquet["short_packets"].to_pylist(),
    "schema": schema["$defs"]["Flow"]["properties"]["short_packets"]["description"],
    "docs": [line for line in generate.page().splitlines() if line.startswith("| `short_packets`")],
    "filter": session.passing(snapshot).tolist(),
    "screen": [flow_cells(snapshot, paths, f)[place] for f in range(len(snapshot.flows))],
}))
session.close()
"""
"""Prints what each output says of the counter of the example."""


def test_the_example_counter_reaches_every_output(checkout: Path, tmp_path: Path) -> None:
    page = (checkout / "CONTRIBUTING.md").read_text().partition("## Add a measure")[2]
    measure, declaration = re.findall(r"```python\n(.*?)```", page, re.DOTALL)[:2]
    tree = tmp_path / "rocescope"
    for file in (checkout / "docs/generate.py", checkout / "docs/formats.md"):
        (tree / "docs").mkdir(parents=True, exist_ok=True)
        shutil.copy(file, tree / "docs")
    for file in checkout.glob("*.py"):
        shutil.copy(file, tree)
    product = {path.parent for path in checkout.glob("*/__init__.py")} - {checkout / "tests"}
    for package in product:
        ignored = shutil.ignore_patterns("__pycache__")
        shutil.copytree(package, tree / package.name, dirs_exist_ok=True, ignore=ignored)
    (tree / "analyzer/measures/short_packets.py").write_text(measure)
    results = tree / "analyzer/results/flow.py"
    before, after = results.read_text().split("    capture_loss_suspected_packets: Annotated[")
    results.write_text(
        f"{before}{declaration}    capture_loss_suspected_packets: Annotated[{after}"
    )

    done = subprocess.run(
        [sys.executable, "-c", WITH_THE_COUNTER, str(tree), str(data("c10_rping_ipv4.atB"))],
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert done.returncode == 0, done.stderr
    said = json.loads(done.stdout)
    counts = said["json"]
    assert any(counts)
    assert sorted(said["csv"]) == sorted(said["parquet"]) == sorted(counts)
    assert said["csv"] == sorted(counts, reverse=True)
    assert said["schema"].startswith("packets with a payload of 1 to 63 bytes")
    assert len(said["docs"]) == 1
    assert said["filter"] == [count > 0 for count in counts]
    assert said["screen"] == [human.count(count) for count in counts]


def example(checkout: Path, section: str, file: Path) -> tuple[str, Path]:
    """The page from this section on, and the file with its example."""
    page = (checkout / "CONTRIBUTING.md").read_text().partition(f"## {section}\n")[2]
    code = re.search(r"```python\n(.*?)```", page, re.DOTALL)
    assert code is not None and len(code[1].splitlines()) <= 40
    file.write_text(code[1])
    return page, file


def load_module(name: str, file: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The module of a file, under the name that it has in the project."""
    spec = importlib.util.spec_from_file_location(name, file)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, name, module)
    spec.loader.exec_module(module)
    return module


def test_the_example_finder_finds(
    checkout: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    page, file = example(checkout, "Add a finder", tmp_path / "default_class.py")
    assert "`*default_class.FINDERS,`" in page
    name = "rocescope.analyzer.diagnosis.finders.default_class"
    added = load_module(name, file, monkeypatch).FINDERS
    capture = str(data("c10_rping_ipv4.atB.pcap"))
    before = analyze([capture], AnalyzeOptions()).diagnosis.findings
    monkeypatch.setattr(diagnose, "FINDERS", (*added, *diagnose.FINDERS))
    found = analyze([capture], AnalyzeOptions()).diagnosis.findings
    (new,) = [finding for finding in found if finding not in before]
    assert (new.kind, new.severity) == ("dscp-mismatch", "note")
    assert "with DSCP 0, the default class" in new.sentence


EXAMPLES = {
    "Add a finder": "analyzer/diagnosis/finders/default_class.py",
    "Add a strategy": "replay/strategies/switches/two_choices.py",
}
"""The file that each example becomes, by section of the page."""


@pytest.mark.parametrize("section", EXAMPLES)
def test_ruff_accepts_the_example(section: str, checkout: Path, tmp_path: Path) -> None:
    _, file = example(checkout, section, tmp_path / "example.py")
    name = ["--no-cache", "--stdin-filename", EXAMPLES[section], "-"]
    for words in (["check", *name], ["format", "--diff", *name]):
        with file.open() as text:
            done = subprocess.run(
                [sys.executable, "-m", "ruff", *words],
                stdin=text,
                cwd=checkout,
                capture_output=True,
                timeout=60,
            )
        assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.thorough
def test_mypy_accepts_the_example_strategy(checkout: Path, tmp_path: Path) -> None:
    _, file = example(checkout, "Add a strategy", tmp_path / "two_choices.py")
    # In place of another strategy, so that its relative imports resolve.
    other = "replay/strategies/switches/drill.py"
    module = f"rocescope.{other.removesuffix('.py').replace('/', '.')}"
    done = subprocess.run(
        [
            *(sys.executable, "-m", "mypy", "--cache-dir", str(tmp_path / "cache")),
            *("--shadow-file", f".types/rocescope/{other}", str(file), "-m", module),
        ],
        capture_output=True,
        text=True,
        cwd=checkout,
        timeout=900,
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_example_strategy_runs(
    checkout: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    page, file = example(checkout, "Add a strategy", tmp_path / "two_choices.py")
    load_module("rocescope.replay.strategies.switches.two_choices", file, monkeypatch)
    (place,) = re.findall(r'"two-choices": "([^"]+)"', page)
    monkeypatch.setitem(strategies.PACKET_STRATEGIES, "two-choices", place)

    fabric = "leaf-spine:leaves=2,spines=8,hosts=8,rate=100G"
    words = ["replay", "--pattern", "permutation", "--fabric", fabric, "--format", "json"]
    assert cli.run([*words, "-s", "two-choices", "-s", "switch-random"]) == 0
    two, random = json.loads(capsys.readouterr().out)["strategies"]
    # Two random choices keep queues far shorter than one.
    assert two["completion_time_ns"] and two["max_queue_packets"] < random["max_queue_packets"]

    where, model = parse_fabric(fabric), Model(pfc=None)
    load = collective("permutation", where, model, 1 << 18, 1)
    chosen = strategies.parse_packet_strategy("two-choices")
    one = run_open_loop(load, where, chosen, model, 1)
    other = run_event_driven(load, where, chosen, model, 1).engine
    assert one.completion_ps is not None
    np.testing.assert_array_equal(one.completed_ps, other.completed_ps)
