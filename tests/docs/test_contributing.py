"""The strategy of CONTRIBUTING.md works, and passes lint, as it stands on the page."""

from __future__ import annotations

import importlib.util
import json
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from rocescope import cli
from rocescope.replay.fabrics.parse import parse_fabric
from rocescope.replay.packets.drivers.event_driven import run_event_driven
from rocescope.replay.packets.drivers.runner import run_open_loop
from rocescope.replay.packets.model.model import Model
from rocescope.replay.packets.offers.collectives import collective
from rocescope.replay.strategies import registry as strategies

FOLDER = "replay/strategies/switches"


def example(checkout: Path) -> tuple[str, str]:
    """(the file of the strategy, the place in its line of the registry)."""
    page = (checkout / "CONTRIBUTING.md").read_text().partition("## Add a strategy")[2]
    code = re.search(r"```python\n(.*?)```", page, re.DOTALL)
    assert code is not None and len(code[1].splitlines()) <= 40
    (place,) = re.findall(r'"two-choices": "([^"]+)"', page)
    return code[1], place


@pytest.mark.parametrize("words", [["check"], ["format", "--diff"]])
def test_ruff_accepts_the_example(checkout: Path, words: list[str]) -> None:
    ruff = [sys.executable, "-m", "ruff", *words, "--no-cache"]
    subprocess.run(
        [*ruff, "--stdin-filename", f"{FOLDER}/two_choices.py", "-"],
        input=example(checkout)[0],
        text=True,
        cwd=checkout,
        check=True,
        timeout=60,
    )


@pytest.mark.thorough
def test_mypy_accepts_the_example(checkout: Path, tmp_path: Path) -> None:
    file = tmp_path / "two_choices.py"
    file.write_text(example(checkout)[0])
    # In place of another strategy, so that its relative imports are found.
    other = f".types/rocescope/{FOLDER}/drill.py"
    mypy = [sys.executable, "-m", "mypy", "--cache-dir", str(tmp_path / "cache")]
    mypy += ["--shadow-file", other, str(file)]
    mypy += ["-m", f"rocescope.{FOLDER.replace('/', '.')}.drill"]
    done = subprocess.run(
        [
            *mypy,
            "--shadow-file",
            other,
            str(file),
            "-m",
            "rocescope.replay.strategies.switches.drill",
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
    code, place = example(checkout)
    file = tmp_path / "two_choices.py"
    file.write_text(code)
    name = "rocescope.replay.strategies.switches.two_choices"
    spec = importlib.util.spec_from_file_location(name, file)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, name, module)
    spec.loader.exec_module(module)
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
