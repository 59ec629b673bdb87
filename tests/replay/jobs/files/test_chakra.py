"""Chakra execution traces."""

from __future__ import annotations

from pathlib import Path

import pytest
from chakra_traces import COLLECTIVE, COMPUTE, RECEIVE, SEND, node, written
from hypothesis import given
from hypothesis import strategies as st

from rocescope.analyzer.errors import UsageError
from rocescope.replay.jobs.collectives import PLAIN
from rocescope.replay.jobs.files.chakra import read_chakra

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
def test_mistakes_name_the_node(tmp_path: Path, other: list[bytes], words: str) -> None:
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
