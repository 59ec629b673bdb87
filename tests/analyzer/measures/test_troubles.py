"""Troubles against a plain twin, a go-back-N oracle and the ground truth of real captures."""

from __future__ import annotations

from itertools import takewhile

import numpy as np
import pytest
from captures import data, truth
from examples import examples
from go_back_n import Connection
from hypothesis import given
from hypothesis import strategies as st
from tracked_batches import ACK, CNP, CUTS, START_NS, parts, split_by_flow, tracked, updated
from traffic import packets

from rocescope.analyzer.measures import troubles as tr
from rocescope.analyzer.measures.troubles import Troubles
from rocescope.analyzer.pipeline.captures import open_captures
from rocescope.analyzer.pipeline.options import AnalyzeOptions
from rocescope.analyzer.track import batch as verdicts
from rocescope.analyzer.track.state import EVIDENCE_CM
from rocescope.analyzer.track.tracker import FlowTracker
from rocescope.analyzer.wire.packets import FIRST_FRAGMENT, HAS_AETH, ICRC_BAD

WRITE, READ, RESPONSE = 0x07, 0x0C, 0x0E
NAK, RNR, REFUSAL = 0x60, 0x2E, 0x62


def sign(value):
    return ((value + (1 << 23)) & 0xFFFFFF) - (1 << 23)


def in_a_row(psns, psn):
    """How often a list ends with it."""
    return len(list(takewhile(lambda one: one == psn, reversed(psns))))


def _nothing():
    return {
        "limit": 0,
        "rounds": 0,
        "max_rounds": 0,
        "unanswered": 0,
        "naks": [],
        "most": None,
        "refused": 0,
    }


class Twin:
    """What the kernel does, one packet at a time, without arrays."""

    def __init__(self):
        self.hits = {}
        self.flows = {}

    def flow(self, f):
        return self.flows.setdefault(f, _nothing())

    def note(self, f, kind, time, count=1):
        self.hits.setdefault((f, kind), []).append((time, count))

    def see(self, f, peer, v, op, psn, aeth, flags, ce, bad, limit, time):
        if bad:
            self.note(f, tr.CORRUPT, time)
        if v in (verdicts.TAP_COPY, verdicts.MIRROR_DUPLICATE):
            return
        s = self.flow(f)
        s["limit"] = max(s["limit"], limit)
        s["forwarded"] = limit < s["limit"]
        if flags & FIRST_FRAGMENT:
            self.note(f, tr.FRAGMENTED, time)
        if ce:
            self.note(f, tr.MARKED, time)
        if v == verdicts.DUPLICATE:
            self.note(f, tr.COPIED, time)
        elif op == CNP:
            self.note(f, tr.CNP_SENT, time)
        else:
            self.judge(f, peer, v, op, psn, aeth, flags & HAS_AETH, time)

    def judge(self, f, peer, v, op, psn, aeth, has_aeth, time):
        if op in (WRITE, READ):
            self.request(self.flow(f), f, v, op == READ, psn, time)
        if v in (verdicts.REORDERED, verdicts.OVERTAKEN):
            self.note(f, tr.LATE, time)
        if v == verdicts.RECOVERED:
            self.note(f, tr.RECOVERED_LOSS, time)
        if v in (verdicts.RECOVERED, verdicts.RETRANSMITTED):
            self.note(f, tr.RESENT, time)
        if op == RESPONSE and peer >= 0:
            self.hear(self.flow(peer), psn, time)
        if op == ACK and has_aeth:
            self.answer(f, peer, psn, aeth >> 24, time)

    def request(self, s, f, v, is_read, psn, time):
        again = v in (verdicts.RETRANSMITTED, verdicts.RECOVERED)
        restarted = v == verdicts.RESTARTED
        late = v in (verdicts.REORDERED, verdicts.OVERTAKEN)
        if again:
            if not s.get("resending") or s.get("run") != psn:
                s["rounds"] = s["rounds"] + 1 if s["rounds"] and s["base"] == psn else 1
                s["base"] = psn
                if s["rounds"] > s["max_rounds"]:
                    s["max_rounds"], s["most"] = s["rounds"], psn
                    s["refused"] = in_a_row(s["naks"], psn)
                if "acked" in s and sign(psn - s["acked"]) <= 0 and v == verdicts.RETRANSMITTED:
                    self.note(f, tr.RESENT_AFTER_ACK, time)
            s["unanswered"] += 1
        elif restarted:
            s.pop("acked", None)
            s.pop("nak", None)
            s["rounds"] = 0
            s["naks"] = []
        if v == verdicts.NOT_SEQUENCED:
            return
        if v == verdicts.RETRANSMITTED and s["forwarded"]:
            s["run"], s["resending"] = None, True
        elif not late:
            skipped = 0
            if "first" not in s or restarted:
                s["first"] = psn
            elif v == verdicts.RECOVERED and sign(psn - s["first"]) < 0:
                skipped = sign(s["first"] - psn)
                s["first"] = psn
            elif s.get("run") is not None:
                skipped = sign(psn - s["run"])
                if skipped < 0:
                    skipped = sign(psn - s["nak"]) if "nak" in s and again else 0
                    skipped = skipped if 0 < skipped < 64 else 0
                if skipped > 0 and "acked" in s:
                    skipped = min(skipped, max(sign(psn - s["acked"]) - 1, 0))
            if skipped:
                self.note(f, tr.JUMPED, time, skipped)
            s["run"] = None if is_read else (psn + 1) & 0xFFFFFF
            s["resending"] = again
        if again and "nak" in s and sign(psn - s["nak"]) >= 0:
            del s["nak"]
        if s.get("expected") is None or restarted or s["expected"] == psn:
            s["expected"] = None if is_read else (psn + 1) & 0xFFFFFF

    def hear(self, s, covered, time):
        s["unanswered"] = 0
        if "acked" not in s or sign(covered - s["acked"]) > 0:
            s["acked"] = covered
        if s.get("expected") is not None and sign(covered - s["expected"]) >= 0:
            s["expected"] = (covered + 1) & 0xFFFFFF
        late = "nak" in s and sign(covered - s["nak"]) >= 0
        if late:
            del s["nak"]
        return late

    def answer(self, f, peer, psn, syndrome, time):
        kind, code = syndrome & 0x60, syndrome & 0x1F
        if kind == 0x20:
            self.note(f, tr.RNR_SENT, time)
        elif kind == 0x60:
            self.note(f, tr.FATAL_SENT if code else tr.NAK_SENT, time)
        if peer < 0:
            return
        s = self.flow(peer)
        if kind == 0:
            if "acked" in s and sign(psn - s["acked"]) <= 0:
                self.note(peer, tr.ACKED_AGAIN, time)
            if self.hear(s, psn, time):
                self.note(peer, tr.LATE_AFTER, time)
            return
        if self.hear(s, (psn - 1) & 0xFFFFFF, time):
            self.note(peer, tr.LATE_AFTER, time)
        sequence = kind == 0x60 and not code
        if (not sequence and kind != 0x20) or "first" not in s:
            return
        if sequence and sign(psn - s["first"]) >= 0:
            s["nak"] = psn
            if s.get("expected") is not None and sign(psn - s["expected"]) < 0:
                self.note(peer, tr.LOST_AFTER, time)
                s["naks"].append(psn)
                if psn == s["most"]:
                    s["refused"] = in_a_row(s["naks"], psn)
        s["expected"] = psn


ROWS = st.lists(
    st.fixed_dictionaries(
        {
            "flow": st.integers(0, 3),
            "verdict": st.integers(0, 10),
            "opcode": st.sampled_from([WRITE, WRITE, WRITE, READ, RESPONSE, ACK, ACK, ACK, CNP]),
            "psn": st.sampled_from([*range(8), 0xFFFFFF, 0xFFFFFE]),
            "aeth": st.sampled_from([0x1F, NAK, NAK, RNR, REFUSAL]).map(lambda s: s << 24),
            "decode_flags": st.sampled_from([HAS_AETH, HAS_AETH | FIRST_FRAGMENT, 0]),
            "traffic_class": st.sampled_from([0, 3]),
            "icrc_state": st.sampled_from([0, ICRC_BAD]),
            "hop_limit": st.sampled_from([64, 64, 62]),
            "frame_number": st.integers(1, 99),
        }
    ),
    max_size=60,
)


def paired(rows):
    """A batch of these rows in which flows 0, 1 and 2, 3 are connections."""
    batch = tracked(rows, 4)
    batch.peer[:] = [1, 0, 3, 2]
    return batch


@examples(300)
@given(ROWS, CUTS)
def test_equals_the_twin_however_the_capture_is_split(rows, cuts):
    batch = paired(rows)
    twin = Twin()
    for i, row in enumerate(rows):
        twin.see(
            row["flow"],
            int(batch.peer[row["flow"]]),
            row["verdict"],
            row["opcode"],
            row["psn"],
            row["aeth"],
            row["decode_flags"],
            row["traffic_class"] == 3,
            row["icrc_state"] == ICRC_BAD,
            row["hop_limit"],
            START_NS + 1000 * i,
        )
    pieces = parts(batch, cuts)
    pieces = [p if p.n_flows == 4 else _with_flows(p, batch) for p in pieces]
    got = updated(Troubles(), pieces)
    for f in range(4):
        for kind in range(tr.KINDS):
            hits, trouble = twin.hits.get((f, kind)), got.of(f, kind)
            if hits is None:
                assert trouble is None
                continue
            assert (trouble.packets, trouble.first_ns, trouble.last_ns) == (
                sum(n for _, n in hits),
                hits[0][0],
                hits[-1][0],
            )
            times = [time for time, _ in hits]
            assert trouble.pause_ns == max(np.diff(times), default=0)
            assert [time for time, _, _ in trouble.frames] == times[: tr.KEPT]
        progress, s = got.progress(f), twin.flow(f)
        assert int(progress["max_rounds"]) == s["max_rounds"]
        assert int(progress["max_rounds_naked"]) == s["refused"]
        assert int(progress["resent_unanswered"]) == s["unanswered"]


def test_an_overtaken_transmission_is_no_rewind():
    """Seen behind the first tap after a later transmission of its PSN; the sender continues."""
    rows = [
        {"flow": 0, "opcode": WRITE, "psn": psn, "verdict": verdict, "hop_limit": limit}
        for psn, verdict, limit in (
            *((n, verdicts.IN_ORDER, 64) for n in range(20)),
            (4, verdicts.RETRANSMITTED, 62),
            (5, verdicts.RETRANSMITTED, 62),
            (20, verdicts.IN_ORDER, 64),
            (10, verdicts.RETRANSMITTED, 64),
            (16, verdicts.RETRANSMITTED, 62),
            (11, verdicts.RETRANSMITTED, 64),
        )
    ]
    assert updated(Troubles(), [paired(rows)]).of(0, tr.JUMPED) is None
    for row in rows:
        row["hop_limit"] = 64
    assert updated(Troubles(), [paired(rows)]).of(0, tr.JUMPED).packets == 14 + 5


def _with_flows(piece, batch):
    """The same rows when all flows are known already."""
    return type(piece)(piece.table, piece.flow, piece.verdict, batch.peer, 4)


@given(ROWS)
def test_parts_merge(rows):
    """Counts, times and frames of parts by flow are those of the whole; answers, which speak of
    another flow, are left out."""
    rows = [row | {"opcode": CNP if row["opcode"] == ACK else WRITE} for row in rows]
    batch = tracked(rows, 4)
    whole = updated(Troubles(), [batch])
    even, odd, flows = split_by_flow(batch)
    merged = updated(Troubles(), [even])
    merged.merge(updated(Troubles(), [odd]), flows)
    for f in range(4):
        for kind in range(tr.KINDS):
            assert merged.of(f, kind) == whole.of(f, kind)
        assert merged.progress(f) == whole.progress(f)


class Counted(Connection):
    """A go-back-N connection that counts its losses on both sides of the tap."""

    before = behind = 0

    def _lost(self, chance):
        lost = super()._lost(chance)
        if chance is self.loss_before:
            self.before += lost
        elif chance is self.loss_behind:
            self.behind += lost
        return lost


@examples(60)
@given(
    st.integers(0, 2**32),
    st.integers(0, 0xFFFFFF),
    st.sampled_from(["before", "behind", "neither"]),
)
def test_losses_are_on_the_right_side_of_the_tap(seed, first, side):
    before = 0.0300001 if side == "before" else 0.0
    behind = 0.03 if side == "behind" else -1.0
    one = Counted(seed, first, 400, before, behind, 0.0)
    rows = one.run()
    table = packets([{k: v for k, v in row.items() if k != "at"} for row in rows])
    table.time_ns[:] = [START_NS + 1000 * row["at"] for row in rows]
    tracker, troubles = FlowTracker(), Troubles()
    tracker.index_flows(table)
    if len(tracker) == 2:
        tracker.pair(0, 1, EVIDENCE_CM)
    troubles.update(tracker.update(table))

    def count(kind):
        trouble = troubles.of(0, kind)
        return 0 if trouble is None else trouble.packets

    if side == "before":
        # Of the losses at the end of a run only those count that the next run shows.
        assert count(tr.JUMPED) + count(tr.LOST_AFTER) <= one.before
        assert count(tr.JUMPED) >= one.naks
        assert count(tr.LOST_AFTER) == 0
    elif side == "behind":
        assert count(tr.JUMPED) == 0
        assert count(tr.LOST_AFTER) == one.naks <= one.behind
    else:
        assert count(tr.JUMPED) == count(tr.LOST_AFTER) == count(tr.RESENT) == 0
    assert count(tr.LATE_AFTER) == 0


def measured(name):
    with open_captures([str(data(name))], AnalyzeOptions(), None) as run:
        run.read()
        return run.measuring


def total(measuring, kind):
    troubles = measuring.troubles
    return sum(troubles.of(f, kind).packets for f in troubles.flows(kind))


def test_losses_of_a_real_run_from_both_sides():
    """i01: netem dropped 180 packets between the taps, retransmissions included."""
    _, facts = truth("i01_write_loss0.5_AtoB")
    at_a, at_b = facts["captures"]["atA"], facts["captures"]["atB"]
    lost = sum(s["packets"] for s in at_a["streams"]) - sum(s["packets"] for s in at_b["streams"])
    assert lost == 180
    receiver = measured("i01_write_loss0.5_AtoB.atB")
    assert total(receiver, tr.JUMPED) == 180
    assert receiver.troubles.of(0, tr.LOST_AFTER) is None
    sender = measured("i01_write_loss0.5_AtoB.atA")
    assert total(sender, tr.LOST_AFTER) == at_a["naks"]["NAK_PSN_SEQ"]
    assert not sender.troubles.flows(tr.JUMPED)
    assert not sender.troubles.flows(tr.LATE_AFTER)


@pytest.mark.parametrize("name", ["c04", "c05", "c07", "c08", "c10", "c13", "c15", "c16", "c23"])
def test_clean_captures_have_no_troubles(name):
    measuring = measured(name)
    for kind in range(tr.KINDS):
        assert not measuring.troubles.flows(kind), kind


def test_refused_requests_of_a_real_run():
    _, facts = truth("c40_rc_oddities_ipv4")
    naks = facts["captures"]["atB"]["naks"]
    measuring = measured("c40_rc_oddities_ipv4.atB")
    assert total(measuring, tr.RNR_SENT) == naks["RNR_NAK"]
    assert total(measuring, tr.NAK_SENT) == naks["NAK_PSN_SEQ"]
    assert total(measuring, tr.FATAL_SENT) == naks["NAK_REMOTE_ACCESS"] + naks["NAK_REMOTE_OP"]
