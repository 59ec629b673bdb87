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
from rocescope.report import human

WITH_THE_COUNTER = """
import csv, importlib.util, json, sys
import pyarrow.parquet
import rocescope.cli
from rocescope.report.files.results import json_schema
from rocescope.tui.settings import COLUMNS
from rocescope.tui.screens.qps import flow_cells
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


def section(checkout: Path, title: str) -> str:
    """The text below a title of CONTRIBUTING.md."""
    page = (checkout / "CONTRIBUTING.md").read_text()
    return page.partition(f"\n## {title}\n")[2].partition("\n## ")[0]


def code_of(text: str) -> list[str]:
    """The blocks of Python in a text."""
    return re.findall(r"```python\n(.*?)```", text, re.DOTALL)


def copy_file(checkout: Path, tree: Path, name: str) -> Path:
    """Copy a file that is not part of the product."""
    (tree / name).parent.mkdir(parents=True, exist_ok=True)
    return Path(shutil.copy(checkout / name, tree / name))


def edit(file: Path, old: str, new: str) -> Path:
    """Replace a text that is in a file once."""
    text = file.read_text()
    assert text.count(old) == 1, f"{file.name} has {text.count(old)} times {old!r}"
    file.write_text(text.replace(old, new))
    return file


@pytest.fixture
def tree(checkout: Path, tmp_path: Path) -> Path:
    """A copy of the product, in which an example is carried out."""
    tree = tmp_path / "rocescope"
    tree.mkdir()
    for file in checkout.glob("*.py"):
        shutil.copy(file, tree)
    for package in {path.parent for path in checkout.glob("*/__init__.py")} - {checkout / "tests"}:
        ignored = shutil.ignore_patterns("__pycache__")
        shutil.copytree(package, tree / package.name, dirs_exist_ok=True, ignore=ignored)
    return tree


def run_python(checkout: Path, tree: Path, *words: str | Path) -> str:
    """The output of Python with the copy of the product, which must succeed."""
    folders = os.pathsep.join(map(str, (tree.parent, checkout / "tests/support")))
    done = subprocess.run(
        [sys.executable, *map(str, words)],
        cwd=tree.parent,
        env=os.environ | {"PYTHONPATH": folders},
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def run_lint(checkout: Path, tree: Path, *files: Path) -> None:
    """Check the style of files as `make lint` does."""
    for words in (("check",), ("format", "--check", "--diff")):
        settings = "--no-cache", "--config", checkout / "pyproject.toml"
        run_python(checkout, tree, "-m", "ruff", *words, *settings, *files)


def run_tests(checkout: Path, tree: Path, *files: Path) -> None:
    """Run tests in the copy of the product."""
    copy_file(checkout, tree, "tests/conftest.py")
    run_python(checkout, tree, "-m", "pytest", "-q", "-p", "no:cacheprovider", *files)


def test_the_example_counter_reaches_every_output(checkout: Path, tree: Path) -> None:
    measure, declaration = code_of(section(checkout, "Add a measure"))
    for name in ("generate.py", "formats.md"):
        copy_file(checkout, tree, f"docs/{name}")
    (tree / "analyzer/measures/short_packets.py").write_text(measure)
    results = tree / "analyzer/results/flow.py"
    before, after = results.read_text().split("    capture_loss_suspected_packets: Annotated[")
    results.write_text(
        f"{before}{declaration}    capture_loss_suspected_packets: Annotated[{after}"
    )

    capture = data("c10_rping_ipv4.atB.pcap")
    said = json.loads(run_python(checkout, tree, "-c", WITH_THE_COUNTER, tree, capture))
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
    other = "replay/strategies/shortest_queue.py"
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


def test_the_example_hash_function_places_flows(checkout: Path, tree: Path) -> None:
    text = section(checkout, "Add a hash function")
    function, entry, its_test = code_of(text)
    row = re.search(r"``(\|.*\|)``", text)
    assert row is not None
    file = tree / "replay/hashing/functions/checksum.py"
    file.write_text(function)
    models = tree / "replay/hashing/models.py"
    edit(models, "from .functions import crc,", "from .functions import checksum, crc,")
    edit(models, "]\n\nMODELS", f"{entry}]\n\nMODELS")
    last = "| `random-oracle` | 32 | nonlinear | ideal random hashing |\n"
    edit(copy_file(checkout, tree, "docs/hashing.md"), last, f"{last}{row[1]}\n")
    test = copy_file(checkout, tree, "tests/docs/test_hashing.py").with_name("test_checksum.py")
    test.write_text(its_test)

    run_lint(checkout, tree, file, models, test)
    run_tests(checkout, tree, test.parent)
    fabric = "leaf-spine:leaves=2,spines=4,hosts=8"
    replay = "replay", "--pattern", "permutation", "--fabric", fabric, "--format", "json"
    strategy = "ecmp:hash=checksum,seed=7"
    said = json.loads(run_python(checkout, tree, "-m", "rocescope", *replay, "-s", strategy))
    assert said["strategies"][0]["parameters"]["hash"] == "checksum"


def test_the_example_dialect_reads_a_fabric(checkout: Path, tree: Path) -> None:
    text = section(checkout, "Add a dialect")
    dialect, its_test = code_of(text)
    file = tree / "discovery/dialects/acme.py"
    file.write_text(dialect)
    registry = tree / "discovery/dialects/registry.py"
    edit(registry, "from .cumulus import", "from .acme import ACME\nfrom .cumulus import")
    edit(registry, "VRP)", "VRP, ACME)")
    command = edit(tree / "commands/discover.py", '"vrp"]', '"vrp", "acme"]')
    test = tree / "tests/test_acme.py"
    test.parent.mkdir()
    test.write_text(its_test)

    run_lint(checkout, tree, file, registry, command, test)
    run_tests(checkout, tree, test)
    asked = run_python(checkout, tree, "-m", "rocescope", "discover", "--commands", "acme")
    assert asked.splitlines() == [
        "show ports json > NAME.acme-ports.json",
        "show hardware routes json > NAME.acme-routes.json",
        "show lldp json > NAME.acme-lldp.json",
    ]
