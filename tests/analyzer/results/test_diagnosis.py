"""Findings as JSON: every field survives, and the schema describes it."""

from __future__ import annotations

import json
from typing import get_args

import msgspec
import pytest
from factories_results import diagnosis

from rocescope.analyzer.results.diagnosis import (
    SEVERITIES,
    Confidence,
    Diagnosis,
    Finding,
    Kind,
    Severity,
)


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
