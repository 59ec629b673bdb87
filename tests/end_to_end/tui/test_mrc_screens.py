"""MRC on the screens, against what its generator says it did; and nothing of it without MRC."""

from __future__ import annotations

import gzip
import json
import subprocess
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from captures import data
from encapsulations import WRAPPERS
from factories import Frame, write_pcap
from tui_driver import drive, svg_of, text_of

from rocescope.analyzer.pipeline.captures import analyze
from rocescope.analyzer.pipeline.options import AnalyzeOptions
from rocescope.analyzer.results.mrc import MrcFlow
from rocescope.analyzer.summary.names import parse_plane_by
from rocescope.commands.generate import generate_mrc
from rocescope.tui.exports import save
from rocescope.tui.screens import packets as packets_screen
from rocescope.tui.screens.mrc import plane_line
from rocescope.tui.session.dissect import mrc_lines
from rocescope.tui.session.flow_filter import FlowFilter
from rocescope.tui.session.packets import PacketExport, PacketScan, Wanted
from rocescope.tui.session.session import Session
from rocescope.tui.session.snapshot import UNKNOWN, FlowKey

from ..test_encapsulated import frames_of

# MRC on the screens, against what its generator says it did; and nothing of it without MRC.


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """A capture in which a plane fails, and its truth."""
    path = tmp_path_factory.mktemp("mrc") / "mrc.pcap"
    told = path.with_suffix(".json")
    generate_mrc(output=path, truth=told, loss=0.002, trim=0.002, ce=0.01, fail_plane=2)
    return path, json.loads(told.read_text())


@pytest.fixture(scope="module")
def seen(made):
    session = Session.open([str(made[0])])
    session.start()
    assert session.wait(300)
    yield session, session.snapshot()
    session.close()


def out_of_use(path):
    """Entropy values by plane that `analyze` says are out of use, and that may be."""
    known, may_be = Counter(), Counter()
    for flow in analyze([str(path)], AnalyzeOptions()).flows:
        for one in flow.mrc.retirements if isinstance(flow.mrc, MrcFlow) else []:
            if not one.certain:
                may_be[one.plane] += 1
            elif one.returned_time_ns is None:
                known[one.plane] += 1
    return known, may_be


def judged(path, qp):
    """What `analyze` says of a flow's entropy values, in the words of screen 4."""
    flows = analyze([str(path)], AnalyzeOptions()).flows
    (record,) = [f.mrc for f in flows if f.dest_qp == qp and isinstance(f.mrc, MrcFlow)]
    known = [one for one in record.retirements if one.certain]
    back = sum(one.returned_time_ns is not None for one in known)
    more = len(record.retirements) - len(known)
    return f"{len(known)} EVs retired, {back} returned, {more} more possibly retired."


def test_columns_are_the_truth(made, seen):
    _, snapshot = seen
    mrc, planes = snapshot.mrc, snapshot.paths["plane"]
    for told in made[1]["flows"]:
        f = snapshot.find(FlowKey(told["src"], told["dst"], told["dest_qp"]))
        assert int(mrc.values[f]) == len(told["values"])
        assert int(mrc.resends[f]) == told["retransmissions"]
        assert int(mrc.nacks[f]) == sum(told["nacks"].values())
        assert int(mrc.skips[f]) == told["skip_once"] + told["always_skip"]
        assert int(mrc.depth[f]) == told["max_out_of_order_depth"]
        assert planes.wire_bytes[planes.of(f)].tolist() == list(told["plane_bytes"].values())
    answering = [f for f in range(len(snapshot.flows)) if mrc.values[f] == UNKNOWN]
    assert len(answering) == len(snapshot.flows) - len(made[1]["flows"])
    (outage,) = made[1]["outages"]
    assert [(o.host, o.port, o.down_time_ns, o.up_time_ns) for o in mrc.outages] == [
        (outage["host"], outage["port"], outage["down_ns"], outage["up_ns"])
    ]


def test_a_plane_is_avoided_while_it_is_down(made):
    told = made[1]["outages"][0]
    session = Session.open([str(made[0])])
    session.start()
    assert session.wait(300)
    session.snapshot()
    start, _ = session.whole()
    session.set_window((start, told["up_ns"] - 1_000))
    assert session.wait(300)
    mrc = session.snapshot().mrc
    session.close()
    (avoided,) = [plane for plane in mrc.plane_states if plane.is_avoided]
    assert avoided.name.endswith("0200") and avoided.out_of_use == avoided.values
    begin = f" planes ▼ 0200: {avoided.values} of {avoided.values} EVs retired  "
    down = f"{told['host']} port 2 ▼ down since "
    assert plane_line(mrc, start).plain.startswith(begin + down)
    (one, *_) = mrc.plane_states
    few = [replace(one, values=40, out_of_use=1, may_be_out=2), replace(one, may_be_out=1)]
    line = plane_line(replace(mrc, plane_states=few, outages=()), start).plain
    assert "(1 EV retired, 2 EVs possibly retired), " in line and "(1 EV possibly retired)" in line


def test_the_columns_have_names_in_filters(made, seen):
    session, snapshot = seen
    told = {flow["dest_qp"]: flow for flow in made[1]["flows"]}
    most = sorted(flow["retransmissions"] for flow in told.values())[-2]

    def found(text):
        session.set_filter(text)
        return {snapshot.key(int(f)).qp for f in np.flatnonzero(session.passing(snapshot))}

    assert found(f"rtx > {most}") == {
        qp for qp, flow in told.items() if flow["retransmissions"] > most
    }
    assert found("rtx >= 0 and evs > 0") == set(told)  # flows that only answer have none
    assert found("nacks") == {qp for qp, flow in told.items() if sum(flow["nacks"].values())}
    assert found(f"sack < {max(f['max_out_of_order_depth'] for f in told.values())}") < set(told)
    session.set_filter("")
    assert not FlowFilter("evs >= 0").mask(replace(snapshot, mrc=None)).any()


def test_what_tells_planes_apart_may_be_said(made):
    options = AnalyzeOptions(plane_by=parse_plane_by("ev:0:1"))
    session = Session.open([str(made[0])], options)
    session.start()
    assert session.wait(300)
    snapshot = session.snapshot()
    session.close()
    assert snapshot.mrc.plane_by == "ev:0:1"
    planes = snapshot.paths["plane"]
    assert {planes.name(int(key)) for key in planes.key} == {"0", "1"}
    told = made[1]["flows"][0]
    flow = snapshot.find(FlowKey(told["src"], told["dst"], told["dest_qp"]))
    sent = [0, 0]
    for value in told["values"]:
        sent[value["sport"] & 1] += value["wire_bytes"]
    assert planes.wire_bytes[planes.of(flow)].tolist() == sent
    assert "--plane-by ev:0:1" in session.command_line(None)


def test_columns_have_entries_for_flows_that_come_later(seen):
    session, snapshot = seen
    more = len(snapshot.flows) + 3
    columns, planes = session._taken.mrc.of(more)
    assert {len(getattr(columns, name)) for name in ("values", "depth", "skips")} == {more}
    assert columns.values[-3:].tolist() == [UNKNOWN] * 3
    assert len(planes.seen()) == len(planes.width) == more and not planes.seen()[-3:].any()


@pytest.mark.thorough
def test_screens_of_mrc(made):
    path, told = made
    flow = told["flows"][0]
    lines = drive([path], ["s"], (160, 24), text_of)
    assert "EVs  OUT PLANES" in lines[4] and "RETRANS" not in lines[4]
    row = next(line for line in lines if f"0x{flow['dest_qp']:06x}" in line)
    assert f" {flow['retransmissions']} " in row and f" {flow['max_out_of_order_depth']}" in row
    lines = drive([path], ["p", "p", "4"], (140, 24), text_of)
    legend = lines[-2]
    known, may_be = out_of_use(made[0])
    for plane, count in known.items():
        assert f"{plane[-4:]}: {count} of " in legend or f"{plane[-4:]} ({count} EV" in legend
    for plane, count in may_be.items():
        assert plane in known or f"{plane[-4:]} ({count} EV" in legend, plane
    assert f"{told['outages'][0]['host']} port 2 ▲ up; down at" in legend
    assert "inferred by plane" in lines[-3] and "Path " in lines[2]
    lines = drive([path], ["6"], (120, 40), text_of)
    retired = f"{flow['retransmissions']} packets retransmitted (RTX)"
    assert retired in lines[2]
    assert judged(made[0], flow["dest_qp"]) in " ".join(" ".join(lines[2:4]).split())
    assert any("NACKs TRIMMED 3" in line for line in lines)
    lines = drive([path], ["8"], (120, 40), text_of)
    assert any("plane down" in line for line in lines)
    assert any("plane up" in line for line in lines)


def test_the_tree_names_what_wireshark_does_not_know(made, monkeypatch):
    monkeypatch.setattr(packets_screen, "dissect", lambda *_: [])
    lines = drive([made[0]], ["7"], (120, 40), text_of)
    shown = "\n".join(lines)
    assert "▾ MRC_WRITE_MIDDLE, decoded by rocescope" in shown and "▾ METH, decoded" in shown


def test_lines_stand_for_the_bytes_they_name(made):
    told = made[1]["flows"][0]
    packets = PacketScan([str(made[0])], FlowKey(told["src"], told["dst"], told["dest_qp"])).run()
    for row in (0, 1):
        frame, lines = packets.frame(row), mrc_lines(packets, row)
        where = {line.text.split(":")[0]: frame[line.begin : line.end] for line in lines}
        assert where["destination QP"] == told["dest_qp"].to_bytes(3, "big")
        for name in ("msn", "timestamp", "r_key", "virtual_address", "PSN"):
            text = next(line.text for line in lines if line.text.startswith(f"{name}:"))
            assert int.from_bytes(where[name], "big") == int(text.split()[1], 0), name


def test_without_mrc_there_is_nothing_of_it():
    lines = drive([data("i03_write_reorder5_AtoB")], ["p"], (140, 24), text_of)
    assert "RETRANS" in lines[4] and "PLANES" not in lines[4] and "RTX" not in lines[4]


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("name", "keys"),
    [("qps", []), ("paths", ["p", "p", "4"]), ("recovery", ["6"]), ("packets", ["7"])],
)
def test_pictures_of_the_documentation(name, keys, made, golden, the_same_everywhere):
    golden(f"docs/screens/{name}-mrc.svg", drive([made[0]], keys, (110, 32), svg_of))


# Packets found inside mirrors and tunnels, looked at one by one.


@pytest.mark.parametrize("name", ["field", "ip_in_ip", "vxlan"])
@pytest.mark.parametrize("packed", [False, True])
def test_packets_can_be_looked_at(name: str, packed: bool, tmp_path: Path) -> None:
    """The bytes of a packet are those inside, with the link type that they begin with."""
    frames = [f for f in frames_of("c10_rping_ipv4", 40) if f.data[23] == 17]
    path = write_pcap(
        tmp_path / "mirror.pcap", [Frame(f.time_ns, WRAPPERS[name](f.data)) for f in frames]
    )
    if packed:
        data, path = path.read_bytes(), tmp_path / "mirror.pcap.gz"
        path.write_bytes(gzip.compress(data))
    (flow, *_) = analyze([str(path)], AnalyzeOptions()).flows
    key = FlowKey(flow.src, flow.dst, flow.dest_qp)
    packets = PacketScan([str(path)], key).run()
    assert len(packets) == flow.packets
    for row in range(len(packets)):
        original = frames[int(packets.table.frame_number[row]) - 1].data
        link_type, data = packets.link_type(row), packets.frame(row)
        if name == "ip_in_ip":
            assert (link_type, data) == (228, original[14:])
        else:
            assert link_type == 1 and data.endswith(original[14:])


@pytest.mark.parametrize("name", ["ip_in_ip", "vxlan"])
def test_packets_of_tunnels_are_exported_with_their_own_link_type(
    name: str, tmp_path: Path, need_tool: Callable[[str], str]
) -> None:
    frames = [f for f in frames_of("c10_rping_ipv4", 40) if f.data[23] == 17]
    path = write_pcap(
        tmp_path / "mirror.pcap", [Frame(f.time_ns, WRAPPERS[name](f.data)) for f in frames]
    )
    (flow, *_) = analyze([str(path)], AnalyzeOptions()).flows
    key = FlowKey(flow.src, flow.dst, flow.dest_qp)
    out = save(
        tmp_path / "x.pcapng", PacketExport(Session.open([str(path)]), [key], Wanted()).write
    )
    command = [need_tool("tshark"), "-r", str(out), "-T", "fields", "-e", "infiniband.bth.psn"]
    told = subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()
    packets = PacketScan([str(path)], key).run()
    assert [int(psn) for psn in told] == packets.table.psn.tolist() and len(told) == flow.packets
