"""Ranks in the result, against its own JSON Schema."""

from __future__ import annotations

import json

import jsonschema
import msgspec
from factories_results import analysis
from rings import measured, ring

from rocescope.analyzer.results.analysis import Analysis
from rocescope.analyzer.results.ranks import Ranks
from rocescope.report.files.schemas import json_schema


def test_ranks_follow_the_schema_and_survive_json():
    ranks = measured(ring(3, 4, lambda rank, _: rank * 1000))
    result = msgspec.structs.replace(analysis(), ranks=ranks)
    encoded = msgspec.json.encode(result)
    jsonschema.validate(json.loads(encoded), json_schema("analyze"))
    again = msgspec.json.decode(encoded, type=Analysis).ranks
    assert isinstance(again, Ranks) and again == ranks
    assert "ranks" not in json.loads(msgspec.json.encode(analysis()))
