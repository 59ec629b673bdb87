"""Comments of packets: words, and fields that no name can forge."""

from __future__ import annotations

import re

import numpy as np
from tracked_batches import ACK, tracked

from rocescope.analyzer.track.batch import AHEAD, REORDERED, TAP_COPY
from rocescope.analyzer.track.references import REFERENCE
from rocescope.analyzer.wire.packets import HAS_AETH
from rocescope.report.wireshark.comments import Comments
from rocescope.report.wireshark.known import Known


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
