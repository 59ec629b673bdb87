"""Events of `trace --follow`. Field names are the names of the JSON output, one object per line."""

from __future__ import annotations

from typing import Annotated, Literal

from ...analyzer.results.base import Record, about
from ...replay.results.base import SCHEMA_VERSION


class Move(Record, frozen=True, kw_only=True):
    """A flow, or one entropy value of it, and its path before and after."""

    flow: int
    src: str
    dst: str
    src_port: int
    dest_qp: int
    src_rank: Annotated[int | None, about("null: no log of the job names it")] = None
    dst_rank: int | None = None
    before: Annotated[list[str], about("the known links from the source host on")]
    after: list[str]
    ends_because: Annotated[str | None, about("why the path is not known to its destination now")]


class FollowEvent(Record, frozen=True, kw_only=True):
    """Something that happened, and how the paths are now."""

    time: Annotated[str, about("UTC; of a change: first output of its device")]
    kind: Annotated[
        Literal["began", "changed", "flows", "lost", "back", "ended"],
        about(
            "flows: new flows were captured (--live); lost: a device does not answer, "
            "and its paths are those of its last answer; "
            "back: it answers again"
        ),
    ]
    seconds: Annotated[float, about("from the beginning to this event, by a monotonic clock")]
    devices: list[str]
    problem: Annotated[str | None, about("why a device was lost")] = None
    flows: int
    complete_flows: int
    moved_flows: Annotated[int, about("flows with another path; of ended: in all")]
    new_flows: Annotated[int, about("flows that were captured since (--live)")] = 0
    moves: Annotated[list[Move], about("of new flows: before is empty")]
    fim_percent: Annotated[
        float | None, about("FIM of flows of the least even layer; null: no path has a choice")
    ]
    lost_devices: Annotated[list[str], about("lost at this time: what they change is not known")]
    remarks: list[str] = []
    schema_version: str = SCHEMA_VERSION


class FollowSummary(Record, frozen=True, kw_only=True):
    """The whole time, when it has ended."""

    seconds: float
    changes: int
    readings: Annotated[int, about("answers of devices that were read")]
    fim_least_percent: float | None
    fim_most_percent: float | None
    ever_lost: Annotated[dict[str, float], about("seconds without each device")]
