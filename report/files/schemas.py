"""JSON Schemas of the results."""

from __future__ import annotations

from typing import Any

import msgspec

from ...analyzer.results.analysis import SCHEMA_VERSION, Analysis
from ...analyzer.results.check import Check
from ...analyzer.results.compare import Comparison
from ...analyzer.results.live import LiveInterval
from ...discovery.following.results import FollowEvent
from ...discovery.results import Discovery
from ...discovery.tracing.results import TraceResult
from ...replay.results.aggregation import AggregationResult
from ...replay.results.recover import RecoverResult
from ...replay.results.replay import ReplayResult
from ...replay.results.sweep import SweepResult

RESULTS: dict[str, type] = {
    "analyze": Analysis,
    "analyze-live": LiveInterval,
    "check": Check,
    "compare": Comparison,
    "replay": ReplayResult,
    "sweep": SweepResult,
    "recover-seed": RecoverResult,
    "discover": Discovery,
    "trace": TraceResult,
    "trace-follow": FollowEvent,
    "aggregate": AggregationResult,
}
_TITLES = {
    "analyze": "analysis",
    "analyze-live": "interval of a live analysis",
    "check": "check",
    "compare": "comparison",
    "trace-follow": "event of trace --follow",
}
"""Results with a schema version."""


def json_schema(command: str) -> dict[str, Any]:
    """JSON Schema (draft 2020-12) of the results of a command."""
    about = {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": f"rocescope {_TITLES.get(command)}, schema version {SCHEMA_VERSION}",
    }
    return (about if command in _TITLES else {}) | msgspec.json.schema(RESULTS[command])
