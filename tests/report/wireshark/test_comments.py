"""The files for Wireshark with the package."""

from __future__ import annotations

import re
from dataclasses import replace

import numpy as np
import pytest
from lua_tshark import tshark
from tracked_batches import ACK, tracked

from rocescope.analyzer.decode.grants import CUT, GRANT_COLUMNS, GRANT_ROW, REASONS, SEVERAL_RANKS
from rocescope.analyzer.pipeline.options import AnalyzeOptions
from rocescope.analyzer.track.batch import AHEAD, REORDERED, TAP_COPY
from rocescope.analyzer.track.references import REFERENCE
from rocescope.analyzer.wire.packets import HAS_AETH
from rocescope.report.wireshark.comments import COLOURS, NAME, PROFILE, Comments, text
from rocescope.report.wireshark.export import export_pcapng
from rocescope.report.wireshark.reading import Known

# The files for Wireshark with the package.


def test_it_registers_its_fields():
    assert NAME.endswith(".lua") and "register_postdissector(rocescope)" in text()


RULES = [line.split("@")[1:3] for line in text(COLOURS).splitlines() if line.startswith("@")]
SHOWN_BY = {
    "RoCE lost": ["i01_write_loss0.5_AtoB.atB.pcap.gz"],
    "RoCE NAK": ["i01_write_loss0.5_AtoB.atB.pcap.gz"],
    "RoCE retransmitted": ["i01_write_loss0.5_AtoB.atB.pcap.gz"],
    "RoCE late": ["i03_write_reorder5_AtoB.atB.pcap.gz"],
    "RoCE duplicate": ["i04_write_duplicate1_AtoB.atB.pcap.gz"],
    "RoCE gap": ["i03_write_reorder5_AtoB.atB.pcap.gz"],
    "RoCE congestion notification": [],
    "RoCE ECN-marked": ["i13_write_ecn_ce2_AtoB.atB.pcap.gz"],
    "RoCE": ["c10_rping_ipv4.atB.pcap"],
}
"""Captures with packets of each rule; none of them is known to have CNPs."""


@pytest.fixture(scope="module")
def coloured(data, tmp_path_factory):
    """The rules that tshark applies to the packets of a capture with comments, with its fields."""
    folder = tmp_path_factory.mktemp("wireshark")
    profile = folder / "profiles" / PROFILE
    profile.mkdir(parents=True)
    (profile / COLOURS).write_text(text(COLOURS))
    (folder / NAME).write_text(text())

    def run(path, *fields):
        words = ["-C", PROFILE, "--color", "-c", "5000", "-r", str(path), "-T", "fields"]
        words += [word for field in ("frame.coloring_rule.name", *fields) for word in ("-e", field)]
        own = {"WIRESHARK_CONFIG_DIR": str(folder), "COLORTERM": "24bit"}
        return [line.split("\t") for line in tshark(*words, lua=folder / NAME, **own)]

    return run


def test_every_rule_has_a_filter_that_tshark_compiles(need_tool, data):
    need_tool("tshark")
    assert [name for name, _ in RULES] == list(SHOWN_BY)
    every = " || ".join(f"({rule})" for _, rule in RULES)
    assert len(tshark("-r", str(data / "c10_rping_ipv4.atB.pcap"), "-Y", every)) == 605


@pytest.mark.parametrize("capture", sorted({path for paths in SHOWN_BY.values() for path in paths}))
def test_packets_have_the_colours_of_their_verdicts(need_tool, data, tmp_path, coloured, capture):
    need_tool("tshark")
    path = tmp_path / "out.pcapng"
    with path.open("wb") as file:
        export_pcapng([str(data / capture)], AnalyzeOptions(), file)
    rows = coloured(path, "rocescope.verdict", "infiniband.bth.opcode")
    seen = {rule for rule, *_ in rows}
    assert {rule for rule, paths in SHOWN_BY.items() if capture in paths} <= seen
    for rule, verdict, opcode in rows:
        assert (rule == "") == (opcode == "")
        if verdict == "reordered":
            assert rule == "RoCE late"
        if rule == "RoCE retransmitted":
            assert verdict in ("retransmitted", "recovered")


# Comments of packets: words, and fields that no name can forge.


def sights(**values):
    """REFERENCE[1] with these values."""
    found = np.full(1, -1, REFERENCE)
    for name, value in values.items():
        found[name] = value
    return found


def comment(row, known=None, taps=("a", "b"), addresses=(), **values):
    """The comment of one packet."""
    made = Comments(known).of(tracked([row]), sights(**values), taps, addresses)
    return made.get(0, b"").decode()


def test_in_order_packets_have_none():
    assert comment({"psn": 7}, due=7) == ""


def test_a_late_packet():
    text = comment({"psn": 7, "verdict": REORDERED}, due=9, extent=2, late_ns=1500, other=3)
    words, fields = text.split(" [rocescope ")
    assert words == "late by 2, extent 2, 1.50 us, overtaken by frame 3"
    assert fields == "verdict=reordered late_by=2 extent=2 late_ns=1500 overtaken_by=3]"


def test_a_gap_before_the_end_is_known_and_after():
    row, values = {"psn": 12, "verdict": AHEAD}, {"due": 9, "gap": 0}
    assert "lost" not in comment(row, **values)
    assert "lost_before=1]" in comment(row, Known({0: 2}), **values)
    assert comment(row, Known({0: 3}), **values).startswith(
        "gap: 3 missing, PSN 9 to 11, all came late"
    )


def test_naks():
    row = {"opcode": ACK, "psn": 5, "decode_flags": HAS_AETH, "verdict": 0}
    assert comment(row | {"aeth": 0x60000001}) == (
        "NAK, PSN sequence error, PSN 5 [rocescope nak=PSN_sequence_error nak_psn=5]"
    )
    assert "nak=RNR" in comment(row | {"aeth": 0x2E000001})
    assert comment(row | {"aeth": 0x00000001}) == ""


def granted(**fields):
    """The comment of a grant that tells these fields."""
    batch = tracked([{"opcode": 0x0A, "verdict": 0}])
    grants = np.zeros(1, GRANT_ROW)
    for column in GRANT_COLUMNS:
        grants[column.name] = fields.get(column.name, column.unknown)
    batch = replace(batch, table=replace(batch.table, grants=grants))
    return Comments().of(batch, sights(), ("a",), ())[0].decode()


def test_grants():
    assert granted(rank=0, number=7, slot_bytes=1 << 20, entries=1) == (
        "NCCL's grant 7 to rank 0, 1 MiB"
        " [rocescope grant_rank=0 grant_number=7 grant_slot_bytes=1048576 grant_entries=1]"
    )
    assert granted(reason=CUT).startswith(
        f"NCCL's grant without a rank ({REASONS[CUT]}) [rocescope"
    )
    several = granted(number=3, entries=2, reason=SEVERAL_RANKS)
    assert several == (
        f"NCCL's grant 3 without a rank ({REASONS[SEVERAL_RANKS]})"
        " [rocescope grant_number=3 grant_entries=2]"
    )
    assert "grant_rank" not in several


def test_what_no_later_tap_saw():
    lost = {0: (np.array([4, 9]), np.array([1, -1]))}
    assert "never_seen_at=b]" in comment({"frame_number": 4}, Known(never_seen=lost))
    assert "any later tap" in comment({"frame_number": 9}, Known(never_seen=lost))
    assert comment({"frame_number": 5}, Known(never_seen=lost)) == ""


def test_names_cannot_forge_fields():
    taps = ("a", "b] [rocescope lost_before=7]\x1b\u202e\n")
    ranks = {("1", "2", 0): (3, None, "0x1] [rocescope gap=1")}
    row = {"tap": 1, "verdict": TAP_COPY, "src": 0, "dst": 1, "frame_number": 4}
    lost = {1: (np.array([4]), np.array([1]))}
    text = comment(row, Known(ranks=ranks, never_seen=lost), taps, ("1", "2"), hop=2, since_ns=5)
    assert text.isprintable()
    fields = re.fullmatch(r"(.*?)\s*\[rocescope ([^\]]*)\]", text).group(2)
    names = [field.partition("=")[0] for field in fields.split(" ")]
    assert names == [
        "verdict", "hop", "hop_ns", "lost_after", "never_seen_at", "src_rank", "comm",
    ]  # fmt: skip
