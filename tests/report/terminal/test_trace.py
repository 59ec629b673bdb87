"""The report of `trace`."""

from __future__ import annotations

import io

import pytest
from answers import recorded, traffic_of, truth

from rocescope.discovery.asking import Said
from rocescope.discovery.discover import discover_folder
from rocescope.discovery.tracing.asking import Asking
from rocescope.discovery.tracing.trace import trace
from rocescope.replay.strategies.registry import parse_strategy
from rocescope.report.terminal.page import page_on
from rocescope.report.terminal.trace import fill_trace


def printed(folder, *strategies):
    fabric = discover_folder(folder / "healthy", 10**10, 500).fabric
    units = traffic_of(fabric, truth(folder, "healthy"))
    stream = io.StringIO()
    others = [parse_strategy(s) for s in strategies]
    fill_trace(page_on(stream), trace(units, fabric, others, ["x"], advice=True), 3)
    return " ".join(stream.getvalue().split())


@pytest.mark.thorough
def test_known_paths_loads_and_flows(tmp_path):
    text = printed(recorded(tmp_path), "static")
    assert "The path of 256 of 256 flows is known to the destination." in text
    assert "static changes the FIM of flows from" in text
    assert "leaf1 leaf-spine 4" in text
    assert "LARGEST FLOWS" in text


def test_paths_that_end_early_are_named_and_nothing_else_is_claimed(tmp_path):
    folder = recorded(tmp_path)
    for name in ("leaf1", "leaf2"):
        (folder / "healthy" / f"{name}.sysctl").unlink()
    text = printed(folder, "static")
    assert "The path of 0 of 256 flows is known to the destination." in text
    assert "128 paths not known from here on: at leaf1, the hash or the seed" in text
    assert "STRATEGIES" not in text
    assert "No advice: no flow with a known path runs between switches." in text
    assert "256 flows left out: their paths are not known" in text
    assert "h1>leaf1 ?" in text


def test_a_switch_that_answers_nothing_is_not_among_those_that_answered(tmp_path):
    folder = recorded(tmp_path)
    fabric = discover_folder(folder / "healthy", 10**10, 500).fabric
    units = traffic_of(fabric, truth(folder, "healthy"))
    asking = Asking(lambda asked: [Said(b"", "no route to host") for _ in asked], "all")
    stream = io.StringIO()
    fill_trace(page_on(stream), trace(units, fabric, [], ["x"], asking=asking), 3)
    text = " ".join(stream.getvalue().split())
    assert "0 of 512 questions answered by 0 switches" in text
    assert "leaf1 answered 0 of 128 questions: no route to host" in text
