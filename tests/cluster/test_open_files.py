"""The limit of open files: raised for a plan, or told."""

from __future__ import annotations

import resource
from collections.abc import Iterator
from pathlib import Path

import pytest
from captures import data
from clusters import planned

from rocescope.analyzer.errors import UsageError
from rocescope.analyzer.pipeline.options import AnalyzeOptions
from rocescope.cluster.plan import make_plan
from rocescope.cluster.reduce import reduce_partition
from rocescope.cluster.split import map_capture

PATHS = [str(data("c10")), str(data("c40"))]


@pytest.fixture
def limit() -> Iterator[tuple[int, int]]:
    """The limit of this process, set back at the end."""
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    yield before
    resource.setrlimit(resource.RLIMIT_NOFILE, before)


def test_every_task_raises_the_limit_as_far_as_it_needs(
    tmp_path: Path, limit: tuple[int, int]
) -> None:
    folder = planned(tmp_path, PATHS, 100)
    for task in (
        lambda: map_capture(folder, 0),
        lambda: map_capture(folder, 1),
        lambda: reduce_partition(folder, 0),
    ):
        resource.setrlimit(resource.RLIMIT_NOFILE, (300, limit[1]))
        task()
        assert resource.getrlimit(resource.RLIMIT_NOFILE)[0] == 400


@pytest.mark.parametrize(
    ("soft", "raised_to"), [(399, 400), (400, None), (500, None), (resource.RLIM_INFINITY, None)]
)
@pytest.mark.parametrize("hard", [500, resource.RLIM_INFINITY])
def test_a_limit_that_is_enough_stays(
    monkeypatch: pytest.MonkeyPatch, soft: int, raised_to: int | None, hard: int
) -> None:
    """100 partitions of two captures need 400 files; the limit of the system never changes."""
    changes = []
    monkeypatch.setattr(resource, "getrlimit", lambda kind: (soft, hard))
    monkeypatch.setattr(resource, "setrlimit", lambda kind, limits: changes.append((kind, limits)))
    make_plan(PATHS, AnalyzeOptions(), 100)
    assert changes == ([(resource.RLIMIT_NOFILE, (raised_to, hard))] if raised_to else [])


def test_more_than_the_system_allows_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda kind: (200, 200))
    with pytest.raises(UsageError, match=r"700 partitions of 2 captures .* limit here is 200"):
        make_plan(PATHS, AnalyzeOptions(), 700)
    make_plan(PATHS, AnalyzeOptions(), 2)
