"""Exported packets against tshark's fields."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import polars as pl
import pyarrow.parquet as pq
import pytest

from rocescope import cli
from rocescope.analyzer.decode.grants import GRANT_COLUMNS
from rocescope.report.files import packets as packet_stream
from rocescope.report.files.packets import packet_schema

CAPTURE = "c40_rc_oddities_ipv4.atB.pcap"
FIELDS = {
    "frame_number": "frame.number",
    "src": "ip.src",
    "dst": "ip.dst",
    "udp_sport": "udp.srcport",
    "opcode": "infiniband.bth.opcode",
    "psn": "infiniband.bth.psn",
    "wire_bytes": "frame.len",
    "reth_dma_length": "infiniband.reth.dmalen",
    "aeth_msn": "infiniband.aeth.msn",
    "atomic_compare": "infiniband.atomiceth.cmpdt",
}


@pytest.mark.thorough
@pytest.mark.parametrize("suffix", ["parquet", "arrow"])
def test_every_packet_as_tshark_sees_it(
    data: Path, tmp_path: Path, need_tool: Callable[[str], str], suffix: str
) -> None:
    output = tmp_path / f"packets.{suffix}"
    assert cli.run(["export", str(data / CAPTURE), "-o", str(output), "--extensions"]) == 0
    frame = pl.read_parquet(output) if suffix == "parquet" else pl.read_ipc(output)
    command = [need_tool("tshark"), "-n", "-r", str(data / CAPTURE), "-Y", "infiniband.bth"]
    command += ["-T", "fields", *(word for field in FIELDS.values() for word in ("-e", field))]
    lines = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    expected = [line.split("\t") for line in lines.splitlines()]
    assert len(frame) == len(expected) == 564
    for row, fields in zip(frame.select(*FIELDS).iter_rows(), expected, strict=True):
        for value, text in zip(row, fields, strict=True):
            assert value == (text if isinstance(value, str) else int(text or "0", 0))
    assert set(frame["tap"]) == {CAPTURE}


def test_grants_are_columns(data: Path, tmp_path: Path) -> None:
    """Null where there is no grant, and never 0 for a rank."""
    output, capture = tmp_path / "grants.parquet", "leaf1-spine1.pcap.zst"
    path = data / "jobs" / "h5_two_jobs_slow_host" / capture
    assert cli.run(["export", str(path), "-o", str(output), "--extensions"]) == 0
    frame = pl.read_parquet(output)
    grants = frame.filter(pl.col("grant_rank").is_not_null())
    assert 100 < len(grants) < len(frame) / 2
    assert grants["opcode"].unique().to_list() == [0x0A]
    assert grants["payload_bytes"].unique().to_list() == [64]
    assert grants["grant_slot_bytes"].unique().to_list() == [32_768]
    assert set(grants["grant_rank"]) <= {0, 1, 2, 3}
    assert grants["grant_number"].min() == 1
    others = frame.filter(pl.col("grant_rank").is_null())
    for column in GRANT_COLUMNS:
        assert others[f"grant_{column.name}"].null_count() == len(others)


def test_filter_and_several_files(data: Path, tmp_path: Path) -> None:
    output = tmp_path / "naks.parquet"
    other = "c23_rc_write_vlan100.atB.pcap.gz"
    command = [
        "export",
        str(data / CAPTURE),
        str(data / other),
        "-o",
        str(output),
        "--tap",
        f"vlan={other}",
    ]
    assert cli.run([*command, "--filter", "nak or vlan.id == 100 and opcode == WRITE_FIRST"]) == 0
    frame = pl.read_parquet(output)
    assert set(frame["tap"]) == {CAPTURE, "vlan"}
    assert set(frame.filter(pl.col("tap") == "vlan")["opcode"]) == {6}


def test_fields_carry_units_and_meanings(data: Path, tmp_path: Path) -> None:
    output = tmp_path / "packets.parquet"
    cli.run(["export", str(data / CAPTURE), "-o", str(output)])
    schema = pq.read_schema(output)
    assert schema.names == packet_schema().names
    assert schema.field("time_ns").metadata[b"unit"] == b"ns"
    assert schema.field("src").metadata[b"meaning"] == b"source address"


def test_one_row_group_per_batch(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(packet_stream, "_BATCH_FRAMES", 100)
    output = tmp_path / "packets.parquet"
    cli.run(["export", str(data / CAPTURE), "-o", str(output)])
    metadata = pq.read_metadata(output)
    assert metadata.num_rows == 564 and metadata.num_row_groups >= 6


def test_a_capture_without_roce_says_what_is_in_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    header = bytes.fromhex("d4c3b2a1020004000000000000000000ffff000001000000")
    arp = bytes(12) + bytes.fromhex("0806") + bytes(46)
    record = bytes(8) + len(arp).to_bytes(4, sys.byteorder) * 2 + arp
    (tmp_path / "arp.pcap").write_bytes(header + record)
    output = tmp_path / "packets.arrow"
    assert cli.run(["export", str(tmp_path / "arp.pcap"), "-o", str(output)]) == 4
    assert "no RoCE packet was found; the capture has 1 ARP" in capsys.readouterr().err
    assert not output.exists()
