"""Answers as JSON have a schema of their own."""

from __future__ import annotations

import msgspec
import pytest

from rocescope.agent.results import AgentDiagnosis, Flows, QueuePairs


@pytest.mark.parametrize("record", [AgentDiagnosis, Flows, QueuePairs])
def test_schemas(record):
    schema = msgspec.json.schema(record)
    fields = schema["$defs"][record.__name__]["properties"]
    assert fields["schema_version"]["default"] == "1.0" and "time_ns" in fields
