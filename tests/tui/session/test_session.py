"""The headless session against the facts known independently of the captures."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
from captures import data, truth
from fabric_captures import Pair, between, drop, fabric_links, simulate, warnings, write
from job_logs import LOSSY, ground_truth, nccl, write_logs
from traffic import packets
from waiting import until

from rocescope.analyzer.errors import UsageError
from rocescope.analyzer.measures.ending import end_idle
from rocescope.analyzer.pipeline.captures import analyze
from rocescope.analyzer.pipeline.options import AnalyzeOptions
from rocescope.analyzer.pipeline.pipeline import Pipeline
from rocescope.analyzer.wire.packets import LINKTYPE_ETHERNET
from rocescope.analyzer.wire.registry import Registry
from rocescope.analyzer.wire.taps import Tap
from rocescope.commands.generate import generate_mrc
from rocescope.report import human
from rocescope.tui.app import RocescopeApp
from rocescope.tui.screens.qps import flow_cells
from rocescope.tui.session.feeds import STOPPED_EARLY, ended_words, measure_for_screens
from rocescope.tui.session.judged import Judged
from rocescope.tui.session.matrix import at_one_place
from rocescope.tui.session.packets import PacketScan
from rocescope.tui.session.session import Session
from rocescope.tui.session.snapshot import UNKNOWN, FlowKey, SourceState
from rocescope.tui.settings import COLUMNS


def whole(*names, **options):
    session = Session.open([str(data(n)) for n in names], AnalyzeOptions(**options))
    session.start()
    assert session.wait(300)
    return session, session.snapshot()


def spine_taps():
    return sorted((data("leafspine") / "r09_packet_spray_h1").glob("leaf2-spine*.pcap.gz"))


def test_flows_are_those_of_the_independent_parser():
    _, facts = truth("c16_rc_write_bidir")
    session, snapshot = whole("c16_rc_write_bidir")
    packets = snapshot.flows.packets.tolist()
    found = {snapshot.key(f): packets[f] for f in range(len(packets))}
    streams = facts["captures"]["atB"]["streams"]
    assert found == {FlowKey(s["src"], s["dst"], s["dest_qp"]): s["packets"] for s in streams}
    session.close()


def test_packets_and_the_end_are_news_until_the_next_snapshot():
    session, _ = whole("c16_rc_write_bidir")
    assert not session.has_news
    session._feed.pipeline.measuring.update(packets([{"psn": 5}]))
    assert session.has_news
    session.snapshot()
    assert not session.has_news
    session.start()
    session.snapshot()
    assert session.wait(300) and session.has_news  # it no longer runs
    session.close()


def test_columns_agree_with_the_analysis():
    session, snapshot = whole("i01_write_loss0.5_AtoB.atB")
    analysis = analyze([str(data("i01_write_loss0.5_AtoB.atB"))], AnalyzeOptions())
    flows = snapshot.flows
    assert len(flows) == len(analysis.flows)
    for f, flow in enumerate(analysis.flows):
        assert snapshot.key(f) == FlowKey(flow.src, flow.dst, flow.dest_qp)
        known = {
            "late": flow.reordered_packets,
            "retransmitted": flow.retransmitted_packets,
            "recovered": flow.recovered_packets,
            "missing": flow.missing_packets,
            "duplicate": flow.duplicate_packets,
            "packets": flow.packets,
            "wire_bytes": flow.wire_bytes,
            "rewinds": flow.recovery.rewinds,
            "naks": sum(flow.recovery.naks.values()),
        }
        for name, value in known.items():
            got = int(getattr(flows, name)[f])
            assert got == (UNKNOWN if value is None else value), (name, flow.id)
        assert snapshot.paths["entropy"].width[f] == pytest.approx(flow.spraying_width)
        assert snapshot.activity[:, f].sum() == flow.wire_bytes
    assert sum(snapshot.timeline["retransmitted_packets"]) == sum(
        flow.retransmitted_packets or 0 for flow in analysis.flows
    )
    session.close()


def test_a_capture_that_is_not_read_to_its_end_says_so(tmp_path):
    path = tmp_path / "long.pcap"
    whole = data("c10_rping_ipv4.atB").read_bytes()
    path.write_bytes(whole[:24] + whole[24:] * (20_000_000 // len(whole)))
    session = Session.open([str(path)])
    begin = session._make_feed

    def stopped(keep):
        feed = begin(keep)
        feed.stop()  # the batch under way is still measured
        return feed

    session._make_feed = stopped
    session.start()
    assert session.wait(300)
    source = session.snapshot().source
    session.close()
    assert (
        0 < source.packets
        and source.stopped_early
        and source.progress < 1
        and STOPPED_EARLY in source.warnings
    )


def test_lost_and_missing_mean_what_they_mean_in_the_report():
    paths = [str(p) for p in spine_taps()]
    session = Session.open(paths)
    session.start()
    assert session.wait(300)
    snapshot = session.snapshot()
    places = [[column.key for column in COLUMNS].index(key) for key in ("lost", "missing")]
    flows = analyze(paths, AnalyzeOptions()).flows
    assert any(flow.recovered_packets for flow in flows)
    for f, flow in enumerate(flows):
        cells = flow_cells(snapshot, snapshot.paths["entropy"], f)
        shown = [cells[place][0] for place in places]
        assert shown == [human.count(flow.recovered_packets), human.count(flow.missing_packets)]
    session.set_filter("lost > 0")
    assert session.passing(snapshot).tolist() == [bool(flow.recovered_packets) for flow in flows]
    session.close()


def test_a_fabric_tells_the_next_tap_as_in_analyze(tmp_path):
    """One queue pair whose packets all vanish in a spine; its command names the fabric."""
    run = simulate(
        [Pair(1, 3, 0x101, 50001)],
        between("leaf1-spine2", "leaf2-spine2", drop),
        lambda packet, now: 2,
    )
    paths = [str(path) for path in write(tmp_path, run.taps)]
    fabric = replace(fabric_links(), spec="lab one.yaml")
    session = Session.open(paths, AnalyzeOptions(fabric=fabric))
    session.start()
    assert session.wait(300)
    session.diagnose()
    (finding,) = warnings(session.snapshot().judged.diagnosis)
    assert finding.kind == "blackhole" and "(next tap by the fabric file)" in finding.sentence
    assert session.command_line(None).endswith(" --fabric 'lab one.yaml'")
    session.close()


def test_widths_by_tap_agree_with_the_analysis():
    paths = [str(p) for p in spine_taps()]
    session = Session.open(paths)
    session.start()
    assert session.wait(300)
    by_tap = at_one_place(session.snapshot().paths["tap"], None)
    analysis = analyze(paths, AnalyzeOptions(path_by="tap"))
    sprayed = [f for f in analysis.flows if f.spraying_width > 2 and f.request_packets]
    assert len(sprayed) == 4  # the queue pairs of the host whose packets are sprayed
    for flow in sprayed:
        assert by_tap.width[flow.id] == pytest.approx(flow.spraying_width)
        names = [by_tap.name(int(k)) for k in by_tap.key[by_tap.of(flow.id)]]
        assert sorted(names) == sorted(share.path for share in flow.paths)
    assert not by_tap.inferred
    session.close()


def test_a_flow_filter_picks_rows_at_once():
    session, snapshot = whole("i03_write_reorder5_AtoB")
    assert session.set_filter("late > 5% and src == 10.0.0.0/24") is False
    mask = session.passing(snapshot)
    share = snapshot.flows.late / np.maximum(snapshot.flows.arrivals, 1)
    assert mask.tolist() == (share > 0.05).tolist()
    assert 0 < mask.sum() < len(mask)
    session.close()


def test_a_packet_filter_reads_again():
    session, before = whole("i03_write_reorder5_AtoB")
    assert session.set_filter("opcode == RC_ACK") is True
    assert session.wait(300)
    after = session.snapshot()
    _, facts = truth("i03_write_reorder5_AtoB")
    acks = facts["captures"]["atB"]["opcodes"]["RC_ACK"]
    assert after.source.packets == int(after.flows.packets.sum()) == acks
    assert not after.carries_data().any()
    assert session.set_filter("") is True
    assert session.wait(300)
    assert session.snapshot().source.packets == before.source.packets
    session.close()


def test_a_time_window_reads_only_its_packets():
    session, before = whole("i03_write_reorder5_AtoB")
    low, high = session.whole()
    middle = low + (high - low) // 2
    session.set_window((low, middle))
    assert session.wait(300)
    first = session.snapshot().source.packets
    session.set_window((middle + 1, high))
    assert session.wait(300)
    assert first + session.snapshot().source.packets == before.source.packets
    assert session.whole() == (low, high)
    session.close()


def test_the_selected_flow_has_its_whole_record():
    session, snapshot = whole("i03_write_reorder5_AtoB")
    session.selected = snapshot.key(2)
    assert session.focus(session.selected).packets == int(snapshot.flows.packets[2])
    session.selected = FlowKey("192.0.2.1", "192.0.2.2", 1)
    assert session.focus(session.selected) is None
    session.close()


def test_no_state_of_a_session_steers_a_terminal(tmp_path):
    """Not the first one either, which is shown before anything is read."""
    named = tmp_path / "a\x1b[2Jb.pcap"
    session = Session.open([str(named)])
    states = [session.snapshot().source]
    session.start()
    assert session.wait(300)
    states.append(session.snapshot().source)
    assert states[1].error
    for state in (*states, SourceState("", "live", warnings=("c\x9bd",), recording="e\x1bf")):
        shown = (state.name, state.error, state.recording, *state.warnings)
        assert all(map(str.isprintable, shown))
    session.close()


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda p: p.unlink(), "No such file"),
        (lambda p: p.write_bytes(b""), "empty"),
        (lambda p: p.write_bytes(b"hello world, no capture"), "not a pcap"),
    ],
)
def test_bad_captures_become_one_line(tmp_path, make, says):
    path = tmp_path / "bad.pcap"
    path.write_bytes(b"x")
    make(path)
    session = Session.open([str(path)])
    session.start()
    session.wait(300)
    source = session.snapshot().source
    assert says.lower() in source.error.lower()
    assert "\n" not in source.error
    session.close()


@pytest.mark.parametrize(
    "text", ["late >", "late > x", "src > 10.0.0.1", "late > 1% and psn == 3", "foo == 3"]
)
def test_nonsense_is_refused(text):
    session = Session.open(["nowhere.pcap"])
    with pytest.raises(UsageError):
        session.set_filter(text)
    assert session.filter_text == ""


def test_the_session_needs_no_textual():
    code = (
        "import rocescope.tui.session.session, sys;"
        " print(*(m in sys.modules for m in ('textual', 'rich')))"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.split() == ["False", "False"]


def test_events_of_mrc_are_those_of_the_analysis(tmp_path):
    path = tmp_path / "mrc.pcap"
    generate_mrc(output=path, messages=2, trim=0.01)
    session = Session.open([str(path)])
    session.start()
    assert session.wait(300)
    shown = [(e.time_ns, e.kind, e.text) for e in session.snapshot().events]
    session.stop()
    whole = analyze([str(path)], AnalyzeOptions()).events
    assert ("mrc_nack" in {e.kind for e in whole}) and shown == [
        (e.time_ns, e.kind, e.text) for e in whole
    ]


def test_screens_leave_time_to_probes_that_are_behind(monkeypatch):
    session = Session(lambda keep: None, "eth0", "live")
    assert not session.hurried
    behind = [0.0]
    measuring = SimpleNamespace(batches=0)
    session._feed = SimpleNamespace(
        backlog=lambda: behind[0], pipeline=SimpleNamespace(measuring=measuring)
    )
    app, made = RocescopeApp(session), []
    monkeypatch.setattr(app, "request_snapshot", lambda: made.append(1))
    monkeypatch.setattr("rocescope.tui.snapshots.monotonic", lambda: 100.0)
    for share, waited, snapshots in ((0.0, 0.3, 1), (0.5, 0.3, 0), (0.5, 1.1, 1), (1.1, 0.9, 0)):
        behind[0], app.snapshots.built_at = share, 100.0 - waited
        made.clear()
        app.snapshots.tick()
        assert len(made) == snapshots, (share, waited)


def test_a_session_that_starts_anew_before_it_has_a_feed_reads_once():
    opened = []

    class Endless:
        """Packets that never end, as those of probes."""

        def __init__(self):
            opened.append(self)
            self.reads, self.stopped = 0, threading.Event()
            if len(opened) == 1:
                until(lambda: session._generation == 2)  # it was started again

        def read(self):
            self.reads += 1
            self.stopped.wait(300)

        def stop(self):
            self.stopped.set()

        def close(self):
            self.stopped.set()

    session = Session(lambda keep: Endless(), "eth0", "live")
    session.start()
    session.start()  # waits for the first reader, which must not begin
    while len(opened) < 2 or not opened[1].reads:
        time.sleep(0.01)
    assert opened[0].reads == 0 and opened[1].reads == 1
    session.close()


def test_what_was_seen_before_stays_until_the_new_window_is_read_and_goes_then():
    session = Session.open([str(data("i03_write_reorder5_AtoB"))])
    session.start()
    assert session.wait(300)
    every = session.snapshot().events
    begin, looked = session._make_feed, threading.Event()

    def later(keep):
        looked.wait(300)
        return begin(keep)

    session._make_feed = later
    start, end = session.whole()
    window = (start + (end - start) // 4, start + (end - start) * 3 // 4)
    session.set_window(window)
    assert session.snapshot().events == every
    looked.set()
    assert session.wait(300)
    times = [event.time_ns for event in session.snapshot().events]
    assert times and window[0] <= min(times) and max(times) <= window[1]
    session.close()


class Churning:
    """A live feed whose flows end."""

    kind = "live"

    def __init__(self):
        self.owners = {}
        self.pipeline = Pipeline(AnalyzeOptions(), Registry(), many_taps=True)
        for number in range(2):
            self.pipeline.registry.endpoints.add(f"10.0.0.{number}")
        self.pipeline.registry.taps.add(Tap("eth0", LINKTYPE_ETHERNET))
        self.measuring = self.pipeline.measuring
        measure_for_screens(self.measuring)

    def write(self, qps, second):
        rows = [
            {"dest_qp": qp, "psn": psn, "opcode": 0x0A, "time_ns": second * 10**9 + 1000 * psn}
            for psn in range(3)
            for qp in qps
        ]
        self.measuring.update(packets(rows))

    def state(self):
        ended = self.measuring.ended
        sent = int(self.measuring.tracker.flows["packets"].sum()) + ended.packets
        return SourceState("eth0", "live", packets=sent, warnings=tuple(ended_words(ended)))

    def backlog(self):
        return 0.0

    def read(self):
        pass

    def stop(self):
        pass

    def close(self):
        pass


def test_flows_that_ended_leave_the_screens_and_the_past():
    feed = Churning()
    session = Session(lambda keep: feed, "eth0", "live")
    session.start()
    session.wait(300)
    feed.write(range(100, 140), 1)
    before = session.snapshot()
    stays = before.key(0)
    feed.write([100, *range(200, 210)], 90)
    assert session.snapshot().flows.qp.tolist() == [*range(100, 140), *range(200, 210)]
    assert end_idle(feed.measuring, 60 * 10**9, ["eth0"], 5, 1) == 34
    now = session.snapshot()
    assert now.flows.qp.tolist() == [100, *range(135, 140), *range(200, 210)]
    assert now.find(stays) == 0 and now.flows.packets[0] == 6
    assert now.source.warnings == (
        "34 idle flows were removed from memory, with 102 packets: the worst stay listed",
    )
    session.look_at(before.end_ns)
    then = session.snapshot()
    assert then.flows.qp.tolist() == [100, *range(135, 140)]
    assert then.flows.packets.tolist() == [3] * 6
    session.looking_at, session.length_ns = None, 30 * 10**9
    assert session.snapshot().flows.packets.tolist() == [3, 0, 0, 0, 0, 0, *[3] * 10]
    session.close()


def test_what_befell_packets_between_taps_is_shown_for_the_whole_session_only(monkeypatch):
    feed = Churning()
    session = Session(lambda keep: feed, "eth0", "live")
    session.start()
    session.wait(300)
    feed.write([100, 101], 1)
    before = session.snapshot()
    feed.write([100], 90)
    known = Judged(lost={0: 7}, late={0: 5}, marked={0: 2}, numbering=feed.measuring.numbering)
    monkeypatch.setattr(session, "diagnosing", SimpleNamespace(judged=known))

    def found():
        flows = session.snapshot().flows
        return [int(c[0]) for c in (flows.recovered, flows.late, flows.ecn_marked)]

    assert found() == [7, 5, 2]
    session.length_ns = 30 * 10**9
    assert found() == [0, 0, 0]
    session.length_ns = None
    session.look_at(before.end_ns)
    assert found() == [0, 0, 0]
    session.close()


def test_logs_of_the_job_name_the_ranks(tmp_path):
    capture = data("i01_write_loss0.5_AtoB.atB")
    qpns = [pair["client"]["qpn"] for pair in ground_truth(capture)["qp_pairs"]]
    log = tmp_path / "nccl log"
    log.write_text("".join(f"{x}\n" for x in nccl("nodea", 100, 11, 3, "10.0.0.1", qpns)))
    session, snapshot = whole("i01_write_loss0.5_AtoB.atB", job_logs=(str(log),))
    assert len(snapshot.owners) == len(snapshot.flows) == 2 * len(qpns)
    texts = {human.owner(owner) for owner in snapshot.owners.values()}
    assert texts == {
        "nodea, pid 100, rank 11 to rank 3 (source)",
        "nodea, pid 100, rank 3 to rank 11 (destination)",
    }
    session.diagnose()
    (finding,) = warnings(session.snapshot().judged.diagnosis)
    assert finding.sentence.endswith("(rank 11 to rank 3)")
    assert f"--nccl-log '{log}'" in session.command_line(None)
    session.close()


def test_ranks_filter_flows_at_once_and_packets_in_a_second_pass(tmp_path):
    options = AnalyzeOptions(job_logs=(write_logs(tmp_path, data(LOSSY).parent),))
    session = Session.open([str(data(LOSSY))], options)
    session.start()
    assert session.wait(300)
    snapshot = session.snapshot()
    leaving = [snapshot.key(flow).src == "10.0.0.1" for flow in range(len(snapshot.flows))]
    for text in ("src_rank == 11", "dst_rank in {2..4}", "comm == 0xabc123 and dst_rank != 11"):
        assert session.set_filter(text) is False
        assert session.passing(snapshot).tolist() == leaving
    assert session.set_filter("not rank") is False
    assert not session.passing(snapshot).any()
    assert session.set_filter("src_rank == 11 and opcode == WRITE_FIRST") is True
    assert session.wait(300)
    after = session.snapshot()
    assert 0 < after.source.packets < snapshot.source.packets and not after.source.error
    assert {owner.ranks for owner in after.owners.values()} == {(11, 3)}
    key = after.key(0)
    shown = PacketScan(session.paths, key, options=session.packet_options()).run()
    assert len(shown) == after.flows.packets[0]
    session.close()
