"""The strategy of CONTRIBUTING.md works as it stands on the page."""

from __future__ import annotations

import importlib.util
import json
import re
import sys
from pathlib import Path

import numpy as np
import pytest

from rocescope import cli
from rocescope.replay.fabrics.parse import parse_fabric
from rocescope.replay.packets.event_driven import run_event_driven
from rocescope.replay.packets.model.model import Model
from rocescope.replay.packets.offers import collective
from rocescope.replay.packets.open_loop import run_open_loop
from rocescope.replay.strategies import registry as strategies


def test_the_example_strategy_runs(
    checkout: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    page = (checkout / "CONTRIBUTING.md").read_text().partition("## Add a strategy")[2]
    code = re.search(r"```python\n(.*?)```", page, re.DOTALL)
    assert code is not None and len(code[1].splitlines()) <= 40
    file = tmp_path / "two_choices.py"
    file.write_text(code[1])
    name = "rocescope.replay.strategies.switches.two_choices"
    spec = importlib.util.spec_from_file_location(name, file)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, name, module)
    spec.loader.exec_module(module)
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
