"""What fields declare besides their meaning."""

from __future__ import annotations

import json
from typing import Annotated, get_args

import factories_results as factories
import jsonschema
import msgspec
import pytest
from captures import DATA, data
from factories_results import analysis, diagnosis
from rings import measured, ring

from rocescope.analyzer.pipeline.captures import analyze
from rocescope.analyzer.pipeline.options import AnalyzeOptions
from rocescope.analyzer.results.analysis import Analysis, CaptureLoss, Hop, LostAt, Ranks, TapClock
from rocescope.analyzer.results.base import Fact, Record, about, facts_of
from rocescope.analyzer.results.captures import Ended
from rocescope.analyzer.results.compare import CHANGES, Comparison
from rocescope.analyzer.results.diagnosis import (
    SEVERITIES,
    Confidence,
    Diagnosis,
    Finding,
    Kind,
    Severity,
)
from rocescope.analyzer.results.flow import Flow
from rocescope.analyzer.track import state
from rocescope.report.compare import compare
from rocescope.report.files import encode_json
from rocescope.report.files.results import json_schema

# What fields declare besides their meaning.


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


# Sums of flows that were removed from memory.


def test_sums_add_up_and_times_span_both():
    one = Ended(flows=2, packets=10, first_time_ns=5, last_time_ns=9)
    other = Ended(flows=1, packets=3, first_time_ns=7, last_time_ns=12, untracked_packets=4)
    whole = Ended(flows=3, packets=13, first_time_ns=5, last_time_ns=12, untracked_packets=4)
    assert one.joined(other) == whole == other.joined(one)
    assert one.joined(Ended()) == one == Ended().joined(one)


def test_it_is_true_with_something_to_tell():
    assert not Ended()
    assert Ended(flows=1)
    assert Ended(untracked_packets=1)


# The records of a comparison are JSON that their schema describes.


def test_json_matches_the_schema_and_reads_back() -> None:
    result = compare(factories.analysis(), factories.clean_analysis(), ("a", "b"))
    encoded = encode_json(result)
    schema = json_schema("compare")
    jsonschema.Draft202012Validator.check_schema(schema)
    jsonschema.validate(json.loads(encoded), schema)
    assert msgspec.json.decode(encoded, type=Comparison) == result
    assert {flow.change for flow in result.flows} <= set(CHANGES)


# Findings as JSON: every field survives, and the schema describes it.


def test_a_diagnosis_survives_json():
    one = diagnosis()
    assert msgspec.json.decode(msgspec.json.encode(one), type=Diagnosis) == one


def test_members_are_in_the_order_in_which_they_are_read():
    assert list(json.loads(msgspec.json.encode(diagnosis()))) == [
        "summary",
        "findings",
        "healthy",
        "limits",
        "complete",
    ]


@pytest.mark.parametrize("kind", get_args(Kind))
def test_every_kind_is_allowed_and_no_other(kind):
    raw = msgspec.to_builtins(diagnosis().findings[0]) | {"kind": kind}
    assert msgspec.convert(raw, Finding).kind == kind
    with pytest.raises(msgspec.ValidationError):
        msgspec.convert(raw | {"kind": f"{kind}s"}, Finding)


def test_severities_and_confidences():
    assert set(SEVERITIES) == set(get_args(Severity))
    assert SEVERITIES[0] == "critical"
    assert set(get_args(Confidence)) == {"proven", "likely", "possible"}


def test_details_only_where_a_kind_has_them():
    plain = diagnosis().findings[0]
    assert "details" not in msgspec.to_builtins(plain)
    more = msgspec.structs.replace(plain, details={"bits_per_second": 4_000_000})
    assert msgspec.to_builtins(more)["details"] == {"bits_per_second": 4_000_000}


def test_the_schema_names_all_members():
    (schema,) = [
        part for name, part in msgspec.json.schema(Diagnosis)["$defs"].items() if name == "Finding"
    ]
    assert set(schema["properties"]) == set(Finding.__struct_fields__)
    assert schema["properties"]["kind"]["enum"] == sorted(get_args(Kind))


# Hops as JSON, and what their numbers promise, on a real fabric.

# Hops as JSON, and what their numbers promise, on a real fabric.


@pytest.fixture(scope="module")
def hops():
    fabric = sorted((DATA / "leafspine" / "r01_clean_write").glob("*.pcap.*"))
    lossy = [data("i01_write_loss0.5_AtoB.atA"), data("i01_write_loss0.5_AtoB.atB")]
    runs = (fabric, lossy)
    return [
        hop
        for paths in runs
        for hop in analyze([str(path) for path in paths], AnalyzeOptions()).hops
    ]


def test_hops_survive_json(hops):
    assert msgspec.json.decode(msgspec.json.encode(hops), type=list[Hop]) == hops


def test_what_enters_passes_or_is_lost(hops):
    assert sum(hop.lost_packets for hop in hops) == 180  # the ground truth of i01; r01 is clean
    for hop in hops:
        assert hop.packets == hop.passed_packets + hop.lost_packets
        assert hop.lost_percent == pytest.approx(100 * hop.lost_packets / hop.packets)
        assert sum(lost.packets for lost in hop.lost_by_flow) == hop.lost_packets
        for lost in hop.lost_by_flow:
            assert 0 < lost.packets <= lost.of_packets
            assert hop.first_lost_ns <= lost.first_ns <= lost.last_ns <= hop.last_lost_ns
        assert (hop.expected_by is None) == (hop.lost_packets == 0)


@pytest.mark.parametrize(
    "record",
    [
        LostAt(1, 2, 3, 4, 5),
        CaptureLoss("a", 2, 3, 4, 5, [1]),
        TapClock("a", "b", 1.5, 0.5, None, 2),
    ],
)
def test_records_survive_json(record):
    assert msgspec.json.decode(msgspec.json.encode(record), type=type(record)) == record


# Ranks in the result, against its own JSON Schema.


def test_ranks_follow_the_schema_and_survive_json():
    ranks = measured(ring(3, 4, lambda rank, _: rank * 1000))
    result = msgspec.structs.replace(analysis(), ranks=ranks)
    encoded = msgspec.json.encode(result)
    jsonschema.validate(json.loads(encoded), json_schema("analyze"))
    again = msgspec.json.decode(encoded, type=Analysis).ranks
    assert isinstance(again, Ranks) and again == ranks
    assert "ranks" not in json.loads(msgspec.json.encode(analysis()))
