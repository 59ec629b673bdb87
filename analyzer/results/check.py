"""The result of `rocescope check`."""

from __future__ import annotations

from typing import Annotated

from .analysis import SCHEMA_VERSION
from .base import Record, about
from .captures import CaptureSummary
from .conformance import Conformance


class Check(Record, frozen=True, kw_only=True):
    """Everything `rocescope check` found."""

    schema_version: str = SCHEMA_VERSION
    version: str
    complete: Annotated[bool, about("False when the check was interrupted")]
    captures: list[CaptureSummary]
    conformance: Conformance
    warnings: Annotated[
        list[str], about("what limits trust in these results, most important first")
    ]
