"""The packets of one flow against tshark; their way into a pcapng and out of it."""

from __future__ import annotations

import gzip
import json
import shlex
import struct
import subprocess
import sys
from pathlib import Path

import dpkt
import numpy as np
import pytest
from captures import data
from factories import Frame, pcap_bytes, write_pcap

from rocescope.analyzer.pipeline.options import AnalyzeOptions
from rocescope.analyzer.track.batch import AHEAD, IN_ORDER, OVERTAKEN, REORDERED
from rocescope.tui.exports import save
from rocescope.tui.session.dissect import dissect
from rocescope.tui.session.packets import Late, PacketExport, PacketScan, Point, Wanted
from rocescope.tui.session.session import Session
from rocescope.tui.session.snapshot import FlowKey

# The packets of one flow against tshark; their way into a pcapng and out of it.

KEY = FlowKey("10.0.0.1", "10.0.0.2", 0x2D)
I03 = "i03_write_reorder5_AtoB"


def tshark(tool, path, display_filter, *fields):
    """Rows of fields of the packets that pass."""
    command = [tool, "-r", str(path), "-Y", display_filter, "-T", "fields"]
    for field in fields:
        command += ["-e", field]
    run = subprocess.run(command, capture_output=True, text=True, check=True)
    return [line.split("\t") for line in run.stdout.splitlines()]


@pytest.mark.thorough
def test_the_packets_are_those_wireshark_finds(need_tool):
    path = data(I03)
    packets = PacketScan([str(path)], KEY, limit=100_000).run()
    session = Session.open([str(path)])
    rows = tshark(
        need_tool("tshark"),
        path,
        session.wireshark_filter(KEY),
        "frame.number",
        "infiniband.bth.psn",
        "udp.srcport",
    )
    columns = (packets.table.frame_number, packets.table.psn, packets.table.udp_sport)
    assert [[int(v) for v in row] for row in rows] == np.column_stack(columns).tolist()
    assert not packets.more


def test_expected_psns_and_notes_agree():
    packets = PacketScan([str(data(I03))], KEY).run()
    first = int(np.argmax(packets.is_odd()))
    psn, due = packets.table.psn.astype(int), packets.expected
    assert packets.notes[first] == f"gap: {psn[first] - due[first]} missing"
    assert (psn[:first] == due[:first]).all()
    late = next(i for i, note in enumerate(packets.notes) if note.startswith("late by"))
    assert packets.notes[late].startswith(f"late by {due[late] - psn[late]}, ")


def test_extents_are_those_of_rfc_4737():
    """By its definition over all first copies, and as many per value as the analysis counts."""
    path = str(data(I03))
    packets = PacketScan([path], KEY, limit=100_000).run()
    first_copies = np.isin(packets.verdict, [IN_ORDER, AHEAD, REORDERED, OVERTAKEN])
    psn = packets.table.psn[first_copies].astype(int)
    extent = packets.extent[first_copies]
    for late in np.flatnonzero(extent >= 0).tolist():
        jumped = int(np.argmax(psn[:late] > psn[late]))  # the PSNs of this flow do not wrap
        assert extent[late] == late - jumped
    session = Session.open([path])
    session.start()
    session.wait(300)
    session.selected = KEY
    flow = session.focus(session.selected)
    session.close()
    for one in flow.reordering.extent_histogram[:10]:
        inside = (packets.extent >= one.low) & (packets.extent < one.high)
        assert int(inside.sum()) == one.count
    assert int((packets.extent >= 0).sum()) == flow.reordered_packets


def test_late_packets_of_one_bucket():
    late = Late("extent", 8, 15)
    packets = PacketScan([str(data(I03))], KEY, Wanted(late=late), limit=100_000).run()
    assert len(packets) and ((packets.extent >= 8) & (packets.extent <= 15)).all()
    path, number = packets.file_of(0)
    assert path.endswith(".pcap.gz") and number == int(packets.table.frame_number[0])


def test_packets_around_a_time():
    path = str(data(I03))
    every = PacketScan([path], KEY, limit=100_000).run().table
    wanted = int(every.time_ns[len(every) // 2])
    packets = PacketScan([path], KEY, around=Point(wanted), limit=100).run()
    row = packets.row_of(Point(wanted))
    assert len(packets) == 100 and packets.more
    assert 40 <= row <= 60
    assert packets.table.time_ns[row - 1] < wanted == packets.table.time_ns[row]
    assert len(packets.frames.stored) == 100


def test_a_frame_is_found_among_wrong_and_equal_times(tmp_path):
    """Clocks may be coarse: 94 frames share one time. And an early packet has a wild one."""
    with gzip.open(data(I03)) as file:
        frames = [(int(time * 1_000_000) * 1_000, frame) for time, frame in dpkt.pcap.Reader(file)]
    before = PacketScan([str(data(I03))], KEY, limit=100_000).run().table.frame_number.tolist()
    year_ns = 366 * 86_400 * 1_000_000_000
    wild = before[3] - 1
    frames[wild] = (frames[wild][0] + year_ns, frames[wild][1])
    path = str(write_pcap(tmp_path / "coarse.pcap", [Frame(*one) for one in frames]))
    for number in before[4], before[50], before[len(before) // 2], before[-9]:
        point = Point(frames[number - 1][0], "coarse.pcap", number)
        packets = PacketScan([path], KEY, around=point, limit=100).run()
        row = packets.row_of(point)
        assert int(packets.table.frame_number[row]) == number
    elsewhere = point._replace(tap="elsewhere")  # the flow is not seen there: by the time
    packets = PacketScan([path], KEY, around=elsewhere, limit=100_000).run()
    assert packets.row_of(elsewhere) == 3


def test_packets_with_one_psn_are_those_wireshark_finds(need_tool):
    """At both taps, lost and retransmitted packets among them."""
    paths = [str(data(f"i01_write_loss0.5_AtoB.at{tap}")) for tap in "AB"]
    session = Session.open(paths)
    session.start()
    session.wait(300)
    snapshot = session.snapshot()
    key = snapshot.key(int(np.argmax(snapshot.flows.data_packets)))
    session.close()
    packets = PacketScan(paths, key, limit=1_000_000).run()
    expected = {}
    for tap, path in enumerate(paths):
        fields = "frame.number", "infiniband.bth.psn"
        for number, psn in tshark(
            need_tool("tshark"), path, session.wireshark_filter(key), *fields
        ):
            expected.setdefault(int(psn), set()).add((tap, int(number)))
    table = packets.table
    places = list(zip(table.tap.tolist(), table.frame_number.tolist(), strict=True))
    psns, times = np.unique(table.psn, return_counts=True)
    assert times.max() > 2, "no retransmission"
    for psn in psns[(times != 2) | (psns % 50 == 0)].tolist():
        rows = packets.with_psn_of(int(np.argmax(table.psn == psn)))
        assert {places[row] for row in rows} == expected[psn]
        assert (np.diff(rows) > 0).all()


def test_one_psn_of_requests_is_not_that_of_acks(tmp_path):
    """Queue pairs that write both ways receive requests and ACKs, each with PSNs of their own.

    Here the ACKs to one side are moved to the PSNs of the requests to it.
    """
    opcode, psn_at = 42, slice(51, 54)  # Ethernet, IPv4 and UDP are before the BTH
    with gzip.open(data("c16_rc_write_bidir")) as file:
        frames = [
            (int(time * 10**9), bytearray(frame))
            for time, frame in dpkt.pcap.Reader(file)
            if frame[36:38] == b"\x12\xb7"
        ]
    receiver = next(frame[30:34] for _, frame in frames if frame[opcode] != 0x11)
    mine = [frame for _, frame in frames if frame[30:34] == receiver]
    first = {
        is_ack: next(
            int.from_bytes(frame[psn_at]) for frame in mine if (frame[opcode] == 0x11) == is_ack
        )
        for is_ack in (True, False)
    }
    for frame in mine:
        if frame[opcode] == 0x11:
            moved = int.from_bytes(frame[psn_at]) + first[False] - first[True]
            frame[psn_at] = (moved % 2**24).to_bytes(3)
    path = write_pcap(tmp_path / "same.pcap", [Frame(time, bytes(f)) for time, f in frames])
    src, qp = mine[0][26:30], int.from_bytes(mine[0][47:50])
    texts = [".".join(map(str, address)) for address in (src, receiver)]
    key = FlowKey(texts[0], texts[1], qp)
    table = (packets := PacketScan([str(path)], key, limit=1_000_000).run()).table
    is_ack = table.opcode == 0x11
    both = np.intersect1d(table.psn[is_ack], table.psn[~is_ack])
    assert len(both) > 10
    for psn in both.tolist():
        for ack in (True, False):
            same = (table.psn == psn) & (is_ack == ack)
            found = packets.with_psn_of(int(np.argmax(same)))
            assert found.tolist() == np.flatnonzero(same).tolist()


def test_odd_packets_only():
    path = str(data(I03))
    every = PacketScan([path], KEY, limit=100_000).run()
    odd = PacketScan([path], KEY, Wanted(odd_only=True), limit=100_000).run()
    assert len(odd) == int(every.is_odd().sum()) > 0
    assert odd.table.frame_number.tolist() == every.table.frame_number[every.is_odd()].tolist()


def test_frames_of_plain_captures_are_read_when_asked_for(tmp_path):
    path = data("c05_rc_atomic_fetchadd")
    copy = tmp_path / "copy.pcap"
    copy.write_bytes(path.read_bytes())
    session = Session.open([str(copy)])
    session.start()
    session.wait(300)
    packets = PacketScan([str(copy)], session.snapshot().key(0)).run()
    assert not packets.frames.stored
    frame = packets.frame(0)
    assert frame[12:14] == b"\x08\x00" and len(frame) == int(packets.table.captured_bytes[0])
    copy.unlink()
    with pytest.raises(OSError):
        packets.frame(0)
    session.close()


def test_comments_survive_in_the_exported_capture(need_tool, tmp_path):
    path = data(I03)
    session = Session.open([str(path)])
    wanted = Wanted(odd_only=True)
    packets = PacketScan([str(path)], KEY, wanted).run()
    number = int(packets.table.frame_number[3])
    session.marks.packets[packets.taps[0].name, number] = "look here: ümlaut"
    session.marks.flows[KEY] = "the slow one"
    export = PacketExport(session, [KEY], wanted)
    out = save(tmp_path / "odd.pcapng", export.write)
    tool = need_tool("tshark")
    rows = tshark(tool, out, "frame", "infiniband.bth.psn", "frame.comment", "frame.len")
    assert [int(row[0]) for row in rows] == packets.table.psn.tolist()
    assert len(rows) == export.packets == len(packets) and not export.frames.stored
    assert rows[3][1] == f"{packets.notes[3]},look here: ümlaut"
    assert [int(row[2]) for row in rows] == packets.table.wire_bytes.tolist()
    assert b"marked: the slow one" in out.read_bytes()


def test_an_export_has_all_packets_of_several_flows_from_several_taps(need_tool, tmp_path):
    """By Wireshark's filter over the captures: no bound, each with its time, tap and bytes."""
    names = [f"leafspine/r09_packet_spray_h1/leaf2-spine{n}" for n in (1, 2, 3)]
    paths = [str(data(name)) for name in names]
    session = Session.open(paths)
    session.start()
    session.wait(300)
    snapshot = session.snapshot()
    busiest = np.argsort(-snapshot.flows.data_packets)[:3]
    keys = [snapshot.key(int(flow)) for flow in busiest]
    export = PacketExport(session, keys, Wanted())
    out = save(tmp_path / "flows.pcapng", export.write)
    session.close()
    tool = need_tool("tshark")
    fields = ("frame.time_epoch", "frame.interface_name", "infiniband.bth.psn", "frame.len")
    fields += ("ip.src", "ip.id", "frame.cap_len")
    either = " || ".join(f"({session.wireshark_filter(key)})" for key in keys)
    wanted = []
    for path in paths:
        for row in tshark(tool, path, either, *fields):
            wanted.append([row[0], path.rpartition("/")[2], *row[2:]])
    found = tshark(tool, out, "frame", *fields)
    assert sorted(found) == sorted(wanted) and len(found) == export.packets > 1000
    assert [row[0] for row in found] == sorted(row[0] for row in found)


def test_saving_leaves_nothing_behind_on_failure(tmp_path):
    with pytest.raises(TypeError):
        save(tmp_path / "x.json", lambda file: file.write("text"))  # type: ignore[call-overload]
    assert list(tmp_path.iterdir()) == []


def test_wireshark_dissects_a_snapped_frame(need_tool):
    need_tool("tshark")
    packets = PacketScan([str(data(I03))], KEY, limit=10).run()
    lines = dissect(packets.frame(0), 1082, 1, int(packets.table.time_ns[0]))
    psn = int(packets.table.psn[0])
    (line,) = [line for line in lines if line.text == f"Packet Sequence Number: {psn}"]
    assert (line.begin, line.end) == (51, 54)
    assert [line.text.split(",")[0] for line in lines if line.depth == 0][-1].startswith(
        "Infini"
    ) or (lines[-1].depth == 1)


def test_without_tshark_the_dissection_says_so(monkeypatch):
    monkeypatch.setenv("PATH", "/nowhere")
    problem, remedy = dissect(b"x" * 60, 60, 1, 0)
    assert "tshark is not installed" in problem.text and "apt install tshark" in remedy.text


def frames_of(path):
    """Every frame of a compressed capture, by dpkt; its lengths on the wire are not needed."""
    with gzip.open(path) as file:
        reader = dpkt.pcap.UniversalReader(file)
        return [Frame(int(time * 10**9), frame) for time, frame in reader]


def test_packets_of_a_rotated_series_are_those_of_the_whole(tmp_path):
    whole = data(I03)
    every = frames_of(whole)
    parts = []
    for number, begin in enumerate(range(0, len(every), 9_000)):
        parts.append(write_pcap(tmp_path / f"{number}.pcap", every[begin : begin + 9_000]))
    one = PacketScan([str(whole)], KEY, limit=100_000).run()
    paths = [str(path) for path in parts]
    several = PacketScan(paths, KEY, options=AnalyzeOptions(concat=True), limit=100_000).run()
    assert len(parts) > 2 and several.notes == one.notes
    assert several.table.frame_number.tolist() == one.table.frame_number.tolist()
    for row in (0, len(one) // 2, len(one) - 1):
        number = int(one.table.frame_number[row]) - 1
        assert several.frame(row) == one.frame(row) == every[number].data
        assert several.file_of(row) == (paths[number // 9_000], number % 9_000 + 1)


@pytest.mark.thorough
def test_packets_are_read_as_their_analysis_reads_them(tmp_path):
    """On another port, filtered before they are tracked; the copied command says the same."""
    moved = []
    for time_ns, frame, _ in frames_of(data(I03))[:2_000]:
        moved.append(Frame(time_ns, frame[:36] + struct.pack("!H", 5_791) + frame[38:]))
    path = str(write_pcap(tmp_path / "a b.pcap", moved))
    assert not len(PacketScan([path], KEY).run())
    options = AnalyzeOptions(udp_ports=(4791, 5791), filter="frame.number > 100")
    session = Session.open([path], options)
    session.start()
    session.wait(300)
    key = session.snapshot().key(int(np.argmax(session.snapshot().flows.data_packets)))
    session.set_filter("frame.number <= 1900")
    session.wait(300)
    packets = PacketScan([path], key, options=session.packet_options()).run()
    flow = session.snapshot().find(key)
    assert len(packets) == session.snapshot().flows.packets[flow] > 0
    assert 100 < packets.table.frame_number.min() < packets.table.frame_number.max() <= 1900
    command = shlex.split(session.command_line(key))
    session.close()
    assert command[2:5] == [path, "--udp-port", "5791"]
    done = subprocess.run(
        [sys.executable, "-m", "rocescope", *command[1:], "--format", "json"],
        capture_output=True,
        text=True,
        check=True,
    )
    (found,) = json.loads(done.stdout)["flows"]
    assert found["packets"] == len(packets)


def test_a_frame_is_read_from_its_own_capture_whatever_their_names_are(tmp_path):
    """One name begins with the other; two are the same."""
    every = frames_of(data(I03))
    parts = [every[0::3], every[1::3], every[2::3]]
    (tmp_path / "a").mkdir()
    paths = [tmp_path / "cap2", tmp_path / "cap", tmp_path / "a" / "cap"]
    for path, part in zip(paths, parts, strict=True):
        write_pcap(path, part)
    packets = PacketScan([str(path) for path in paths], KEY, limit=3_000).run()
    seen = set()
    for row in range(0, len(packets), 50):
        path, number = packets.file_of(row)
        part = parts[[str(p) for p in paths].index(path)]
        assert packets.frame(row) == part[number - 1].data
        assert part[number - 1].time_ns == int(packets.table.time_ns[row])
        seen.add(path)
    assert len(seen) == 3


# The dissection of single frames against what tshark prints, with and without pyshark.

ETHERNET = 1
TIME_NS = 1_700_000_000_000_000_000


def by_tshark(tool: str, path: Path) -> list[str]:
    """The lines of the only frame as tshark prints them, from its Ethernet layer on."""
    command = [tool, "-n", "-r", str(path), "-V"]
    text = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    lines = [line.strip() for line in text[text.index("\nEthernet II") :].splitlines() if line]
    return [line[1:-1] if line.startswith("[") else line for line in lines]


@pytest.fixture(params=[0, 5])
def frame(request: pytest.FixtureRequest, data: Path) -> bytes:
    with (data / "c10_rping_ipv4.atB.pcap").open("rb") as file:
        _, found = list(dpkt.pcap.Reader(file))[request.param]
    return found


@pytest.mark.thorough
def test_the_lines_are_those_of_tshark(frame, tmp_path, need_tool):
    """In its order, which pyshark does not keep: eth.lg is in both addresses."""
    alone = tmp_path / "frame.pcap"
    alone.write_bytes(pcap_bytes([Frame(TIME_NS, frame)]))
    lines = dissect(frame, len(frame), ETHERNET, TIME_NS)
    texts = iter([line.text for line in lines])
    for line in by_tshark(need_tool("tshark"), alone):
        if line != "Timestamps":  # a heading without a field
            assert line in texts, line  # passes the texts before it
    layers = [line for line in lines if not line.depth]
    assert layers[0].text.startswith("Ethernet II") and layers[0].begin == 0
    assert layers[-1].text.startswith("InfiniBand")


def test_without_pyshark_the_lines_are_the_same(frame, need_tool, monkeypatch):
    need_tool("tshark")
    lines = dissect(frame, len(frame), ETHERNET, TIME_NS)
    assert sum(line.depth for line in lines) > 40
    monkeypatch.setitem(sys.modules, "pyshark.packet.layers.xml_layer", None)
    note, *others = dissect(frame, len(frame), ETHERNET, TIME_NS)
    assert note.text.startswith("fields read without pyshark (") and "pip install" in note.text
    assert others == lines


def test_fields_that_pyshark_does_not_know_are_shown(frame, need_tool, monkeypatch):
    """An attribute of a later tshark."""
    need_tool("tshark")
    run = subprocess.run

    def later(*words, **settings):
        done = run(*words, **settings)
        done.stdout = done.stdout.replace(b"<field ", b'<field later="1" ')
        return done

    lines = dissect(frame, len(frame), ETHERNET, TIME_NS)
    monkeypatch.setattr(subprocess, "run", later)
    note, *others = dissect(frame, len(frame), ETHERNET, TIME_NS)
    assert "unexpected keyword argument 'later'" in note.text
    assert others == lines


def test_a_failure_is_a_line(monkeypatch):
    monkeypatch.setattr("rocescope.tui.session.dissect.which", lambda _: None)
    assert dissect(b"", 0, ETHERNET, 0)[0].text == "tshark is not installed"
    monkeypatch.setattr("rocescope.tui.session.dissect.which", lambda _: "/bin/false")
    assert dissect(b"", 0, ETHERNET, 0)[0].text.startswith("tshark failed")
