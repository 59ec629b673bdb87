"""Where strategies put flows: by link, by packet and as paths, against the placement itself."""

from __future__ import annotations

import io
import zlib

import numpy as np
import pytest
from captures import data
from tui_driver import drive, text_of

from rocescope.replay.compare.flows import replay
from rocescope.replay.fabrics.parse import parse_fabric
from rocescope.replay.strategies.registry import parse_strategy
from rocescope.replay.traffic.observed import traffic_from_capture
from rocescope.report.terminal.page import page_on
from rocescope.report.terminal.replay import fill_replay
from rocescope.tui.session.replays.replays import Replays
from rocescope.tui.session.session import Session
from rocescope.tui.session.snapshots.matrix import ROWS, path_matrix
from rocescope.tui.session.snapshots.tap_paths import at_one_place

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
