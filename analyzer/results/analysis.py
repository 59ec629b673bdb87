"""The result of an analysis: immutable records with a versioned schema.

Field names are those of the JSON output. Times are nanoseconds since the Unix
epoch, sizes bytes. A value that the capture cannot give is None; `notes` or the description of the
field gives the reason. No number is ever made up.
"""

from __future__ import annotations

from typing import Annotated

from msgspec import UNSET, UnsetType

from .base import Record, about
from .captures import CaptureSummary, MirrorChecks
from .conformance import Conformance
from .diagnosis import Diagnosis
from .ended import Ended
from .events import Event
from .flow import Connection, Flow
from .hops import CaptureLoss, Hop, TapClock
from .live import RdmaPort
from .mrc import Mrc, SegmentList
from .paths import Imbalance
from .ranks import Ranks
from .series import Series

SCHEMA_VERSION = "1.5"


class Analysis(Record, frozen=True, kw_only=True):
    """Everything `rocescope analyze` found."""

    schema_version: str = SCHEMA_VERSION
    version: str
    complete: Annotated[bool, about("False when the analysis was interrupted")]
    captures: list[CaptureSummary]
    diagnosis: Diagnosis
    flows: list[Flow]
    connections: list[Connection]
    imbalance: list[Imbalance]
    hops: Annotated[list[Hop], about("from tap to tap, one direction each; empty with one tap")]
    capture_losses: list[CaptureLoss]
    clocks: list[TapClock]
    events: list[Event]
    events_omitted: int
    series: Series
    warnings: Annotated[
        list[str], about("what limits trust in these results, most important first")
    ]
    ended: Annotated[
        Ended | UnsetType,
        about(
            "only if flows were removed from memory (live or with --follow), or "
            "packets were beyond a limit"
        ),
    ] = UNSET
    rdma_ports: Annotated[
        list[RdmaPort] | UnsetType, about("only in a live analysis on a host with RDMA devices")
    ] = UNSET
    conformance: Annotated[Conformance | UnsetType, about("only with --conformance")] = UNSET
    mrc: Annotated[Mrc | UnsetType, about("only when the capture holds MRC")] = UNSET
    mirror_checks: Annotated[
        MirrorChecks | UnsetType, about("only with --mirror-format lumina")
    ] = UNSET
    ranks: Annotated[
        Ranks | UnsetType, about("only if both ranks of a flow are known, from logs")
    ] = UNSET
    segment_lists: Annotated[
        list[SegmentList] | UnsetType, about("only when the capture holds SRv6; bounded")
    ] = UNSET

    @property
    def left(self) -> Ended:
        """`ended`, with zeros where no flow left memory."""
        return self.ended if isinstance(self.ended, Ended) else Ended()
