"""Connections that keep the rules, simulated in plain Python, break none at any tap."""

from __future__ import annotations

import pytest
from conformance_traces import broken, judged, kept, open_cases
from examples import examples
from go_back_n import Connection
from hypothesis import example, given
from hypothesis import strategies as st

from rocescope.analyzer.measures.conformance import rules
from rocescope.analyzer.summary.conformance import _View
from rocescope.analyzer.track.tracker import FlowTracker

LOSS = st.sampled_from([0.0, 0.02, 0.1])
SEEDS = st.integers(0, 10_000)


def standing(one):
    """Violations that stand after all evidence of the flow, by kind."""
    tracker = FlowTracker()
    tracker.grow(one.keeper.known_flows)
    tracker.state.used[0] = one.keeper.known_flows
    view = _View(one, tracker, 0)
    found = view.broken.sum(axis=0)
    return {kind: int(n) for kind, n in enumerate(found) if n}


@examples(40)
@given(SEEDS, st.sampled_from([0, 100, 0xFFFF00, 0xFFFFF0]), LOSS, LOSS, LOSS)
def test_connections_that_keep_the_rules_break_none(seed, first, before, behind, acks) -> None:
    connection = Connection(seed, first, 160, before, behind, acks)
    assert not standing(judged(connection.run()))


@examples(20)
@given(SEEDS)
def test_behind_the_loss_every_nak_is_judged(seed) -> None:
    connection = Connection(seed, 0xFFFFC0, 160, 0.05, 0, 0)
    one = judged(connection.run())
    assert kept(one).get("nak-psn", 0) == kept(one).get("nak-once", 0) == connection.naks
    assert one.keeper.book.states[0]["naks"] == connection.naks


@examples(20)
@given(SEEDS)
def test_before_the_loss_every_rewind_is_judged(seed) -> None:
    connection = Connection(seed, 0xFFFFC0, 160, 0, 0.05, 0)
    one = judged(connection.run())
    assert kept(one).get("rewind-start", 0) == connection.rewinds
    assert one.keeper.book.states[0]["rewinds"].sum() == connection.rewinds
    assert "nak-psn" not in kept(one)
    undecided = open_cases(one).get(("nak-psn", rules.REASONS[rules.LOSS_BEHIND]), 0)
    assert undecided == connection.naks


@example(37, 1, 7, 0.03)  # the retransmission of the first packet is lost too
@examples(20)
@given(SEEDS, st.integers(1, 31), st.sampled_from([7, 0xFFFFFA]), st.sampled_from([0, 0.03]))
def test_first_packets_that_the_receiver_lacks_are_no_duplicates(seed, lost, first, more) -> None:
    connection = Connection(seed, first, 160, more, 0, 0, "", range(1, lost + 1))
    one = judged(connection.run(), ran_us=-2000)
    assert not standing(one)
    assert one.keeper.book.states[0]["duplicates"] == connection.had_already
    found = one.keeper.book.states[0]["lost_before"]
    # Nothing shows the loss of the last packets before an ACK timeout.
    assert found <= len(connection.sent_unseen)
    assert more or found == lost


def test_first_messages_of_one_packet_that_the_receiver_lacks_are_no_duplicates() -> None:
    """No packet tells the path MTU."""
    connection = Connection(1, 100, 160, 0, 0, 0, "", range(1, 6))
    connection.message = 1
    states = judged(connection.run(), ran_us=-2000).keeper.book.states
    assert states[0]["duplicates"] == connection.had_already == 0
    assert states[0]["lost_before"] == 5


@pytest.mark.parametrize(
    ("fault", "losses", "kind"),
    [
        ("repeats NAKs", (0.01, 0), rules.NAK_REPEATED),
        ("starts behind the NAK", (0, 0.01), rules.REWIND_ABOVE),
    ],
)
def test_planted_faults_are_found(fault, losses, kind) -> None:
    rows = Connection(1, 0xFFFFC0, 1200, *losses, 0, fault).run()  # type: ignore[call-arg]
    assert standing(judged(rows)).get(kind)


@examples(15)
@given(SEEDS, st.lists(st.integers(0, 400), max_size=4))
def test_batches_cut_anywhere_give_the_same(seed, cuts) -> None:
    rows = Connection(seed, 0xFFFFC0, 80, 0.03, 0.03, 0.03).run()
    whole, cut = judged(rows), judged(rows, cuts=cuts)
    assert broken(whole) == broken(cut)
    assert kept(whole) == kept(cut)
    assert open_cases(whole) == open_cases(cut)


NOISE = st.lists(
    st.fixed_dictionaries(
        {
            "psn": st.sampled_from([0, 1, 2, 3, 5, 0xFFFFFF, 0x800000, 0x7FFFFF]),
            "opcode": st.sampled_from([*range(0x18), 0x81, 0xA6, 0xB1, 0x27, 0x64, 0xFF]),
            "aeth": st.integers(0, 2**32 - 1),
            "decode_flags": st.sampled_from([0, 0x10, 0x11, 0x30]),
            "dma_length": st.sampled_from([0, 256, 4096, 2**32 - 1]),
            "bth_flags": st.sampled_from([0, 0x800000]),
            "traffic_class": st.integers(0, 3),
            "ip_id": st.integers(0, 3),
            "answer": st.booleans(),
        }
    ),
    max_size=60,
)


@examples(40)
@given(NOISE, st.lists(st.integers(0, 60), max_size=2))
def test_noise_is_counted_and_harms_nothing(rows, cuts) -> None:
    one = judged(rows, cuts=cuts)
    book = one.keeper.book
    for counts in (book.ok, book.broken, book.undecided):
        assert counts.min(initial=0) >= 0
        assert counts.sum() <= 20 * len(rows) * len(rows)
    kept_here = book.violations[: book.used[0]]
    assert all(0 < frame <= len(rows) for frame in kept_here["frame"])
    assert all(0 <= frame <= len(rows) for frame in kept_here["related"])
