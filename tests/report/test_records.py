"""Tables of records against the records themselves."""

from __future__ import annotations

import json
import os
import struct
from dataclasses import replace
from pathlib import Path
from typing import Any

import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from captures import DATA, data
from factories import START_NS, Frame, pcap_bytes

import rocescope
from rocescope.analyzer.errors import RocescopeError
from rocescope.analyzer.pipeline.captures import analyze
from rocescope.analyzer.pipeline.options import AnalyzeOptions
from rocescope.analyzer.results.analysis import Analysis
from rocescope.report.files import encode_json
from rocescope.report.files.tables import flow_columns, record_columns
from rocescope.report.out_folder import out_folder
from rocescope.report.whole_file import whole_file

# Tables of records against the records themselves.


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


# A file appears whole or not at all.

# A file appears whole or not at all.


def test_the_old_file_stays_until_the_new_one_is_whole(tmp_path: Path) -> None:
    path = tmp_path / "r.json"
    path.write_text("old")
    path.chmod(0o640)
    with whole_file(path) as file:
        file.write(b"new")
        file.flush()
        assert path.read_text() == "old"
    assert path.read_text() == "new"
    assert path.stat().st_mode & 0o777 == 0o640
    assert os.listdir(tmp_path) == ["r.json"]


@pytest.mark.parametrize("error", [ValueError("x"), KeyboardInterrupt(), RocescopeError("x")])
def test_after_a_failure_the_old_file_is_there_and_nothing_else(
    tmp_path: Path, error: BaseException
) -> None:
    path = tmp_path / "r.json"
    path.write_text("old")
    with pytest.raises(type(error)), whole_file(path) as file:
        file.write(b"half")
        raise error
    assert path.read_text() == "old"
    assert os.listdir(tmp_path) == ["r.json"]


def test_a_link_keeps_pointing_to_the_file(tmp_path: Path) -> None:
    (tmp_path / "real.json").write_text("old")
    link = tmp_path / "link.json"
    link.symlink_to("real.json")
    with whole_file(link) as file:
        file.write(b"new")
    assert link.is_symlink() and (tmp_path / "real.json").read_text() == "new"


def test_new_files_have_ordinary_permissions(tmp_path: Path) -> None:
    before = os.umask(0o022)
    try:
        with whole_file(tmp_path / "r.csv") as file:
            file.write(b"x")
    finally:
        os.umask(before)
    assert (tmp_path / "r.csv").stat().st_mode & 0o777 == 0o644


def test_a_device_is_written_directly() -> None:
    with whole_file(Path(os.devnull)) as file:
        file.write(b"x")
    with pytest.raises(RocescopeError, match="cannot write /dev/full: no space left on device"):
        with whole_file(Path("/dev/full")) as file:
            file.write(b"x")


@pytest.mark.usefixtures("root")
def test_links_of_others_in_a_shared_folder_are_not_followed(tmp_path: Path) -> None:
    shared, target = tmp_path / "shared", tmp_path / "target"
    shared.mkdir()
    shared.chmod(0o1777)
    target.write_text("old")
    link = shared / "x"
    link.symlink_to(target)
    os.lchown(link, 65534, 65534)
    with pytest.raises(RocescopeError, match="a link of another user"), whole_file(link) as file:
        file.write(b"new")
    assert target.read_text() == "old"


# The results of an analysis as a folder.

FILES = {
    "flows/0.parquet", "hops.parquet", "steps.parquet", "findings.json", "summary.json",
    "report.html",
}  # fmt: skip
FLOWS, KEPT = 1700, 1500
OWN = ("id", "connection", "activity_bin_ns")
"""Numbers of records, and bins that are as wide as the capture needs."""


@pytest.fixture(scope="module")
def analysis() -> Analysis:
    paths = [str(data(f"i01_write_loss0.5_AtoB.{at}")) for at in ("atA", "atB")]
    return analyze(paths, AnalyzeOptions())


def write(folder: Path, analysis: Analysis) -> None:
    with out_folder(folder) as out:
        out.write(analysis)


def files(folder: Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}


def test_all_files(tmp_path: Path, analysis: Analysis) -> None:
    folder = tmp_path / "out"
    write(folder, analysis)
    (folder / "flows" / "ended.parquet").touch()  # of an earlier analysis
    write(folder, analysis)
    assert files(folder) == FILES
    assert (folder / "summary.json").read_bytes() == encode_json(analysis)
    assert pq.read_table(folder / "flows").num_rows == len(analysis.flows) > 0
    hops = pq.read_table(folder / "hops.parquet").to_pylist()
    assert [hop["lost_packets"] for hop in hops] == [hop.lost_packets for hop in analysis.hops]
    assert json.loads((folder / "findings.json").read_bytes())["findings"]
    assert (folder / "report.html").read_text().startswith("<!DOCTYPE html>")


def test_a_file_in_place_of_the_folder_is_told(tmp_path: Path, analysis: Analysis) -> None:
    (tmp_path / "out").write_text("x")
    with pytest.raises(RocescopeError, match="cannot write .*out: "):
        write(tmp_path / "out", analysis)


def write_only(flow: int, psn: int, copy: int) -> bytes:
    """A WRITE Only of a flow of its own source; answers come from nobody."""
    bth = struct.pack(">BBHII", 10, 0, 0xFFFF, 0x1000 + flow, psn) + bytes(20)
    udp = struct.pack(">HHHH", 50000 + psn % 2, 4791, 8 + len(bth), 0) + bth
    ident = 16 * flow + 2 * psn + copy
    ip = struct.pack(">BBHHHBBH", 0x45, 2, 20 + len(udp), ident & 0xFFFF, 0x4000, 64, 17, 0)
    hosts = struct.pack(">II", 0x0A000000 + flow % 40, 0x0B000001)
    return bytes(12) + b"\x08\x00" + ip + hosts + udp


def many_flows(path: Path) -> None:
    """Every fifth flow has a late packet, every seventh a retransmitted one."""
    frames = []
    for flow in range(FLOWS):
        psns = [(0, 0), (1, 0), (2, 0), (3, 0)]
        if flow % 5 == 0:
            psns[1:3] = psns[2], psns[1]
        if flow % 7 == 0:
            psns.append((2, 1))
        frames += [write_only(flow, psn, copy) for psn, copy in psns]
    path.write_bytes(pcap_bytes(Frame(START_NS + n * 977, data) for n, data in enumerate(frames)))


def rows(folder: Path, name: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = pq.read_table(folder / "flows" / name).to_pylist()
    return found


@pytest.mark.thorough
def test_rows_of_flows_that_left_memory_are_those_of_an_analysis_with_room_for_all(
    tmp_path: Path,
) -> None:
    many_flows(tmp_path / "x.pcap")
    options = AnalyzeOptions(max_flows=KEPT)
    with out_folder(tmp_path / "out") as out:
        found = analyze([str(tmp_path / "x.pcap")], options, ended=out.ended)
        out.write(found)
    assert files(tmp_path / "out") == {*FILES, "flows/ended.parquet"}
    assert "flows/ended.parquet has a row of every other flow" in found.warnings[0]
    listed, left = rows(tmp_path / "out", "0.parquet"), rows(tmp_path / "out", "ended.parquet")
    assert len(left) == found.left.flows >= FLOWS - KEPT
    assert len(listed) == len(found.flows) == FLOWS - len(left)
    assert [row["id"] for row in left] == list(range(KEPT, KEPT + len(left)))
    whole = analyze([str(tmp_path / "x.pcap")], replace(options, max_flows=FLOWS))
    assert not whole.left.flows
    names = [column.name for column in flow_columns()]
    expected = {
        (flow.src, flow.dest_qp): dict(
            zip(names, (column.value(flow) for column in flow_columns()), strict=True)
        )
        for flow in whole.flows
    }
    assert sum(row["reordered_packets"] for row in expected.values()) == FLOWS / 5
    for row in (*listed, *left):
        known = expected.pop((row["src"], row["dest_qp"]))
        assert row | dict.fromkeys(OWN) == known | dict.fromkeys(OWN)
    assert not expected


def test_an_error_leaves_what_the_folder_has(
    tmp_path: Path, analysis: Analysis, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "out"
    write(folder, analysis)
    before = {name: (folder / name).read_bytes() for name in files(folder)}

    def full(*_: object) -> bytes:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("rocescope.report.out_folder.analysis_html", full)
    with pytest.raises(RocescopeError, match="no space left"), out_folder(folder) as out:
        out.ended(analysis.flows)
        out.write(analysis)
    assert {name: (folder / name).read_bytes() for name in files(folder)} == before
