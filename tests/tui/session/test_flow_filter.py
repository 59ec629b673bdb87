"""Mistakes in filters of flows."""

from __future__ import annotations

import pytest

from rocescope.analyzer.errors import UsageError
from rocescope.tui.session.flow_filter import needs_packets


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("resnt > 0", "unknown field 'resnt'; did you mean resent?"),
        ("mising > 0", "unknown field 'mising'; did you mean missing?"),
        ("opcod == RC_ACK", "unknown field 'opcod'; did you mean opcode?"),
    ],
)
def test_a_misspelled_name_suggests_one_of_flows_or_packets(text, says):
    with pytest.raises(UsageError, match=says):
        needs_packets(text)


def test_what_resembles_nothing_is_left_to_the_packet_filter():
    assert needs_packets("qqqqqq > 0")
    assert not needs_packets("resent > 0")
