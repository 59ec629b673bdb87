"""Jobs as JSON."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from chakra_traces import COLLECTIVE, COMPUTE, RECEIVE, SEND, node, written
from hypothesis import given
from hypothesis import strategies as st

from rocescope.analyzer.errors import UsageError
from rocescope.replay.jobs.collectives import PLAIN
from rocescope.replay.jobs.files import JobFiles, read_chakra, read_goal, read_json

# Jobs as JSON.

NODES = [
    {"id": "a", "rank": 0, "compute_us": 2.5},
    {"id": "b", "rank": 0, "to": 1, "bytes": 100, "after": ["a"]},
    {"id": "c", "rank": 1, "to": 2, "bytes": 50, "after": ["b"]},
]


def _read(tmp_path: Path, nodes: object, ranks: object = 3):  # type: ignore[no-untyped-def]
    path = tmp_path / "x.json"
    path.write_text(json.dumps({"ranks": ranks, "nodes": nodes}))
    graph, priority = read_json(path)
    assert not priority
    return graph


def test_nodes_wait_for_each_other(tmp_path: Path) -> None:
    graph = _read(tmp_path, NODES)
    assert graph.ranks == 3 and graph.nodes().size.tolist() == [2_500_000, 100, 50]
    assert list(zip(*(column.tolist() for column in graph.edges()), strict=True)) == [
        (1, 0),
        (2, 1),
    ]


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"after": ["z"]}, "node 'c' waits for 'z', which does not exist"),
        ({"after": ["a"]}, "node 'c' of rank 1 waits for 'a', which neither begins nor ends there"),
        ({"id": "a"}, "node 'a' is given twice"),
        ({"id": "x" * 9000, "after": ["y" * 9000]}, f"'{'x' * 64}' waits for '{'y' * 64}', which"),
        ({"id": "\x1b[31m", "rank": 7}, r"node '\x1b[31m': there is no rank 7"),
        ({"rank": 7}, "there is no rank 7"),
        ({"rank": -1}, "there is no rank -1"),
        ({"to": -1}, "there is no rank -1"),
        ({"rank": -1, "to": None, "bytes": None, "compute_us": 1, "after": []}, "no rank -1"),
        ({"bytes": None}, "a message needs 'to' and 'bytes'"),
        ({"compute_us": 1}, "give 'to' and 'bytes', or 'compute_us'"),
        ({"bytes": "100"}, "Expected `int | null`"),
        ({"size": 5}, "unknown field `size`"),
        ({"bytes": -5}, "-5 bytes"),
    ],
)
def test_mistakes_name_the_node(tmp_path: Path, change: dict[str, object], words: str) -> None:
    with pytest.raises(UsageError) as error:
        _read(tmp_path, [*NODES[:2], NODES[2] | change])
    assert words in str(error.value) and "x.json" in str(error.value)
    assert "\n" not in str(error.value)


def test_circles_ranks_and_other_files(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="2 tasks form a dependency cycle: node 'a', node"):
        _read(tmp_path, [NODES[0] | {"after": ["b"]}, NODES[1]])
    with pytest.raises(UsageError, match="ranks must be 2 to"):
        _read(tmp_path, NODES, 1)
    (tmp_path / "y.json").write_text("[1")
    with pytest.raises(UsageError, match=r"y\.json"):
        read_json(tmp_path / "y.json")


# Chakra execution traces.

RING = PLAIN["ring"]


JOINS = node(9, COLLECTIVE, [], comm_type=0, comm_size=1000)


def _all_reduce(size: int, kind: int = 0, **more: int | str) -> list[bytes]:
    return [
        node(1, COMPUTE, [], us=50),
        node(2, COLLECTIVE, [1], comm_type=kind, comm_size=size, **more),
        node(300, COMPUTE, [2, 1], us=7, packed=False),
    ]


def test_collectives_join_the_ranks(tmp_path: Path) -> None:
    prefix = written(tmp_path, [_all_reduce(1000)] * 4)
    graph, notes = read_chakra(prefix, RING)
    nodes, edges = graph.nodes(), graph.edges()
    messages = nodes.to >= 0
    assert graph.ranks == 4 and not notes
    assert messages.sum() == 4 * 6 and (nodes.size[messages] == 250).all()
    assert (
        sorted(nodes.size[~messages & (nodes.size > 0)].tolist())
        == [7_000_000] * 4 + [50_000_000] * 4
    )
    assert (edges.after < edges.node).all()


def test_sends_find_their_receives(tmp_path: Path) -> None:
    sender = [node(5, SEND, [], comm_size=64, comm_dst=1, comm_tag=9)]
    receiver = [
        node(5, RECEIVE, [], comm_src=0, comm_tag=9),
        node(6, COMPUTE, [5], us=3),
        node(7, COMPUTE, [], num_ops=500),
    ]
    graph, notes = read_chakra(written(tmp_path, [sender, receiver]), RING)
    assert graph.nodes().size.tolist().count(64) == 1
    assert len(notes) == 1 and "1 computations have no duration" in notes[0]


@pytest.mark.parametrize(
    ("other", "words"),
    [
        (_all_reduce(2000), "ranks give the collective different sizes"),
        ([node(1, COLLECTIVE, [], comm_type=3, comm_size=5)] * 1, "collective 3 is not supported"),
        (
            [node(1, COMPUTE, [8]), JOINS],
            "trace.1.et node 1 depends on node 8, which does not exist",
        ),
        ([node(1, COMPUTE, []), node(1, COMPUTE, [])], "node 1 is given twice"),
        (
            [node(1, COMPUTE, [2]), node(2, COMPUTE, [1]), JOINS],
            "2 tasks form a dependency cycle",
        ),
        ([node(1, SEND, [], comm_size=5, comm_dst=9)], "there is no rank 9"),
        ([node(1, SEND, [], comm_dst=0)], "node 1 has no comm_size"),
        ([node(1, SEND, [], comm_size=5, comm_dst=0), JOINS], "1 sent, 0 received"),
        ([node(1, SEND, [], comm_size=-5, comm_dst=0)], "node 1: comm_size -5 is negative"),
        (_all_reduce(-1000), "node 2: comm_size -1,000 is negative"),
        (
            [node(1, COMPUTE, [])],
            "trace.0.et node 2: rank 1 lacks this collective (number 1 with comm_type 0 of process "
            "group ''): its trace may be cut short",
        ),
        ([node(1, COMPUTE, [], us=1 << 60)], "ps are not 0 to"),
    ],
)
def test_mistakes_name_the_node_chakra(tmp_path: Path, other: list[bytes], words: str) -> None:
    prefix = written(tmp_path, [_all_reduce(1000), other])
    with pytest.raises(UsageError) as error:
        read_chakra(prefix, RING)
    assert words in str(error.value) and "\n" not in str(error.value)


def test_a_cut_trace_of_a_process_group_names_collective_and_rank(tmp_path: Path) -> None:
    twice = [node(i, COLLECTIVE, [], comm_type=0, comm_size=9, pg_name="dp") for i in (1, 2)]
    alone = [node(1, COMPUTE, [], us=1)]
    with pytest.raises(UsageError, match=r"trace\.0\.et node 2: rank 2 lacks .*number 2 .*'dp'"):
        read_chakra(written(tmp_path, [twice, alone, twice[:1]]), RING)
    graph, _ = read_chakra(written(tmp_path, [twice, alone, twice]), RING)
    assert set(graph.nodes().to.tolist()) == {-1, 0, 2}


@pytest.mark.parametrize("kind", [1, 5])
def test_the_root_is_said_to_be_assumed(tmp_path: Path, kind: int) -> None:
    _, notes = read_chakra(written(tmp_path, [_all_reduce(1000, kind)] * 3), RING)
    assert len(notes) == 1 and "1 broadcasts and reductions: the root is not in the" in notes[0]


def test_missing_files_are_named(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"there is no file .*trace\.1\.et"):
        read_chakra(written(tmp_path, [_all_reduce(1)]), RING)


@given(st.data())
def test_damaged_traces_raise_one_line(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    folder = tmp_path_factory.mktemp("chakra")
    prefix = written(folder, [_all_reduce(1000)] * 2)
    path = folder / "trace.1.et"
    raw = bytearray(path.read_bytes())
    for _ in range(data.draw(st.integers(1, 4))):
        raw[data.draw(st.integers(0, len(raw) - 1))] = data.draw(st.integers(0, 255))
    path.write_bytes(bytes(raw[: data.draw(st.integers(0, len(raw)))]))
    try:
        assert read_chakra(prefix, RING)[0].count < 100
    except UsageError as error:
        assert len(str(error).splitlines()) == 1


# GOAL schedules.

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


def _read_goal(tmp_path: Path, text: str):  # type: ignore[no-untyped-def]
    path = tmp_path / "x.goal"
    path.write_text(text)
    return read_goal(path)


def test_a_schedule_is_a_graph_of_its_tasks(tmp_path: Path) -> None:
    graph = _read_goal(tmp_path, SCHEDULE)
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
    graph = _read_goal(
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
        _read_goal(tmp_path, SCHEDULE.replace(old, new))
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


# Files of jobs: read once, with a limit together.

GOAL = "num_ranks 2\nrank 0 {\nl1: send 8b to 1\n}\nrank 1 {\nl1: recv 8b from 0\n}\n"
JSON = {
    "ranks": 2,
    "priority": "bulk",
    "nodes": [{"id": "a", "rank": 0, "to": 1, "bytes": 100}],
}


@pytest.fixture
def files(tmp_path: Path) -> tuple[Path, Path, str]:
    goal, own = tmp_path / "a.goal", tmp_path / "b.json"
    goal.write_text(GOAL)
    own.write_text(json.dumps(JSON))
    for rank in range(2):  # metadata alone
        (tmp_path / f"c.{rank}.et").write_bytes(b"\x00")
    return goal, own, str(tmp_path / "c")


def test_each_form_is_read_once(files: tuple[Path, Path, str]) -> None:
    goal, own, traces = files
    reader = JobFiles()
    first = [reader.read(str(text), "ring") for text in files]
    assert [one.graph.ranks for one in first] == [2, 2, 2]
    assert [one.priority for one in first] == ["", "bulk", ""]
    for path in (goal, own, Path(f"{traces}.0.et")):
        path.unlink()
    assert all(reader.read(str(t), "ring") is one for t, one in zip(files, first, strict=True))
    with pytest.raises(UsageError, match=r"there is no file .*c\.0\.et"):
        reader.read(traces, "tree")  # other all-reduces make another graph
    with pytest.raises(UsageError, match=r"there is no file .*a\.goal"):
        JobFiles().read(str(goal), "ring")


def test_the_files_have_one_limit_together(files: tuple[Path, Path, str]) -> None:
    size = files[0].stat().st_size + files[1].stat().st_size + 2
    exact = JobFiles(size)
    for text in (*files, *files):
        exact.read(str(text), "ring")
    less = JobFiles(size - 1)
    less.read(str(files[0]), "ring")
    less.read(str(files[1]), "ring")
    with pytest.raises(UsageError, match=rf"up to .*c\.1\.et, are larger than {size - 1:,} bytes"):
        less.read(files[2], "ring")


def test_empty_files_are_named(files: tuple[Path, Path, str]) -> None:
    for text, name in ((files[0], "a.goal"), (files[1], "b.json"), (files[2], "c.1.et")):
        (files[0].parent / name).write_bytes(b"")
        with pytest.raises(UsageError, match=rf"--jobs: .*{name} is empty"):
            JobFiles().read(str(text), "ring")
