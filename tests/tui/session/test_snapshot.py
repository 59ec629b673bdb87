"""Stored snapshots take less memory and come back as they were."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields, replace
from dataclasses import replace as replace_columns
from pathlib import Path

import factories_results as factories
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from captures import DATA, data
from msgspec import structs
from msgspec.structs import replace as replace_judged

from rocescope.analyzer.errors import UnreadableInput
from rocescope.analyzer.pipeline.captures import analyze
from rocescope.analyzer.pipeline.options import AnalyzeOptions
from rocescope.analyzer.results.base import Event
from rocescope.analyzer.results.diagnosis import Diagnosis
from rocescope.analyzer.results.flow import Flow, Owner
from rocescope.analyzer.statistics.per_flow import kept_flows
from rocescope.report.files.tables import arrow_table, encode_records, flow_columns
from rocescope.tui.session.columns import RateMeter, level_and_tap, with_hops
from rocescope.tui.session.judged import STALLED, Judged
from rocescope.tui.session.matrix import at_one_place, known_sets
from rocescope.tui.session.results import read_flow_rows
from rocescope.tui.session.session import Session
from rocescope.tui.session.snapshot import (
    UNKNOWN,
    FlowColumns,
    PathColumns,
    Snapshot,
    SourceState,
    kept_events,
    kept_snapshot,
    packed,
    unpacked,
)

# Stored snapshots take less memory and come back as they were.

# Stored snapshots take less memory and come back as they were.


def _bytes(columns: FlowColumns) -> int:
    return sum(getattr(columns, field.name).nbytes for field in fields(columns))


def test_a_stored_snapshot_comes_back() -> None:
    session = Session.open([str(data("i03_write_reorder5_AtoB"))])
    session.start()
    session.wait(300)
    snapshot = session.snapshot()
    session.close()
    stored = packed(snapshot)
    assert 3 * _bytes(stored.flows) < 2 * _bytes(snapshot.flows)
    again = unpacked(stored)
    for mine, theirs in (
        (again.flows, snapshot.flows),
        (again.paths["entropy"], snapshot.paths["entropy"]),
    ):
        for field in fields(mine):
            one, other = getattr(mine, field.name), getattr(theirs, field.name)
            if isinstance(other, np.ndarray):
                assert one.dtype == other.dtype, field.name
                assert np.array_equal(one, other), field.name
            else:
                assert one == other


# Snapshots after flows left memory.


def columns(flows):
    values = {f.name: np.arange(flows) + 10 for f in fields(FlowColumns)}
    return FlowColumns(**values | {"peer": np.array([1, 0, -1, -1][:flows], np.int32)})


def event(number, flow):
    return Event(number, "nak", flow, None, None, f"event {number}")


def test_columns_paths_owners_and_events_of_kept_flows_stay():
    empty = PathColumns.none()
    paths = replace(
        empty,
        starts=np.array([0, 2, 3, 3, 5]),
        key=np.array([1, 2, 3, 4, 5]),
        packets=np.arange(5),
        wire_bytes=np.arange(5),
        late=np.arange(5),
        marked=np.arange(5),
        width=np.array([2.0, 1.0, 0.0, 2.0]),
    )
    snapshot = Snapshot(
        SourceState("x", "live"),
        flows=columns(4),
        paths={"entropy": paths},
        owners={0: Owner(1, "a", None), 3: Owner(2, "b", None)},
        events=(event(0, 0), event(1, None), event(2, 3)),
    )
    # A fifth flow came after the snapshot.
    kept = kept_flows(np.array([False, True, True, True, False]))
    new = kept_snapshot(snapshot, kept)
    assert new.flows.packets.tolist() == [11, 12, 13]
    assert new.flows.peer.tolist() == [-1, -1, -1]
    assert new.paths["entropy"].starts.tolist() == [0, 1, 1, 3]
    assert new.paths["entropy"].key.tolist() == [3, 4, 5]
    assert new.paths["entropy"].width.tolist() == [1.0, 0.0, 2.0]
    assert new.owners == {2: Owner(2, "b", None)}
    assert [(e.time_ns, e.flow) for e in new.events] == [(1, None), (2, 2)]


def test_events_that_snapshots_share_stay_shared():
    kept, renamed = kept_flows(np.array([False, True])), {}
    events = [event(0, 1), event(1, 0)]
    first, second = (list(kept_events(events, kept, renamed)) for _ in range(2))
    assert len(first) == 1 and first[0] is second[0]


# Rates: steady where packets came steadily, however they are read, and none of the past.

EVERY_NS = 1_000_000
"""A thousand packets a second, of 100 bytes, of which one flow has every fourth."""
BEGIN_NS = 1_700_000_000 * 10**9


def read(meter, packets, now, **state):
    """The rates when so many packets of the stream were read."""
    source = SourceState("veth0", "live", packets=packets, **state)
    wire_bytes = np.array([75, 25]) * packets
    span = (BEGIN_NS, BEGIN_NS + max(0, packets - 1) * EVERY_NS) if packets else (0, 0)
    return meter.of(source, wire_bytes if packets else np.zeros(0, np.int64), span, now)


def test_packets_that_are_read_in_steps_have_a_steady_rate():
    meter = RateMeter()
    assert read(meter, 0, 0.0).packets_per_second is None
    read(meter, 300, 0.3)
    seen = 300
    for step in range(60):
        now = 0.55 + 0.25 * step
        if step % 5 in (0, 3, 4):  # a reader looks at the file now and then
            seen = int(now * 1000) - (step % 3) * 90
        rates = read(meter, seen, now)
        if now > 1.6:
            assert rates.packets_per_second == pytest.approx(1000, rel=0.002)
            assert rates.bits_per_second == pytest.approx(800_000, rel=0.002)
            assert rates.by_flow == pytest.approx([600_000, 200_000], rel=0.002)


def test_many_packets_at_once_were_not_sent_at_once():
    """Kernels were compiled for half a minute; the file was filled meanwhile."""
    meter = RateMeter()
    for packets, now in ((0, 0.0), (16_000, 30.0), (30_250, 30.25), (30_500, 30.5)):
        rates = read(meter, packets, now)
    assert rates.packets_per_second == pytest.approx(1000, rel=0.001)


def test_a_burst_counts_for_a_second_and_silence_is_0():
    meter = RateMeter()
    read(meter, 0, 0.0)
    assert read(meter, 50, 0.1).packets_per_second == 50
    assert read(meter, 50, 0.9).packets_per_second == 50
    assert read(meter, 50, 1.3).packets_per_second == 0
    for now in range(2, 61):
        assert read(meter, 50, float(now)).packets_per_second == 0
    late = SourceState("veth0", "live", packets=150)
    span = (BEGIN_NS, BEGIN_NS + 60 * 10**9)
    again = meter.of(late, np.array([7500, 2500]), span, 60.1)
    assert 45 < again.packets_per_second < 101


def test_what_is_stopped_or_read_again_has_the_mean_of_its_own_time():
    for state in ({"running": False}, {"bytes_total": 9, "bytes_done": 3}):
        meter = RateMeter()
        read(meter, 16_000, 0.1)
        rates = read(meter, 4_001, 0.2, **state)
        assert rates.packets_per_second == pytest.approx(1000, rel=0.001)
        assert rates.bits_per_second == pytest.approx(800_000, rel=0.001)
        assert rates.by_flow is None  # each flow has that over its own life


# The diagnosis as screens need it.

LOSS, SPRAYING = factories.diagnosis().findings


def judged(*findings):
    diagnosis = Diagnosis("", list(findings), [], [])
    return Judged.of(factories.analysis(diagnosis=diagnosis), True)


def test_the_worst_finding_of_a_flow_is_its_state():
    found = judged(LOSS, SPRAYING, replace_judged(SPRAYING, flows=[2, 4]))
    assert found.states == {2: (2, "loss"), 0: (1, "spraying"), 4: (1, "spraying")}
    assert found.ranks(4).tolist() == [1, 0, 2, 0]


def test_stalled_is_the_worst_state_and_has_a_name_of_its_own():
    stalled = replace_judged(LOSS, kind="stalled", severity="warning")
    critical = replace_judged(LOSS, kind="blackhole", severity="critical")
    assert judged(critical, stalled).states[2] == (4, STALLED)


def test_without_an_analysis_there_is_a_reason():
    nothing = Judged()
    assert nothing.diagnosis is None and nothing.why and not nothing.final
    assert not nothing.findings and nothing.ranks(3).tolist() == [0, 0, 0]


def test_what_befell_packets_after_their_first_tap_is_added():
    flows = replace_columns(
        FlowColumns.none(),
        **{f.name: np.zeros(3, np.int64) for f in fields(FlowColumns)},
    )
    first = replace_columns(
        flows, late=np.array([2, UNKNOWN, UNKNOWN]), ecn_marked=np.array([0, 1, 0])
    )
    judged = Judged(late={0: 5, 1: 4}, lost={2: 7, 9: 1}, marked={1: 3})
    found = with_hops(first, judged)
    assert found.late.tolist() == [7, 4, UNKNOWN]
    assert found.recovered.tolist() == [0, 0, 7]
    assert found.ecn_marked.tolist() == [0, 3, 0]
    assert first.late.tolist() == [2, UNKNOWN, UNKNOWN]


# Paths by tap are parallel links, never taps in series.

FABRIC = sorted((DATA / "whole_leafspine/r09_packet_spray_h1").glob("*.pcap.xz"))
SPRAYED = "10.1.1.10", "10.2.3.10"
HOST, LEFT, RIGHT, FAR = 0, (1, 2), (3, 4), 5


def columns_matrix(*rows):
    """Rows (flow, hop limit, tap, bytes), in the order of flows, hop limits modulo 8 and taps."""
    flow, limit, tap, size = (np.array(part, np.int64) for part in zip(*rows, strict=True))
    flows = int(flow[-1]) + 1
    return PathColumns(
        "tap",
        np.searchsorted(flow, np.arange(flows + 1)),
        level_and_tap(limit % 8, tap),
        size // 100,
        size,
        size * 0,
        size * 0,
        np.zeros(flows),
    )


def loads(found, flow):
    at = found.of(flow)
    return dict(zip(found.key[at].tolist(), found.wire_bytes[at].tolist(), strict=True))


THERE = [(0, 64, HOST, 800), (0, 61, FAR, 800), (0, 62, 4, 800), (0, 63, 2, 800)]
BACK = [(1, 64, FAR, 400), (1, 61, HOST, 400), (1, 62, 1, 400), (1, 63, 3, 400)]


def test_the_parallel_links_nearest_to_the_sender_with_the_idle_ones():
    found = at_one_place(columns_matrix(*THERE, *BACK), [LEFT, RIGHT])
    assert loads(found, 0) == {1: 0, 2: 800}
    assert loads(found, 1) == {3: 400, 4: 0}
    assert found.width.tolist() == [1, 1]
    assert found.fair.tolist() == [1, 1, 1, 1]


def test_links_that_a_flow_is_sprayed_over_come_first():
    """A flow that leaves over one link, and that the next device spreads."""
    rows = [(0, 64, HOST, 800), (0, 62, 3, 390), (0, 62, 4, 410), (0, 63, 1, 800)]
    found = at_one_place(columns_matrix(*rows), [LEFT, RIGHT])
    assert loads(found, 0) == {3: 390, 4: 410}
    assert found.width == pytest.approx([2], abs=0.01)


def test_a_link_with_few_of_the_packets_is_not_the_place():
    rows = [(0, 64, HOST, 800), (0, 62, 3, 700), (0, 63, 1, 100)]
    assert loads(at_one_place(columns_matrix(*rows), [LEFT, RIGHT]), 0) == {3: 700, 4: 0}


def test_a_flow_that_passes_no_parallel_links_has_one_path():
    found = at_one_place(columns_matrix((0, 64, HOST, 800)), [LEFT])
    assert loads(found, 0) == {HOST: 800}


def test_while_parallel_links_are_not_known_taps_at_one_level_are_paths():
    rows = [(0, 64, HOST, 800), (0, 63, 1, 300), (0, 63, 2, 500)]
    found = at_one_place(columns_matrix(*rows), None)
    assert loads(found, 0) == {1: 300, 2: 500}
    assert found.fair is None


def test_names_of_taps_that_are_not_there_are_left_out():
    assert known_sets(["a", "b", "c"], [("b", "c", "x"), ("a", "y")]) == [[1, 2]]


@pytest.fixture(scope="module")
def fabric():
    """Twelve taps: hosts, both sides of four spines; one host is sprayed."""
    session = Session.open([str(path) for path in FABRIC])
    session.start()
    assert session.wait(300)
    session.diagnose()
    snapshot = session.snapshot()
    yield snapshot
    session.close()


def test_no_link_of_a_host_competes_with_those_of_spines(fabric):
    sets = known_sets(fabric.source.tap_names, fabric.judged.parallel_taps)
    found = at_one_place(fabric.paths["tap"], sets)
    data = np.flatnonzero(fabric.carries_data())
    for flow in data.tolist():
        key = fabric.key(flow)
        leaf = "leaf1" if key.src.startswith("10.1.") else "leaf2"
        names = [found.name(tap) for tap in found.key[found.of(flow)].tolist()]
        assert names == [f"{leaf}-spine{n}.pcap.xz" for n in (1, 2, 3, 4)]
        width = found.width[flow]
        assert width > 3.9 if (key.src, key.dst) == SPRAYED else width == 1
        assert found.packets[found.of(flow)].sum() == fabric.flows.data_packets[flow]


# Rows of flows in Parquet files as columns, in bounded memory.


@pytest.fixture(scope="module")
def flow() -> Flow:
    """A flow without any trouble."""
    flows = analyze([str(data("c10"))], AnalyzeOptions()).flows
    return structs.replace(
        next(flow for flow in flows if flow.missing_packets == 0), connection=None
    )


def write(folder: Path, name: str, flows: Sequence[Flow]) -> None:
    (folder / name).write_bytes(encode_records(flow_columns(), flows, "parquet"))


def test_listed_flows_stay_and_the_worst_of_the_others(tmp_path: Path, flow: Flow) -> None:
    listed = [structs.replace(flow, id=n, src=f"10.0.0.{n}") for n in (2, 0, 1)]
    left = [structs.replace(flow, id=100 + n, dest_qp=n) for n in range(60)]
    for number, trouble in (
        (7, {"missing_packets": 1, "lost_between_taps": 2}),
        (50, {"reordered_packets": 1, "reordered_between_taps": 8}),
        (20, {"retransmitted_packets": 1}),
        (55, {"reordered_packets": 2, "missing_packets": None}),
    ):
        left[number] = structs.replace(left[number], **trouble)
    write(tmp_path, "0.parquet", listed)
    write(tmp_path, "ended.parquet", left)
    found = read_flow_rows(tmp_path, 3, most=6)
    assert [found.addresses[n] for n in found.flows.src[:3]] == ["10.0.0.0", "10.0.0.1", "10.0.0.2"]
    assert found.flows.qp[3:].tolist() == [7, 20, 50]
    assert found.left_out == 57
    assert len(found.addresses) == len({*found.addresses}) == 3
    whole = read_flow_rows(tmp_path, 3)
    assert (len(whole.flows), whole.left_out) == (63, 0)
    assert (whole.lost[3 + 7], whole.late[3 + 50]) == (2, 8)
    assert whole.flows.missing[3 + 55] == UNKNOWN
    assert len(read_flow_rows(tmp_path, 3, most=2).flows) == 3


def test_both_flows_of_a_connection_find_each_other(tmp_path: Path, flow: Flow) -> None:
    """What one carries are the answers to the other."""
    flows = [
        structs.replace(flow, id=0, connection=4, naks=3, cnps=2),
        structs.replace(flow, id=1),
        structs.replace(flow, id=2, connection=4, naks=0, cnps=0),
    ]
    write(tmp_path, "0.parquet", flows)
    columns = read_flow_rows(tmp_path, 3).flows
    assert columns.peer.tolist() == [2, -1, 0]
    assert columns.naks.tolist() == [0, UNKNOWN, 3]
    assert columns.cnps.tolist() == [0, UNKNOWN, 2]


def test_files_that_do_not_fit(tmp_path: Path, flow: Flow) -> None:
    write(tmp_path, "0.parquet", [structs.replace(flow, id=0)])
    with pytest.raises(UnreadableInput, match="does not belong to summary.json"):
        read_flow_rows(tmp_path, 2)
    (tmp_path / "0.parquet").write_bytes(encode_records(flow_columns()[:3], [flow], "parquet"))
    with pytest.raises(UnreadableInput, match="cannot be read"):
        read_flow_rows(tmp_path, 1)
    good = arrow_table(flow_columns(), [structs.replace(flow, id=0)])
    for name, column in (
        ("src", pa.nulls(1, pa.string())),
        ("transport", pa.nulls(1, pa.string())),
        ("dst", pa.array([b"\xff"])),
        ("packets", pa.array([1e300])),
    ):
        at = good.schema.get_field_index(name)
        pq.write_table(good.set_column(at, name, column), tmp_path / "0.parquet")
        with pytest.raises(UnreadableInput, match="cannot be read"):
            read_flow_rows(tmp_path, 1)
    write(tmp_path, "0.parquet", [])
    assert len(read_flow_rows(tmp_path, 0).flows) == 0
