"""Notes on single packets."""

from __future__ import annotations

import pytest

from rocescope.analyzer.track import batch as verdicts
from rocescope.report.words.packets import Sight, psn_note, psn_steps

NOTHING = Sight(-1, -1, -1, -1, -1, -1, -1)


def test_steps_count_over_the_end_of_the_psns():
    assert psn_steps(2, 0xFFFFFE) == 4 and psn_steps(0xFFFFFE, 2) == -4


@pytest.mark.parametrize(
    ("kind", "sight", "note"),
    [
        (verdicts.AHEAD, NOTHING._replace(due=7, gap=0), "gap: 3 missing"),
        (verdicts.AHEAD, NOTHING, "gap"),
        (verdicts.REORDERED, NOTHING._replace(due=12), "late by 2"),
        (
            verdicts.REORDERED,
            NOTHING._replace(due=12, extent=4, late_ns=1500),
            "late by 2, extent 4, 1.50 us",
        ),
        (verdicts.REORDERED, NOTHING, "late"),
        (verdicts.TAP_COPY, NOTHING, "copy at leaf1"),
        (verdicts.IN_ORDER, NOTHING._replace(due=10), ""),
        (verdicts.NOT_SEQUENCED, NOTHING, ""),
    ],
)
def test_notes(kind, sight, note):
    assert psn_note(kind, 10, sight, "leaf1") == note


def test_every_other_verdict_has_a_note():
    usual = (verdicts.IN_ORDER, verdicts.NOT_SEQUENCED)
    for kind in range(len(verdicts.VERDICT_NAMES)):
        assert bool(psn_note(kind, 10, NOTHING, "tap")) == (kind not in usual)
