"""What fields declare besides their meaning."""

from __future__ import annotations

from typing import Annotated

import msgspec

from rocescope.analyzer.results.base import Fact, Record, about, facts_of
from rocescope.analyzer.results.captures import Ended
from rocescope.analyzer.results.flow import Flow
from rocescope.analyzer.track import state


class Example(Record, frozen=True):
    plain: int
    meant: Annotated[int, about("a meaning")]
    declared: Annotated[int | None, about("another", key="short", is_trouble=True)] = None
    silent: Annotated[int, about(total="max")] = 0


def test_fields_that_declare_more_than_a_meaning_are_facts_in_their_order():
    assert facts_of(Example) == (
        Fact(name="declared", meaning="another", key="short", is_trouble=True),
        Fact(name="silent", total="max"),
    )


def test_the_schema_holds_meanings_only():
    (schema,) = msgspec.json.schema(Example)["$defs"].values()
    assert schema["properties"]["declared"] == {
        "anyOf": [{"type": "integer"}, {"type": "null"}],
        "description": "another",
        "default": None,
    }
    assert schema["properties"]["silent"] == {"type": "integer", "default": 0}


def test_declared_columns_of_the_tracker_exist_and_have_sums_of_removed_flows():
    for fact in facts_of(Flow):
        if fact.flow_column:
            assert fact.flow_column in state.FLOW.names
        for column in fact.stream_columns:
            assert column in state.STREAM.names
        if fact.flow_column or fact.stream_columns:
            assert fact.name in Ended.__struct_fields__


def test_keys_and_titles_of_columns_are_unique():
    keys = [fact.key for fact in facts_of(Flow) if fact.key]
    assert len(keys) == len(set(keys))
    for fact in facts_of(Flow):
        assert len(fact.short) <= fact.width
        assert fact.key or not fact.short
