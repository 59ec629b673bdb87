"""Exit codes of analyses that are not complete."""

from __future__ import annotations

import pytest
from factories_results import analysis, capture

from rocescope.analyzer.summary.trust import ENDED_EARLY
from rocescope.commands.options.endings import exit_code


@pytest.mark.parametrize(
    ("changes", "code", "message"),
    [
        ({}, 0, ""),
        ({"complete": False}, 130, "rocescope: interrupted; the report covers"),
        ({"captures": [capture("a\x1b.pcap", damaged_places=2)]}, 4, "a?.pcap could not be read"),
        ({"warnings": [f"{ENDED_EARLY}: too much"], "complete": False}, 1, "too much; the report"),
    ],
)
def test_codes(changes, code, message, capsys):
    made = analysis(**{"captures": [capture()], "warnings": [], **changes})
    assert exit_code(made) == code
    said = capsys.readouterr().err
    assert message in said and bool(said) == bool(code) and "\x1b" not in said
