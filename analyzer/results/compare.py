"""The result of `rocescope compare`: what changed from one analysis to another."""

from __future__ import annotations

from typing import Annotated, Literal

from .analysis import SCHEMA_VERSION
from .base import Record, about
from .diagnosis import Finding

Change = Literal["new", "worse", "better", "gone", "unchanged"]
CHANGES: tuple[Change, ...] = ("new", "worse", "better", "gone", "unchanged")
"""In the order of reports."""


class FindingChange(Record, frozen=True):
    """A finding of one analysis or of both: the same kind at the same place."""

    change: Change
    before: Finding | None
    after: Finding | None


class Figures(Record, frozen=True):
    """Key figures of a flow, or of all flows."""

    packets: int
    lost_packets: Annotated[
        int | None,
        about(
            "lost before or between taps, or never seen, each PSN once; not capture loss",
            title="lost",
            is_trouble=True,
        ),
    ]
    reordered_packets: Annotated[int | None, about(title="reordered", is_trouble=True)]
    retransmitted_packets: Annotated[int | None, about(title="retransmitted", is_trouble=True)]
    duplicate_packets: Annotated[int | None, about(title="duplicated", is_trouble=True)]
    ecn_marked_packets: Annotated[int, about(title="marked CE", is_trouble=True)]
    goodput_bits_per_second: Annotated[
        float | None, about("of all flows together, over their whole time", title="goodput")
    ]
    lost_retransmissions: Annotated[
        int | None,
        about(
            "also lost before the tap; null: not counted, as for single flows",
            title="lost again",
            is_trouble=True,
        ),
    ] = None


class FlowChange(Record, frozen=True):
    """A flow of one analysis or of both."""

    change: Change
    src: str
    dst: str
    dest_qp: int
    worse: Annotated[list[str], about("names of figures")]
    better: list[str]
    before: Figures | None
    after: Figures | None


class HopFigures(Record, frozen=True):
    """Key figures of a hop."""

    packets: Annotated[int, about("entered the hop: passed or lost")]
    lost_packets: Annotated[int, about(title="lost", is_trouble=True)]
    ecn_marked_packets: Annotated[
        int, about("marked CE on this hop", title="marked CE", is_trouble=True)
    ]
    reordered_packets: Annotated[int, about(title="reordered", is_trouble=True)]
    duplicate_packets: Annotated[int, about(title="duplicated", is_trouble=True)]
    queueing_p99_ns: Annotated[
        float | None, about("delay above the smallest delay of the hop", title="queueing p99")
    ]


class HopChange(Record, frozen=True):
    """A hop of one analysis or of both."""

    change: Change
    from_tap: Annotated[str, about("without what the names of all taps have in common")]
    to_tap: Annotated[str | None, about("null: the next tap is unknown")]
    device: str | None
    worse: Annotated[list[str], about("names of figures")]
    better: list[str]
    before: HopFigures | None
    after: HopFigures | None


class Comparison(Record, frozen=True, kw_only=True):
    """Everything `rocescope compare` found."""

    schema_version: str = SCHEMA_VERSION
    version: str
    before: Annotated[str, about("name of the first analysis")]
    after: str
    change: Annotated[
        Literal["worse", "better", "unchanged"],
        about(
            "worse: a critical finding or warning is new or worse, or a figure of all "
            "flows is worse; lower goodput alone does not count if findings are only better or gone"
        ),
    ]
    findings: Annotated[list[FindingChange], about("new and worse ones first")]
    worse: Annotated[list[str], about("figures of all flows that are worse")]
    better: list[str]
    figures_before: Figures
    figures_after: Figures
    hops: Annotated[
        list[HopChange], about("matched by the names of taps; worse first, then better")
    ]
    flows: Annotated[
        list[FlowChange], about("matched by src, dst and dest_qp; new and worse first")
    ]
    warnings: list[str]
