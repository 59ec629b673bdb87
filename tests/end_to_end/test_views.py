"""The same runs seen as people see them: no false name and no warning on clean traffic.

The runs are simulated, one of each kind, and real: the bundled fabric captures. `KNOWN` lists the
views that are not right yet. A view that becomes better, or worse, fails: change its line.
"""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path

import pytest
from examples import first

from tests.lab.drawn import KINDS, draw_run
from tests.lab.view_runs import BUNDLED, judge_run

GOOD = ("right", "narrower", "unseen")
KNOWN: dict[str, dict[str, str]] = {}
"""Run -> verdict -> its views."""

QUICK = ["random-loss", "link-down", "rehash"]
SIMULATED = [*QUICK, *(kind for kind in KINDS if kind not in QUICK)]


def verdicts(folder: Path) -> dict[str, str]:
    """The views that are not right, by verdict."""
    views = defaultdict(list)
    for judgement in judge_run(folder):
        if judgement.verdict not in GOOD:
            views[judgement.verdict].append(judgement.view)
    return {verdict: " ".join(names) for verdict, names in views.items()}


@pytest.mark.parametrize("kind", first(len(QUICK), SIMULATED))
def test_simulated_runs(tmp_path: Path, kind: str) -> None:
    number = list(KINDS).index(kind)
    assert verdicts(draw_run(number, kind, tmp_path)) == KNOWN.get(kind, {})


@pytest.mark.parametrize("name", first(1, BUNDLED))
def test_real_runs(name: str) -> None:
    assert verdicts(BUNDLED[name]) == KNOWN.get(name, {})
