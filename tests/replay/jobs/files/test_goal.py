"""GOAL schedules."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rocescope.analyzer.errors import UsageError
from rocescope.replay.jobs.files.goal import read_goal

SCHEDULE = """num_ranks 3
/* a chain */
rank 0 {
l1: calc 100 cpu 0
l2: send 80b to 1 tag 5 cpu 0 nic 0
l2 requires l1
}
rank 1 {
l1: recv 80b from 0 tag 5
l2: calc 30  // after it
l2 requires l1
l3: send 90b to 2
l3 irequires l2
}
rank 2 {
recv 90b from 1
}
"""


def _read(tmp_path: Path, text: str):  # type: ignore[no-untyped-def]
    path = tmp_path / "x.goal"
    path.write_text(text)
    return read_goal(path)


def test_a_schedule_is_a_graph_of_its_tasks(tmp_path: Path) -> None:
    graph = _read(tmp_path, SCHEDULE)
    nodes, edges = graph.nodes(), graph.edges()
    named = {int(size): i for i, size in enumerate(nodes.size) if size}
    assert sorted(named) == [80, 90, 30_000, 100_000]
    pairs = set(zip(edges.node.tolist(), edges.after.tolist(), strict=True))
    assert (named[80], named[100_000]) in pairs
    got = next(n for n, a in pairs if a == named[80])  # the receive of rank 1
    assert (named[30_000], got) in pairs
    before = _before(pairs, named[90])
    assert got in before and named[30_000] not in before  # irequires


def _before(pairs: set[tuple[int, int]], node: int) -> set[int]:
    """All that a node waits for, directly or not."""
    found, left = set(), [node]
    while left:
        last = left.pop()
        more = {after for of, after in pairs if of == last} - found
        found |= more
        left += more
    return found


def test_what_begins_with_a_task_waits_for_all_that_the_task_waits_for(tmp_path: Path) -> None:
    graph = _read(
        tmp_path,
        """num_ranks 2
rank 0 {
d: calc 40
c: calc 30 cpu 1
b: calc 20 cpu 2
a: send 10b to 1
b irequires c
a irequires b
c requires d
}
rank 1 {
recv 10b from 0
}
""",
    )
    nodes, edges = graph.nodes(), graph.edges()
    named = {int(size): i for i, size in enumerate(nodes.size) if size}
    before = _before(set(zip(edges.node.tolist(), edges.after.tolist(), strict=True)), named[10])
    assert named[40_000] in before
    assert named[30_000] not in before and named[20_000] not in before


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("num_ranks 3", "num_ranks 0", "line 1: a schedule begins with num_ranks"),
        ("num_ranks 3", "num_ranks 99999999999999", "line 1: a schedule begins with"),
        ("to 1 tag 5", "to 9 tag 5", r"line 5 \(l2\): there is no rank 9"),
        ("l2 requires l1\n}\nrank 1", "l2 requires l7\n}\nrank 1", "rank 0 has no task l7"),
        ("l2: calc 30", "l1: calc 30", "rank 1 has two tasks l1"),
        ("calc 100 cpu 0", "calc 1e9", "line 4: not a task"),
        ("calc 100 cpu 0", "calc 99999999999999999999", "line 4 .*a number is too large"),
        ("calc 100 cpu 0", "calc 999999999999999999", "line 4 .*ps are not 0 to"),
        ("send 90b to 2", "send 90b to 2 tag 9", "1 sent, 0 received"),
        (
            "l1: calc 100 cpu 0\n",
            "l1: calc 100\nl1 requires l1\n",
            "form a dependency cycle: line 4",
        ),
        (
            "rank 2 {\nrecv 90b from 1\n}",
            "rank 2 {\nrecv 90b from 1",
            "rank 2 has no closing brace",
        ),
        ("rank 2 {", "rank 7 {", "expected rank 0 to 2"),
        ("rank 2 {", "rank 1 {", "line 15: rank 1 is given twice"),
        ("// after it", "x" * 4096, "line 10 is longer than 4,095 characters"),
        (SCHEDULE, "", "a schedule begins with num_ranks"),
    ],
)
def test_mistakes_name_the_line(tmp_path: Path, old: str, new: str, words: str) -> None:
    assert old in SCHEDULE
    with pytest.raises(UsageError, match=f"--jobs: x.goal: .*{words}") as error:
        _read(tmp_path, SCHEDULE.replace(old, new))
    assert "\n" not in str(error.value)


@given(st.data())
def test_damaged_schedules_raise_one_line(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    path = tmp_path_factory.mktemp("goal") / "x.goal"
    raw = bytearray(SCHEDULE.encode())
    for _ in range(data.draw(st.integers(1, 4))):
        raw[data.draw(st.integers(0, len(raw) - 1))] = data.draw(st.integers(0, 255))
    path.write_bytes(bytes(raw[: data.draw(st.integers(0, len(raw)))]))
    try:
        assert read_goal(path).count < 20
    except UsageError as error:
        assert len(str(error).splitlines()) == 1
