"""The records of a comparison are JSON that their schema describes."""

from __future__ import annotations

import json

import factories_results as factories
import jsonschema
import msgspec

from rocescope.analyzer.results.compare import CHANGES, Comparison
from rocescope.report.compare import compare
from rocescope.report.files import encode_json
from rocescope.report.files.results import json_schema


def test_json_matches_the_schema_and_reads_back() -> None:
    result = compare(factories.analysis(), factories.clean_analysis(), ("a", "b"))
    encoded = encode_json(result)
    schema = json_schema("compare")
    jsonschema.Draft202012Validator.check_schema(schema)
    jsonschema.validate(json.loads(encoded), schema)
    assert msgspec.json.decode(encoded, type=Comparison) == result
    assert {flow.change for flow in result.flows} <= set(CHANGES)
