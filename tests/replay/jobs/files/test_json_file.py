"""Jobs as JSON."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from rocescope.analyzer.errors import UsageError
from rocescope.replay.jobs.files.json_file import read_json

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
