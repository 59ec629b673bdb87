"""The finder and the strategy of CONTRIBUTING.md work as they stand on the page."""

from __future__ import annotations

import importlib.util
import json
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
from rocescope.analyzer.analysis.analyze import analyze
from rocescope.analyzer.analysis.options import AnalyzeOptions
from rocescope.analyzer.diagnosis import diagnose
from rocescope.replay.fabrics.parse import parse_fabric
from rocescope.replay.packets.drivers.event_driven import run_event_driven
from rocescope.replay.packets.drivers.runner import run_open_loop
from rocescope.replay.packets.model.model import Model
from rocescope.replay.packets.offers.collectives import collective
from rocescope.replay.strategies import registry as strategies


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


def test_the_example_finder_passes_the_linter(checkout: Path, tmp_path: Path) -> None:
    ruff = shutil.which("ruff", path=Path(sys.executable).parent) or shutil.which("ruff")
    if ruff is None:
        pytest.skip("no ruff")
    _, file = example(checkout, "Add a finder", tmp_path / "default_class.py")
    name = ["--stdin-filename", str(checkout / "analyzer/diagnosis/finders/default_class.py"), "-"]
    for words in (["check", *name], ["format", "--check", *name]):
        with file.open() as text:
            done = subprocess.run([ruff, *words], stdin=text, cwd=checkout, capture_output=True)
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
