"""Tables of records against the records themselves."""

from __future__ import annotations

import polars as pl
import pyarrow as pa
import pytest
from captures import DATA

import rocescope
from rocescope.report.files.tables import record_columns


@pytest.fixture(scope="module")
def result():
    return rocescope.analyze(DATA / "c40_rc_oddities_ipv4.atB.pcap")


def test_a_table_holds_what_the_records_hold(result):
    frame = result.flows.to_polars()
    assert frame["id"].to_list() == [flow.id for flow in result.flows]
    assert frame["dest_qp"].to_list() == [flow.dest_qp for flow in result.flows]
    assert frame["recovery_rewinds"].to_list() == [flow.recovery.rewinds for flow in result.flows]
    p99 = [m and m.p99 for m in (flow.message_statistics.size_bytes for flow in result.flows)]
    assert frame["message_statistics_size_bytes_p99"].to_list() == p99


def test_lists_stay_lists(result):
    frame = result.connections.to_polars()
    assert frame["flows"].to_list() == [c.flows for c in result.connections]
    assert frame["evidence"].to_list() == [c.evidence for c in result.connections]


def test_a_slice_is_a_table_too(result):
    part = result.events[2:5]
    assert list(part) == list(result.events)[2:5]
    assert part.to_arrow().num_rows == 3
    assert result.events[-1] == list(result.events)[-1]


def test_any_reader_of_arrow_takes_them(result):
    assert pa.table(result.flows).equals(result.flows.to_arrow())
    assert pl.DataFrame(pa.table(result.flows)).equals(result.flows.to_polars())


def test_no_records_are_an_empty_table(result):
    assert not len(result.hops)
    frame = result.hops.to_polars()
    assert frame.height == 0
    assert "lost_packets" in frame.columns


def test_columns_say_their_unit(result):
    field = result.events.to_arrow().schema.field("time_ns")
    assert field.metadata[b"unit"] == b"ns"
    assert {column.name for column in record_columns(type(result.events[0]))} >= {"kind", "text"}


def test_html_is_escaped_and_bounded(result):
    shown = type(result.events)(
        type(result.events[0]),
        [rocescope_event("<script>alert(1)</script>")] * 50,
    )
    html = shown._repr_html_()
    assert "<script>" not in html
    assert "&lt;script&gt;" in html
    assert "20 of 50 rows" in html


def rocescope_event(text):
    from rocescope.analyzer.results.base import Event

    return Event(time_ns=1, kind="nak", flow=None, frame_number=None, tap=None, text=text)
