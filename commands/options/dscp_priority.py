"""--dscp-priority: the priorities of DSCPs in the switches."""

from __future__ import annotations

import re

from ...analyzer.errors import UsageError

_PAIR = re.compile(r"([0-9]{1,2})=([0-7])")
_DSCPS = 64


def parse_dscp_priorities(text: str) -> dict[int, int]:
    """`26=3,48=6` as {26: 3, 48: 6}; UsageError for anything else."""
    priorities: dict[int, int] = {}
    for pair in text.replace(" ", "").split(","):
        match = _PAIR.fullmatch(pair)
        if match is None or int(match[1]) >= _DSCPS:
            raise UsageError(
                f"--dscp-priority {text!r}: give DSCP=PRIORITY, such as 26=3,48=6, with DSCPs from"
                " 0 to 63 and priorities from 0 to 7"
            )
        if priorities.setdefault(int(match[1]), int(match[2])) != int(match[2]):
            raise UsageError(f"--dscp-priority {text!r}: DSCP {match[1]} has two priorities")
    return priorities
