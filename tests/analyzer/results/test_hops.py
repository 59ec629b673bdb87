"""Hops as JSON, and what their numbers promise, on a real fabric."""

from __future__ import annotations

import json

import jsonschema
import msgspec
import pytest
from captures import DATA, data
from factories_results import analysis
from rings import measured, ring

from rocescope.analyzer.pipeline.captures import analyze
from rocescope.analyzer.pipeline.options import AnalyzeOptions
from rocescope.analyzer.results.analysis import Analysis, CaptureLoss, Hop, LostAt, Ranks, TapClock
from rocescope.report.files.results import json_schema

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
