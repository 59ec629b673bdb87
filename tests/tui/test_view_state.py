"""What is shown, without a terminal."""

from __future__ import annotations

import subprocess
import sys
import time
from dataclasses import replace
from types import SimpleNamespace

import pytest
from captures import data
from fabric_captures import fabric_links

from rocescope.analyzer.pipeline.options import AnalyzeOptions
from rocescope.tui.session.packets import Point
from rocescope.tui.session.session import Session
from rocescope.tui.session.snapshot import FlowKey
from rocescope.tui.view_state import ViewState

I03 = str(data("i03_write_reorder5_AtoB"))


@pytest.fixture(scope="module")
def read():
    session = Session.open([I03])
    session.start()
    while session.running:
        time.sleep(0.01)
    yield session
    session.close()


@pytest.fixture
def view(read):
    read.selected = None
    read.set_filter("")
    view = ViewState(read)
    view.snapshot = read.snapshot()
    return view


def test_it_loads_no_textual():
    code = "import rocescope.tui.view_state, sys; assert 'textual' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_flows_without_data_only_if_asked_for(view):
    assert view.visible_count == 4
    view.everything = True
    assert view.visible_count == 8


def test_a_record_counts_for_its_own_flow_alone(view):
    first, other = (view.snapshot.key(int(f)) for f in view.shown_flows()[:2])
    assert view.select(first) and not view.select(first)
    record = view.session.focus(first)
    assert view.put_record(record) and not view.put_record(record)
    assert view.record is record
    view.select(other)
    assert view.record is None


def test_the_cursor_moves_to_the_busiest_flow_that_passes(view):
    chosen = view.snapshot.key(int(view.shown_flows()[0]))
    view.select(chosen, by_user=True)
    assert view.chosen and not view.select_passing()
    view.session.set_filter("qp == 0x2d")
    assert view.select_passing()
    assert view.session.selected.qp == 0x2D
    view.session.set_filter("qp == 1")
    assert not view.select_passing()  # none passes


def test_source_ports_alone_are_one_path_key(view):
    assert not view.next_path_key() and view.path_key == "entropy"
    view.path_key = "srv6"  # of a capture looked at before
    assert view.paths() is view.snapshot.paths["entropy"]


def test_paths_are_taps_where_some_are_parallel_until_the_user_picks_another_key(view):
    paths = dict(view.snapshot.paths, tap=view.snapshot.paths["entropy"])
    series = replace(view.snapshot, paths=paths)
    judged = replace(series.judged, parallel_taps=[("up1", "up2")])
    for snapshot, following in ((series, "tap"), (replace(series, judged=judged), "entropy")):
        view.snapshot, view.path_key = snapshot, ""
        view.next_path_key()
        assert view.path_key == following


def test_links_are_computed_before_a_snapshot_is_drawn(view):
    computed = []
    placed = SimpleNamespace(path_columns=computed.append)
    view._replays = SimpleNamespace(placed={"ecmp": placed}, stop=lambda: None)
    view.prepare(view.snapshot)
    assert not computed
    view.path_key = "fabric"
    view.prepare(view.snapshot)
    assert computed == [view.snapshot]
    view.frozen = True  # another snapshot is drawn
    view.prepare(view.snapshot)
    assert len(computed) == 1


def test_what_packets_are_wanted_is_said_once(view):
    view.wanted_packet = Point(7)
    assert (view.take_packet(), view.take_packet()) == (Point(7), None)
    assert view.take_late() is None


def test_another_session_begins_anew(view):
    view.select(FlowKey("10.0.0.1", "10.0.0.2", 0x2D), by_user=True)
    view.frozen, view.strategy, view.picked = True, "ecmp", {"ecmp"}
    view.path_key = "tap"
    other = Session.open([I03])
    ended = []
    view.session.on_close(lambda: ended.append(1))
    view.begin(other)
    assert ended and view.session is other and not len(view.snapshot.flows)
    assert not (view.frozen or view.chosen or view.strategy or view.picked)
    assert view.path_key == "tap"


def test_replays_use_the_fabric_of_the_session():
    fabric = replace(fabric_links(), spec="leaf-spine:leaves=2,spines=4,hosts=2")
    session = Session.open([I03], AnalyzeOptions(fabric=fabric))
    request = ViewState(session).replays.request
    assert (request.fabric, request.map) == (fabric.spec, "exact")
    session.close()
