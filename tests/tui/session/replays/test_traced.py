"""Traced paths on the screens, and FIM over time while real routers change."""

from __future__ import annotations

import json
import queue

import numpy as np
import pytest
from answers import routers_of
from captures import data
from router_namespaces import ip
from traced_lab import lab, units_of
from tui_driver import drive, text_of
from waiting import until

from rocescope.discovery.asking.namespaces import Namespaces
from rocescope.discovery.tracing.paths import trace_paths
from rocescope.replay.fabrics.parse import parse_fabric
from rocescope.replay.traffic.observed import traffic_from_capture
from rocescope.tui.screens.fabric import fim_line, none_traced
from rocescope.tui.session.replays.replays import Replays, ReplayView
from rocescope.tui.session.replays.traced import (
    Followed,
    Point,
    Traced,
    TracedOn,
    traceable,
    traced,
)
from rocescope.tui.session.snapshots.snapshot import TRACED

FILES = sorted((data("leafspine") / "r01_clean_write").glob("H[13]*.pcap.xz"))


@pytest.fixture
def spec(tmp_path):
    topology = data("leafspine") / "r01_clean_write" / "topology.json"
    return f"linux:{routers_of(json.loads(topology.read_text()), tmp_path)}"


def test_paths_are_those_of_trace(spec):
    fabric = parse_fabric(spec)
    traffic = traffic_from_capture([str(file) for file in FILES], fabric)
    found = traced(traffic, fabric)
    paths = trace_paths(traffic, fabric)
    assert found.flows == len(traffic)
    assert found.known == np.count_nonzero(~paths.placement.dropped) > 0
    links = {link.name: link.flows for link in found.result.links}
    known = paths.placement.links[~paths.placement.dropped]
    for link, flows in zip(*np.unique(known[known >= 0], return_counts=True), strict=True):
        assert links[fabric.link_name(int(link))] == flows


def test_without_a_hash_nothing_is_traceable(spec):
    assert traceable(parse_fabric(spec))
    assert not traceable(parse_fabric("leaf-spine:leaves=2,spines=2,hosts=2,rate=10G"))


@pytest.mark.thorough
@pytest.mark.parametrize("size", [(80, 24), (160, 48)])
def test_the_screens_show_them(spec, size):
    def begin(app):
        app.view.trace_on(TracedOn(spec, None, {}))
        app.view.replays.wait(300)
        app.switch_mode("fabric")

    def look(app):
        fabric = "\n".join(text_of(app))
        placed = app.view.placed()
        return fabric, placed.text, placed.path_columns(app.view.snapshot).trust

    fabric, placed, trust = drive([str(file) for file in FILES], [begin], size=size, look=look)
    assert placed == trust == TRACED
    assert "traced / fair share" in fabric
    assert " traced: " in fabric or " traced (" in fabric
    assert "FIM over time" not in fabric


@pytest.mark.thorough
def test_paths_begins_with_traced_links(spec):
    """They appear on the screen that is shown, as soon as they are known."""

    def begin(app):
        app.view.trace_on(TracedOn(spec, None, {}))
        app.switch_mode("paths")

    def traced_now(app):
        app.view.replays.wait(300)
        app.screen._while_tracing()

    steps = [begin, traced_now]
    text = drive([str(file) for file in FILES], steps, look=lambda app: "\n".join(text_of(app)))
    assert "paths traced" in text
    assert "only hint at paths" not in text


@pytest.mark.thorough
@pytest.mark.usefixtures("root")
def test_fim_over_time(need_tool, tmp_path):
    need_tool("ip")
    with lab() as routers:
        fabric = routers.fabric(tmp_path / "answers")
        told: queue.Queue[tuple[Point, Traced | None, int]] = queue.Queue()
        failed = []
        followed = Followed(
            Namespaces(routers.prefix), {}, lambda *one: told.put(one), failed.append
        )
        followed.begin(units_of(routers.flows(64, 4), fabric), fabric)
        try:
            first, before, _ = told.get(timeout=300)
            assert "following 4 switches" in first.text
            ip(["route del 10.2.1.0/24"], routers.name("spine1"))
            point, after, _ = told.get(timeout=300)
        finally:
            followed.stop()
        assert "spine1 changed" in point.text
        assert point.seconds > first.seconds
        assert after.known < before.known == after.flows == 64
        assert after.result.name == TRACED
        assert failed == []
        line = fim_line(ReplayView("x", "exact", followed=(first, point)), 70).plain
        assert line.startswith("FIM over time ")
        assert f"{point.fim_percent:.1f} % now" in line
        until(lambda: not followed._follow._line._listening)


def test_paths_that_are_not_known_any_more_are_not_shown(spec):
    replays = Replays([str(file) for file in FILES])
    replays.set_fabric(spec)
    replays.trace()
    replays.wait(300)
    known, flows = replays.view.traced
    assert known
    assert TRACED in replays.placed
    assert none_traced(replays.view) == ""
    replays._moved(Point(1.0, None, "s1 changed"), None, flows)
    assert TRACED not in {**replays.view.strategies, **replays.placed}
    assert replays.view.traced == (0, flows)
    assert none_traced(replays.view) == f"No traced path is known ({flows} flows). "


def test_columns_of_equal_time():
    points = (Point(0.0, 10.0, "a"), Point(9.0, 20.0, "b"), Point(10.0, None, "c\x1b[2J"))
    line = fim_line(ReplayView("x", "exact", followed=points), 60).plain
    assert "unknown now (10.0 to 20.0)" in line
    assert "\x1b" not in line
