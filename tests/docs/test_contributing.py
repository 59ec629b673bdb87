"""The examples of CONTRIBUTING.md work as they stand on the page."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from captures import data

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
    file = tree / "analyzer/measures/short_packets.py"
    file.write_text(measure)
    results = tree / "analyzer/results/flow.py"
    before, after = results.read_text().split("    capture_loss_suspected_packets: Annotated[")
    results.write_text(
        f"{before}{declaration}    capture_loss_suspected_packets: Annotated[{after}"
    )
    run_lint(checkout, tree, file, results)

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


def findings_of(analysis: str) -> list[dict[str, str]]:
    """The findings of a result in JSON."""
    findings: list[dict[str, str]] = json.loads(analysis)["diagnosis"]["findings"]
    return findings


def test_the_example_finder_finds(checkout: Path, tree: Path) -> None:
    text = section(checkout, "Add a finder")
    (finder,) = code_of(text)
    assert "`*default_class.FINDERS,`" in text
    analysis = "-m", "rocescope", "analyze", data("c10_rping_ipv4.atB.pcap"), "--format", "json"
    before = findings_of(run_python(checkout, tree, *analysis))

    file = tree / "analyzer/diagnosis/finders/default_class.py"
    file.write_text(finder)
    diagnose = tree / "analyzer/diagnosis/diagnose.py"
    edit(diagnose, "import captures, delays,", "import captures, default_class, delays,")
    last = "    *placement.FINDERS,\n"
    edit(diagnose, last, f"{last}    *default_class.FINDERS,\n")

    run_lint(checkout, tree, file, diagnose)
    findings = findings_of(run_python(checkout, tree, *analysis))
    (new,) = [finding for finding in findings if finding not in before]
    assert (new["kind"], new["severity"]) == ("dscp-mismatch", "note")
    assert "with DSCP 0, the default class" in new["sentence"]


FABRIC = "leaf-spine:leaves=2,spines=8,hosts=8,rate=100G"
WITH_THE_STRATEGY = """
import sys
import numpy as np
from rocescope.replay.fabrics.parse import parse_fabric
from rocescope.replay.packets.event_driven import run_event_driven
from rocescope.replay.packets.model.model import Model
from rocescope.replay.packets.offers import collective
from rocescope.replay.packets.open_loop import run_open_loop
from rocescope.replay.strategies.registry import parse_packet_strategy

fabric, model = parse_fabric(sys.argv[1]), Model(pfc=None)
load = collective("permutation", fabric, model, 1 << 18, 1)
strategy = parse_packet_strategy("two-choices")
open_loop = run_open_loop(load, fabric, strategy, model, 1)
event_driven = run_event_driven(load, fabric, strategy, model, 1).engine
assert open_loop.completion_ps is not None
np.testing.assert_array_equal(open_loop.completed_ps, event_driven.completed_ps)
"""
"""Fails if the drivers differ."""


def test_the_example_strategy_runs(checkout: Path, tree: Path) -> None:
    text = section(checkout, "Add a strategy")
    (strategy,) = code_of(text)
    entry = re.search(r'`("two-choices": "\S+",)`', text)
    assert entry is not None
    file = tree / "replay/strategies/two_choices.py"
    file.write_text(strategy)
    last = '    "mrc": "mrc:Mrc",\n'
    registry = edit(tree / "replay/strategies/registry.py", last, f"{last}    {entry[1]}\n")

    run_lint(checkout, tree, file, registry)
    replay = "replay", "--pattern", "permutation", "--fabric", FABRIC, "--format", "json"
    chosen = "-s", "two-choices", "-s", "switch-random"
    result = json.loads(run_python(checkout, tree, "-m", "rocescope", *replay, *chosen))
    two, random = result["strategies"]
    # Two random choices keep queues far shorter than one.
    assert two["completion_time_ns"] and two["max_queue_packets"] < random["max_queue_packets"]
    run_python(checkout, tree, "-c", WITH_THE_STRATEGY, FABRIC)


@pytest.mark.thorough
def test_mypy_accepts_the_example_strategy(checkout: Path, tmp_path: Path) -> None:
    file = tmp_path / "two_choices.py"
    file.write_text(code_of(section(checkout, "Add a strategy"))[0])
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


@pytest.mark.thorough  # compiles the drivers anew
def test_the_example_congestion_control_keeps_queues_short(checkout: Path, tree: Path) -> None:
    (control,) = code_of(section(checkout, "Add a congestion control"))
    file = tree / "replay/packets/hosts/aimd.py"
    file.write_text(control)
    transport = tree / "replay/packets/hosts/transport.py"
    edit(transport, "from .congestion", "from .aimd import AIMD\nfrom .congestion")
    last = '    "swift": SWIFT,\n'
    edit(transport, last, f'{last}    "aimd": AIMD,\n')

    run_lint(checkout, tree, file, transport)
    replay = "replay", "--pattern", "incast", "--fabric", FABRIC, "--packets", "-s", "ecmp"
    queues = []
    for congestion in ("none", "aimd"):
        conditions = "--transport", f"recovery=sack,congestion={congestion}", "--format", "json"
        result = json.loads(run_python(checkout, tree, "-m", "rocescope", *replay, *conditions))
        (ecmp,) = result["strategies"]
        assert ecmp["completion_time_ns"]
        queues.append(ecmp["max_queue_packets"])
    assert queues[1] < queues[0] / 2


WITH_THE_SCHEME = """
import sys
from rocescope.replay.aggregation.request import parse_schemes

(scheme,) = parse_schemes([sys.argv[1]])
assert scheme.conduct.at_switch
print(scheme.name, scheme.conduct.rto_ps)
"""
"""Compiles the rules of the scheme at a switch."""


def test_the_example_aggregation_scheme_compiles(checkout: Path, tree: Path) -> None:
    (scheme,) = code_of(section(checkout, "Add an aggregation scheme"))
    file = tree / "replay/aggregation/first_come.py"
    file.write_text(scheme)
    request = tree / "replay/aggregation/request.py"
    edit(request, "from .jobs import", "from .first_come import first_come\nfrom .jobs import")
    last = '    "none": no_aggregation,\n'
    edit(request, last, f'{last}    "first-come": first_come,\n')

    run_lint(checkout, tree, file, request)
    options = "first-come:rto=50us"
    name, rto = run_python(checkout, tree, "-c", WITH_THE_SCHEME, options).split()
    assert name == options and int(rto) == 50_000_000


def test_the_example_hash_function_places_flows(checkout: Path, tree: Path) -> None:
    text = section(checkout, "Add a hash function")
    function, entry, its_test = code_of(text)
    row = re.search(r"``(\|.*\|)``", text)
    assert row is not None
    file = tree / "replay/hashing/checksum.py"
    file.write_text(function)
    models = tree / "replay/hashing/models.py"
    edit(models, "from . import functions,", "from . import checksum, functions,")
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
    edit(registry, "from .dialect import", "from .acme import ACME\nfrom .dialect import")
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
