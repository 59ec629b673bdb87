"""Rows of flows in Parquet files as columns, in bounded memory."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from captures import data
from msgspec import structs

from rocescope.analyzer.errors import UnreadableInput
from rocescope.analyzer.pipeline.captures import analyze
from rocescope.analyzer.pipeline.options import AnalyzeOptions
from rocescope.analyzer.results.flow import Flow
from rocescope.report.files.tables import arrow_table, encode_records, flow_columns
from rocescope.tui.session.flow_rows import read_flow_rows
from rocescope.tui.session.snapshot import UNKNOWN


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
