"""The engine from files to results, on real captures."""

from __future__ import annotations

import gc
import json
import math
import shutil
import weakref

import dpkt
import msgspec
import pytest
from captures import DATA, data, truth
from clusters import SPRAYED
from factories import Frame, Pcapng, write_pcap
from network import roce

from rocescope.analyzer.decode.merge import merge_tables
from rocescope.analyzer.errors import UnreadableInput, UsageError
from rocescope.analyzer.measures.hops.measure import HopMeasure
from rocescope.analyzer.measures.spraying import expected_fim
from rocescope.analyzer.pipeline import captures as engine
from rocescope.analyzer.pipeline.captures import analyze, open_captures
from rocescope.analyzer.pipeline.options import AnalyzeOptions

LEAFSPINE = DATA / "leafspine"


def run(*names, **options):
    return analyze([str(name) for name in names], AnalyzeOptions(**options))


@pytest.mark.parametrize("name", ["c04", "c10", "c15", "c40", "i03", "i04"])
def test_bytes_and_packets_are_conserved(name):
    """Paths add up to their flow, flows and windows to the capture."""
    analysis = run(data(name))
    capture, series = analysis.captures[0], analysis.series
    assert sum(f.packets for f in analysis.flows) == capture.roce_packets == sum(series.packets)
    assert sum(f.wire_bytes for f in analysis.flows) == sum(series.wire_bytes)
    assert sum(f.payload_bytes for f in analysis.flows) == sum(series.payload_bytes)
    for flow in analysis.flows:
        assert sum(p.wire_bytes for p in flow.paths) == flow.wire_bytes
        assert sum(p.packets for p in flow.paths) == flow.packets
        assert math.isclose(sum(p.share for p in flow.paths), 1)
        assert sum(flow.opcodes.values()) == flow.packets
        assert sum(flow.activity_bytes) == flow.wire_bytes
        assert sum(flow.congestion.dscp.values()) + flow.cnps == flow.packets


def test_what_the_independent_parser_counted():
    analysis = run(data("i13"), icrc=True)
    facts = truth("i13")[1]["captures"]["atB"]
    capture = analysis.captures[0]
    assert (capture.frames, capture.roce_packets) == (facts["packets"], facts["roce"])
    assert (capture.first_time_ns, capture.last_time_ns) == (facts["first_ns"], facts["last_ns"])
    assert sum(capture.contents.values()) == facts["not_roce"]
    assert sum(f.ecn_marked_packets for f in analysis.flows) == facts["ecn"]["CE"]
    assert sum(f.congestion.ecn_capable_packets for f in analysis.flows) == sum(
        n for kind, n in facts["ecn"].items() if kind != "not-ECT"
    )
    # Snapped frames cannot be checked, whole ones (the ACKs) are all good.
    assert capture.icrc["bad"] == 0
    assert capture.icrc["ok"] + capture.icrc["truncated"] == facts["roce"]


def test_imbalance_of_four_links():
    """FIM per direction from the link captures equals that of the counted packets."""
    links = [f"leaf1-spine{i}" for i in range(1, 5)]
    folder = LEAFSPINE / "r01_clean_write"
    analysis = run(*(folder / f"{link}.pcap.gz" for link in links), path_by="tap")
    facts = json.loads((folder / "run.facts.json").read_text())
    up, down = [i for i in analysis.imbalance if i.path_by == "tap"]
    if "10.1." not in up.name.split("from ")[1]:
        up, down = down, up
    for found, way in ((up, "leaf1_to_leaf2"), (down, "leaf2_to_leaf1")):
        expected = [facts["spines"][f"spine{i}"][way]["in"] for i in range(1, 5)]
        shares = {s.path.split(".")[0]: s.packets for s in found.shares}
        assert [shares[link] for link in links] == expected
        assert found.fim_flows_chance_percent == pytest.approx(expected_fim(found.flows, 4))
    assert all(f.tap_copies == 0 for f in analysis.flows)


def test_the_path_of_late_packets():
    """leaf1 sprays H1's packets, spine2 is slow: what came late came over spine2."""
    folder = LEAFSPINE / "r09_packet_spray_h1"
    analysis = run(*sorted(folder.glob("*.pcap.gz")), path_by="tap")
    late = {}
    for flow in analysis.flows:
        for path in flow.paths:
            late[path.path] = late.get(path.path, 0) + path.reordered_packets
    assert late.pop("leaf2-spine2.pcap.gz") > 50
    assert sum(late.values()) == 0


def test_a_filter_leaves_out_and_says_so():
    analysis = run(data("c10"), filter="ip.src == 10.0.0.1 and qp != 1")
    assert [(f.src, f.dest_qp) for f in analysis.flows] == [("10.0.0.1", 0x31)]
    assert any("filter" in line for line in analysis.warnings)


@pytest.mark.parametrize("expression", ["opcode != 0x11", "udp dst port 4791"])
def test_a_filter_of_the_capture_is_said_and_withdraws_claims(tmp_path, expression):
    """Without its NAKs any capture would look healthy."""
    capture = Pcapng().section().interface(filter=b"\0" + expression.encode())
    for psn in range(40):
        capture.enhanced(1000 * psn, roce(psn, payload_bytes=64))
    path = tmp_path / "filtered.pcapng"
    path.write_bytes(capture.bytes())
    found = run(path)
    assert found.captures[0].taps[0].filter == expression
    named = [
        line for line in found.diagnosis.limits if f"captured with a filter ({expression}" in line
    ]
    assert bool(named) == (not found.diagnosis.healthy) == ("opcode" in expression)


def test_a_filter_of_the_capture_and_one_of_the_analysis_are_both_said(tmp_path):
    capture = Pcapng().section().interface(filter=b"\0opcode != 0x11")
    for psn in range(40):
        capture.enhanced(1000 * psn, roce(psn, payload_bytes=64))
    path = tmp_path / "filtered.pcapng"
    path.write_bytes(capture.bytes())
    for expression, said in ((None, 1), ("psn > 3", 2)):
        found = run(path, filter=expression).diagnosis
        assert sum("filter" in line for line in found.limits) == said
        assert found.healthy == []


def test_the_same_file_twice_is_two_taps_of_the_same_packets():
    one, two = run(data("c23")), run(data("c23"), data("c23"))
    assert [f.packets for f in two.flows] == [f.packets for f in one.flows]
    assert sum(f.tap_copies for f in two.flows) == one.captures[0].roce_packets
    assert not any(f.retransmitted_packets or f.duplicate_packets for f in two.flows)


def test_concat_joins_what_was_rotated(tmp_path):
    whole = data("c40").read_bytes()
    import struct

    edges, at = [24], 24
    while at < len(whole):
        at += 16 + struct.unpack_from("<I", whole, at + 8)[0]
        edges.append(at)
    middle = edges[len(edges) // 2]
    (tmp_path / "b.pcap").write_bytes(whole[:middle])
    (tmp_path / "a.pcap").write_bytes(whole[:24] + whole[middle:])
    joined = run(tmp_path / "a.pcap", tmp_path / "b.pcap", concat=True)
    once = run(data("c40"))
    assert joined.flows == [
        f.__class__(**{n: getattr(f, n) for n in f.__struct_fields__} | {"taps": g.taps})
        for f, g in zip(once.flows, joined.flows, strict=True)
    ]
    assert joined.connections == once.connections


def test_pairs_name_their_evidence_and_service():
    analysis = run(data("c10"))
    (connection,) = analysis.connections
    assert connection.evidence[:2] == ["cm", "ack_psn"]
    assert connection.service == "rdma_cm tcp 7174"


def test_captures_without_roce_say_what_they_hold(tmp_path):
    from factories import START_NS, Frame, write_pcap

    arp = bytes(12) + b"\x08\x06" + bytes(28)
    path = write_pcap(tmp_path / "arp.pcap", [Frame(START_NS + i, arp) for i in range(3)])
    with pytest.raises(UnreadableInput, match="arp.pcap: 3 ARP"):
        run(path)


def test_following_many_files_is_refused():
    with pytest.raises(UsageError, match="--follow"):
        run("a", "b", follow=True)


def test_results_do_not_depend_on_the_window():
    coarse, fine = run(data("i03"), window_ns=10**9), run(data("i03"), window_ns=10**6)
    assert coarse.flows == fine.flows
    assert sum(coarse.series.naks) == sum(fine.series.naks) == 81
    assert len(fine.series.packets) > 100 * len(coarse.series.packets) / 2


def test_connection_management_is_among_the_events():
    """Each MAD once, with what it says, also when two taps saw it."""
    facts = truth("c10")[1]["captures"]["atB"]
    for names in ((data("c10"),), (data("c10"), data("c10"))):
        events = [e for e in run(*names).events if e.kind == "cm"]
        assert len(events) == sum(facts["cm_mads"].values())
        for event, setup in zip(events, facts["cm_qp_setup"], strict=False):
            kind = setup["mad"].removeprefix("CM_")
            assert event.text.startswith(f"{setup['src']} > {setup['dst']}: CM {kind}, ")
            assert (
                f"QP 0x{setup['local_qpn']:06x}, starting PSN {setup['starting_psn']}" in event.text
            )


def test_taps_in_series_are_no_paths():
    """Both taps of i01 see the same packets with the same hop limit: that is not spraying."""
    analysis = run(
        data("i01_write_loss0.5_AtoB.atA"), data("i01_write_loss0.5_AtoB.atB"), path_by="tap"
    )
    assert analysis.imbalance == []
    assert {f.spraying_width for f in analysis.flows} == {1.0}
    assert {len(f.paths) for f in analysis.flows} == {1}
    by_tap = [s for f in analysis.flows for s in f.spraying if s.path_by == "tap"]
    assert [s.switches for s in by_tap] == [0] * len(analysis.flows)
    # Each of them still counts what it saw.
    assert sum(sum(f.taps.values()) for f in analysis.flows) == 32_152 + 31_972


@pytest.mark.parametrize("taps", ["B", "AB"])
def test_what_was_decoded_before_an_interrupt_is_counted(taps, monkeypatch):
    """Bytes and packets are conserved in the part that was read, too."""
    monkeypatch.setattr(engine, "BATCH_FRAMES", 50)
    names = [str(data(f"i01_write_loss0.5_AtoB.at{tap}")) for tap in taps]
    with open_captures(names, AnalyzeOptions()) as interrupted:
        interrupted._tell = lambda progress: interrupted.stop() if progress.packets else None
        assert not interrupted.read()
        analysis = interrupted.conclude(False)
    assert not analysis.complete
    read = sum(capture.roce_packets for capture in analysis.captures)
    assert 0 < read < 10_000
    assert sum(f.packets + f.tap_copies for f in analysis.flows) == read


@pytest.mark.parametrize("kernels", [[], ["walk"]])
def test_waiting_for_packets_is_not_compiling(kernels, tmp_path, monkeypatch):
    monkeypatch.setattr(engine, "_COMPILING_AFTER_S", 0.0)
    monkeypatch.setattr(engine, "compiling", kernels)
    path = str(write_pcap(tmp_path / "empty.pcap", []))
    told = []
    with open_captures([path], AnalyzeOptions(follow=True)) as waiting:

        def tell(progress):
            told.append(progress.compiling)
            waiting.stop()

        waiting._tell = tell
        assert not waiting.read()
    assert told[0] == bool(kernels)


def test_a_clock_that_starts_at_zero(tmp_path, monkeypatch):
    """Simulators write such captures: zero is a time, not the absence of one."""
    with data("c10").open("rb") as file:
        frames = [frame for _, frame in dpkt.pcap.Reader(file)][:60]
    moved = [Frame(1000 * i, frame) for i, frame in enumerate(frames)]
    path = write_pcap(tmp_path / "zero.pcap", moved)
    monkeypatch.setattr(engine, "BATCH_FRAMES", 10)
    (capture,) = run(path).captures
    assert (capture.first_time_ns, capture.duration_ns) == (0, 59_000)


def test_most_packets_late_is_not_most_packets_unseen(tmp_path):
    """Two of five packets seen came late, and a seventh of all was lost: both can be told."""
    with data("c10").open("rb") as file:
        every = [bytearray(frame) for _, frame in dpkt.pcap.Reader(file)]
    send_only = 0x04
    (packet, *_) = [f for f in every if f[36:38] == b"\x12\xb7" and f[42] == send_only]
    order = [p + 1 - 2 * (p % 2) for p in range(700)]  # neighbours change places
    order = [p for p in order if p % 7 != 5]
    late = sum(p < max(order[: i + 1]) for i, p in enumerate(order))
    arp = bytes(12) + b"\x08\x06" + bytes(46)
    frames = [Frame(0, arp)]  # the capture runs before the flow begins
    for i, psn in enumerate(order):
        packet[18:20] = psn.to_bytes(2, "big")
        packet[51:54] = psn.to_bytes(3, "big")
        frames.append(Frame(1_000_000_000 + 1000 * i, bytes(packet)))
    (flow,) = run(write_pcap(tmp_path / "late.pcap", frames)).flows
    assert (flow.reordered_packets, flow.missing_packets) == (late, 100)


def test_all_taps_are_known_before_the_first_packet():
    names = [str(data(f"i01_write_loss0.5_AtoB.at{tap}")) for tap in "AB"]
    with open_captures(names, AnalyzeOptions()) as two:
        assert two.measuring.tracker.copies.shape == (2, 2)


def test_an_analysis_leaves_memory_at_its_end(monkeypatch):
    """Nothing waits for a collection of circles, which large arrays alone never start."""
    owned = []
    begin = engine.CapturePipeline.__init__

    def noted(one, *words):
        begin(one, *words)
        parts = one, one.measuring, one.measuring.tracker, one.sources[0].decoder
        owned.extend(map(weakref.ref, parts))

    monkeypatch.setattr(engine.CapturePipeline, "__init__", noted)
    gc.disable()
    try:
        run(data("i03"))
        assert [part() for part in owned] == [None] * 4
    finally:
        gc.enable()


@pytest.mark.thorough
@pytest.mark.parametrize("most", [100_000, 20])
def test_following_in_a_thread_of_its_own_changes_nothing(most):
    """With and without other readers of the state; also when a limit ends reading."""
    options = AnalyzeOptions(max_flows=most)
    found = []
    for alone in (False, True):
        with open_captures(SPRAYED, options) as run:
            whole = run.read(alone)
            assert whole == (most > 20)
            result = run.conclude(whole)
            if not whole:  # frames that were read ahead
                result = msgspec.structs.replace(result, captures=[], warnings=[])
            found.append((msgspec.json.encode(result), run.packets))
    assert found[0] == found[1]


def test_an_error_while_packets_are_followed_is_raised(monkeypatch):
    def broken(self, batch):
        raise MemoryError

    monkeypatch.setattr(HopMeasure, "follow", broken)
    with open_captures(SPRAYED, AnalyzeOptions()) as run, pytest.raises(MemoryError):
        run.read(alone=True)


def test_connection_messages_come_before_the_same_rows_in_tables_of_any_size(tmp_path, monkeypatch):
    monkeypatch.setattr(engine, "BATCH_FRAMES", 16)
    names = [str(data("c10")), shutil.copy(data("c10"), tmp_path)]

    def places(merge):
        monkeypatch.setattr(engine, "merge_tables", merge)
        rows, found = 0, []
        with open_captures(names, AnalyzeOptions()) as run:
            for table, messages in run._tables():
                found += [(rows, message.kind, message.time_ns) for message in messages]
                rows += len(table)
        return found

    def always_apart(tables, counts, rows, apart):
        return merge_tables(tables, counts, 1 << 20, lambda: apart() or True)

    found = places(merge_tables)
    assert len({rows for rows, *_ in found}) > 2
    assert found == places(always_apart)
