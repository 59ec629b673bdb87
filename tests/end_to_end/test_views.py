"""The same runs seen as people see them: no false name, and no warning on clean traffic.

The runs are simulated, one of each kind, and real: the bundled fabric captures. `KNOWN` lists the
views that are not right yet, with their verdict. A view that becomes better fails as one that
becomes worse does: change its line (`make views` gives the reasons).
"""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path

import pytest
from examples import first, thorough

from tests.lab.drawn import KINDS, draw_run
from tests.lab.view_runs import BUNDLED, judge_run
from tests.lab.views import ONLY_IF_ASKED, VIEWS

GOOD = ("right", "narrower", "unseen")
KNOWN: dict[str, dict[str, str]] = {
    "r03_link_down_reroute": {"vague": "one_link:spine1>leaf2"},
    "r09_packet_spray_h1": {
        "wrong": "staggered",
        "vague": "one_link:leaf2-spine1 one_link:spine4>leaf2",
    },
    "black-hole": {"vague": "all_but_one:H2-leaf1"},
    "incast": {
        "vague": "one_link:spine2>leaf2 one_link:leaf2-spine2 one_link:leaf2-spine4",
        "wrong": "second_half",
    },
    "slow-link": {"vague": "one_link:spine3>leaf1"},
    "outage": {"vague": "one_link:leaf2>spine2 one_link:spine4>leaf1"},
    "spraying-slow-spine": {
        "wrong": "staggered middle all_but_one:leaf2-spine3 one_host:H3",
        "vague": "one_link:leaf2>spine3 one_link:spine3>leaf1 one_link:spine1>leaf2",
    },
}
"""Run -> verdict -> its views."""
NUMBERS = {kind: number for number, kind in enumerate(KINDS)}
QUICK = "links one_file staggered uplinks"
"""Views of `make test`; `make thorough` has all."""
ALL = " ".join(name for name in VIEWS if name not in ONLY_IF_ASKED)


def not_right(folder: Path, wanted: str) -> dict[str, set[str]]:
    """The views that are not right, by verdict."""
    views = defaultdict(set)
    for judgement in judge_run(folder, wanted.split()):
        if judgement.verdict not in GOOD:
            views[judgement.verdict].add(judgement.view)
    return views


def known(run: str, wanted: str) -> dict[str, set[str]]:
    """As `not_right`, from the table."""
    rows = {
        verdict: {view for view in views.split() if view.split(":")[0] in wanted.split()}
        for verdict, views in KNOWN.get(run, {}).items()
    }
    return {verdict: views for verdict, views in rows.items() if views}


def of_views(quick: list[str], every: list[str]) -> list[object]:
    """Parameters (run, views)."""
    return [*((run, QUICK) for run in quick), *thorough((run, ALL) for run in every)]


@pytest.mark.parametrize(
    ("kind", "wanted"), of_views(["clean", "random-loss", "link-down", "rehash"], list(KINDS))
)
def test_simulated_runs(tmp_path: Path, kind: str, wanted: str) -> None:
    run = draw_run(NUMBERS[kind], kind, tmp_path)
    assert not_right(run, wanted) == known(kind, wanted)


@pytest.mark.parametrize(("name", "wanted"), of_views(list(BUNDLED), list(BUNDLED)))
def test_real_runs(name: str, wanted: str) -> None:
    assert not_right(BUNDLED[name], wanted) == known(name, wanted)


ONCE_WRONG = [
    (109, "slow-link", "all_but_one"),
    (106, "random-loss", "staggered"),
    (107, "black-hole", "staggered one_link"),
    (115, "nic-drops", "one_link"),
    (119, "spraying-slow-spine", "uplinks one_link all_but_one"),
    (121, "random-loss", "staggered count"),
    (92, "black-hole", "staggered"),
    (108, "incast", "middle"),
    (122, "black-hole", "staggered"),
    (124, "slow-link", "staggered"),
    (134, "spraying-slow-spine", "uplinks one_link"),
    (142, "withdrawn", "staggered"),
    (170, "link-down", "staggered"),
    (183, "incast", "one_link:leaf1-spine3"),
    (185, "link-down", "count"),
    (187, "withdrawn", "staggered"),
]
"""Drawn runs and views that had false names."""


@pytest.mark.parametrize(("number", "kind", "views"), first(4, ONCE_WRONG))
def test_views_that_had_false_names(tmp_path: Path, number: int, kind: str, views: str) -> None:
    assert not_right(draw_run(number, kind, tmp_path), views).keys() <= {"vague"}
