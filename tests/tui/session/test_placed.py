"""Where strategies put flows: by link, by packet and as paths, against the placement itself."""

from __future__ import annotations

import io
import json
import queue
import zlib

import numpy as np
import pytest
from answers import routers_of
from captures import data
from router_namespaces import ip
from traced_lab import lab, units_of
from tui_driver import drive, text_of
from waiting import until

from rocescope.discovery.asking import Namespaces
from rocescope.discovery.tracing.paths import trace_paths
from rocescope.replay.compare.flows import replay
from rocescope.replay.fabrics.parse import parse_fabric
from rocescope.replay.strategies.registry import parse_strategy
from rocescope.replay.traffic.observed import traffic_from_capture
from rocescope.report.terminal.page import page_on
from rocescope.report.terminal.replay import fill_replay
from rocescope.tui.screens.fabric import fim_line, none_traced
from rocescope.tui.session.matrix import ROWS, at_one_place, path_matrix
from rocescope.tui.session.placed import Followed, Point, Traced, TracedOn, traceable, traced
from rocescope.tui.session.replays import Replays, ReplayView
from rocescope.tui.session.session import Session
from rocescope.tui.session.snapshot import TRACED

# Where strategies put flows: by link, by packet and as paths, against the placement itself.

TAPS = [
    str(path)
    for path in sorted((data("leafspine") / "r09_packet_spray_h1").glob("leaf2-spine*.pcap.gz"))
]
FABRIC = "leaf-spine:leaves=2,spines=4,hosts=2,rate=100G,delay=500ns"
BY_CRC = "ecmp:hash=crc32,seed=5,per-switch=equal,rotate=0,reduction=modulo"


@pytest.fixture(scope="module")
def replays():
    made = Replays(TAPS)
    made.set_fabric(FABRIC)
    made.run(["ecmp", BY_CRC, "static"])
    made.wait(300)
    assert not made.view.error and not made.view.failed
    return made


@pytest.fixture(scope="module")
def snapshot():
    session = Session.open(TAPS)
    session.start()
    session.wait(300)
    yield session.snapshot()
    session.close()


def test_the_flows_of_a_link_carry_its_bytes(replays):
    placed = replays.placed["ecmp"]
    for link in replays.view.strategies["ecmp"].links:
        users = placed.on_link(link.name)
        assert len(users) == link.flows
        assert sum(user.wire_bytes for user in users) == link.wire_bytes
        assert users == sorted(users, key=lambda user: -user.wire_bytes)
        for user in users:
            assert link.name in placed.way(user.key, user.entropy)
    assert placed.on_link("no>where") == []


def test_predicted_paths_are_the_loads_of_the_uplinks(replays, snapshot):
    columns = replays.placed["ecmp"].path_columns(snapshot)
    assert columns.trust == "predicted"
    loads = {columns.name(int(k)): 0 for k in columns.key}
    for key, size in zip(columns.key.tolist(), columns.wire_bytes.tolist(), strict=True):
        loads[columns.name(key)] += size
    links = {link.name: link for link in replays.view.strategies["ecmp"].links}
    for name, size in loads.items():
        assert name.startswith("leaf") and ">spine" in name
        # The replay places flows; what was lost on the way and acknowledgements count there too.
        assert size == pytest.approx(links[name].wire_bytes, rel=0.02), name
    assert (columns.width[columns.seen() > 0] >= 1 - 1e-9).all()


def test_the_explanation_is_the_hash(replays):
    """CRC-32 of the 5-tuple, computed by zlib, modulo the number of uplinks."""
    placed = replays.placed[BY_CRC]
    user = placed.on_link("leaf1>spine1")[0]
    (line,) = placed.why(user.key, user.entropy)
    assert line.startswith("leaf1>spine1: crc32(5-tuple, seed 0x5) = 0x")
    assert line.endswith(", modulo 4 -> 0")
    value = int(line.partition("= 0x")[2][:8], 16)
    assert value % 4 == 0
    fields = bytes(map(int, user.key.src.split("."))) + bytes(map(int, user.key.dst.split(".")))
    fields += b"\x11" + user.entropy.to_bytes(2, "big") + (4791).to_bytes(2, "big")
    # The seed is XORed into the start value; zlib's start is given as the value before.
    assert value == zlib.crc32(fields, 5)


def test_what_is_not_known_is_said(replays):
    placed = replays.placed["static"]
    user = placed.on_link("leaf1>spine1")[0]
    (line,) = placed.why(user.key, user.entropy)
    assert line == "leaf1>spine1: static selects link 1 of 4"
    assert "no host" in placed.why(user.key._replace(src="192.0.2.1"), user.entropy)[0]
    assert placed.way(user.key._replace(qp=1), user.entropy) == []


def test_flows_that_were_not_replayed_have_no_predicted_path(replays, snapshot):
    columns = replays.placed["ecmp"].path_columns(snapshot)
    assert len(columns.starts) == len(snapshot.flows) + 1
    assert np.all(np.diff(columns.starts) >= 0)


I03 = [str(data("i03_write_reorder5_AtoB"))]
ONE_PAIR = "leaf-spine:leaves=2,spines=4,hosts=1,rate=100G,delay=500ns"


def i03_replayed(app):
    app.view.replays.set_fabric(ONE_PAIR)
    app.view.replays.run(["ecmp", "static"])
    app.view.replays.wait(300)
    app.screen.redraw()


@pytest.mark.thorough
def test_all_screens_and_the_command_say_the_same_of_a_link():
    """Four similar flows; two of them on one of four spines are about twice its fair share."""
    shown = {}

    def keep(name):
        return lambda app: shown.update({name: " ".join(" ".join(text_of(app)).split())})

    keys = ["9", i03_replayed, keep(7), "0", keep(8), "4", "p", keep(2)]
    result = drive(I03, keys, look=lambda app: app.view.replays.view.strategies["ecmp"])
    command = io.StringIO()
    parsed = parse_fabric(ONE_PAIR)
    traffic = traffic_from_capture(I03, parsed, "order")
    fill_replay(page_on(command), replay(traffic, parsed, [parse_strategy("ecmp")], I03))
    assert "2.00 times" in " ".join(command.getvalue().split())
    assert f"{result.max_over_mean:.2f}" == "2.00"
    assert "ecmp" in shown[7] and "2.00 times the fair share" in shown[7]
    assert "leaf1>spine3 carries 2.00 times its fair share" in shown[8]
    assert "leaf1>spine3 carries 2.00 times its fair share" in shown[2]
    assert "fair 25 %" in shown[2] and "1.0/4" in shown[2] and "spine1" in shown[2]
    # By hand, from the bytes of the flows.
    link = next(one for one in result.links if one.name == "leaf1>spine3")
    up = sum(one.wire_bytes for one in result.links if one.name.startswith("leaf1>spine"))
    assert link.over_mean == pytest.approx(link.wire_bytes / (up / 4))


def test_predicted_paths_hold_idle_links_and_fair_shares(replays, snapshot):
    columns = replays.placed["ecmp"].path_columns(snapshot)
    used = columns.seen() > 0
    assert (columns.seen()[used] % 4 == 0).all()  # four spines, whether used or not
    assert (columns.packets == 0).any()
    starts = columns.starts[:-1][used]
    carried = np.add.reduceat(columns.wire_bytes, starts)
    assert np.add.reduceat(columns.fair, starts) == pytest.approx(carried)
    for flow in np.flatnonzero(used)[:20]:
        fair = columns.fair[columns.of(int(flow))]
        assert fair == pytest.approx(np.full(len(fair), fair.mean()))


@pytest.mark.parametrize("measure", ["bytes", "packets", "late"])
def test_fair_shares_do_not_depend_on_what_a_row_is(replays, snapshot, measure):
    columns = replays.placed["ecmp"].path_columns(snapshot)
    flows = np.arange(len(snapshot.flows))
    by = {rows: path_matrix(snapshot, columns, flows, rows, measure, 100) for rows in ROWS}
    for matrix in by.values():
        assert matrix.fair.sum(axis=1) == pytest.approx(matrix.loads.sum(axis=1))
        assert matrix.fair.sum(axis=0) == pytest.approx(by["QP"].fair.sum(axis=0))


def test_paths_that_are_only_seen_in_use_are_fair_when_equal(snapshot):
    flows = np.arange(len(snapshot.flows))
    by_tap = at_one_place(snapshot.paths["tap"], None)
    matrix = path_matrix(snapshot, by_tap, flows, "pair", "bytes", 100)
    assert matrix.fair == pytest.approx(np.tile(matrix.loads.mean(axis=1), (4, 1)).T)


# Traced paths on the screens, and FIM over time while real routers change.

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
