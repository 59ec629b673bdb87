"""JSON Schemas against hand-made results."""

from __future__ import annotations

import json

import factories_results as factories
import jsonschema
import pytest

from rocescope.analyzer.results.analysis import Analysis
from rocescope.report.files import encode
from rocescope.report.files.results import RESULTS, json_schema


@pytest.mark.parametrize("command", RESULTS)
def test_every_schema_is_valid_and_strict(command: str) -> None:
    schema = json_schema(command)
    jsonschema.Draft202012Validator.check_schema(schema)
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate({}, schema)


@pytest.mark.parametrize(
    "analysis",
    [factories.analysis(), factories.clean_analysis(), factories.doubtful_analysis()],
    ids=["analysis", "clean", "doubtful"],
)
def test_json_matches_the_schema(analysis: Analysis) -> None:
    text = encode(analysis, "json")
    assert text.startswith(b'{"schema_version":"1.5"') and text.endswith(b"}\n")
    jsonschema.validate(json.loads(text), json_schema("analyze"))
