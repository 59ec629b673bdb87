"""JSON with places."""

from __future__ import annotations

import json

import pytest

from rocescope.analyzer.errors import UsageError
from rocescope.replay.fabrics.sources import load_json, load_yaml

DOCUMENT = [{"dst": "10.0.0.0/8", "metric": 20, "flags": [], "nexthops": [{"weight": 2}]}, None]


def test_values_are_those_of_the_yaml_reader(tmp_path):
    """JSON is YAML: both readers see the same."""
    file = tmp_path / "r.json"
    file.write_text(json.dumps(DOCUMENT))
    for load in (load_json, load_yaml):
        first, second = load(file).items("routes")
        entry = first.mapping("a route")
        assert list(entry) == list(DOCUMENT[0])
        assert entry["dst"].text("a network") == "10.0.0.0/8"
        assert entry["metric"].integer("metric", 0, 99) == 20
        assert entry["flags"].is_list
        assert entry["flags"].items("flags") == []
        (hop,) = entry["nexthops"].items("hops")
        assert hop.is_mapping
        assert hop.mapping("a hop")["weight"].integer("weight", 1, 9) == 2
        assert second.is_empty
        assert second.mapping("a route") == {}


@pytest.mark.parametrize(
    ("ask", "message"),
    [
        (lambda top: top.mapping("x"), "r.json: expected x (key: value), found a list"),
        (lambda top: top.items("x")[0].items("y"), "r.json: [0]: expected a list of y, found keys"),
        (lambda top: top.items("x")[1].text("y"), "r.json: [1]: expected y, found nothing"),
        (
            lambda top: top.items("x")[0].mapping("y")["dst"].integer("z", 0, 9),
            "r.json: [0].dst: z '10.0.0.0/8' is not a whole number",
        ),
    ],
)
def test_errors_name_the_place(ask, message, tmp_path):
    file = tmp_path / "r.json"
    file.write_text(json.dumps(DOCUMENT))
    with pytest.raises(UsageError) as caught:
        ask(load_json(file))
    assert str(caught.value).endswith(message)


@pytest.mark.parametrize("content", [b"", b"[", b"\xff", b'{"a"', b"[" * 100_000])
def test_other_content(content, tmp_path):
    file = tmp_path / "r.json"
    file.write_bytes(content)
    with pytest.raises(UsageError, match=r"r.json: not JSON"):
        load_json(file)


def test_no_file(tmp_path):
    with pytest.raises(UsageError, match="cannot read"):
        load_json(tmp_path / "none.json")
