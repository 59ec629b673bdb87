"""Results of `aggregate`."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

from .base import SCHEMA_VERSION, FabricSummary, Record

ALL_REDUCES = ("ring", "tree")
"""Names of results that are no scheme: collectives of the workers alone."""


class JobSummary(Record, frozen=True, kw_only=True):
    """A job and its hosts."""

    name: str
    workers: list[str]
    server: Annotated[str, Meta(description="host of the parameter server")]
    racks: Annotated[int, Meta(description="switches with workers of the job")]
    fragments: Annotated[int, Meta(description="packets of gradients per worker and iteration")]
    layers: int
    compute_ns: Annotated[int, Meta(description="computing of an iteration, without jitter")]
    iterations: int
    window: Annotated[int, Meta(description="packets in flight of a worker, at most")]
    start_ns: int
    captured_ns: Annotated[
        int | None, Meta(description="its time in the capture; null: not captured")
    ]
    ranks: Annotated[
        list[list[int]],
        Meta(description="ranks of each worker in the capture, from logs; empty: none is known"),
    ]


class JobOutcome(Record, frozen=True, kw_only=True):
    """A job under one scheme; counts are means over the runs."""

    name: str
    completion_ns: Annotated[
        float | None, Meta(description="from its start; null: a run ended before the job")
    ]
    sent: Annotated[float, Meta(description="gradients of all workers, first transmissions")]
    retransmitted: float
    timeouts: float
    aggregated_percent: Annotated[
        float, Meta(description="fragments of which the server got one packet, with all values")
    ]
    server_packets: Annotated[float, Meta(description="gradient packets that reached the server")]
    collisions: Annotated[float, Meta(description="gradients that found their slot taken")]
    preemptions: Annotated[float, Meta(description="slots taken from other fragments")]
    evicted: Annotated[float, Meta(description="its partial sums that lost their slot")]
    reminders: Annotated[float, Meta(description="partial sums the server asked switches for")]


class Occupancy(Record, frozen=True, kw_only=True):
    """Memory over time, as percent of the slots of all switches with memory."""

    bin_ns: float
    used_percent: list[float]
    useful_percent: Annotated[
        list[float], Meta(description="slots whose sum became complete in the switch")
    ]


class LinkBytes(Record, frozen=True, kw_only=True):
    """A link and what it carried."""

    link: str
    wire_bytes: float


class SchemeResult(Record, frozen=True, kw_only=True):
    """One scheme with one size of memory."""

    name: str
    parameters: dict[str, str]
    slots: Annotated[
        int | None, Meta(description="of each switch; null: the scheme has no such limit")
    ]
    mean_completion_ns: Annotated[
        float | None, Meta(description="mean over jobs and runs; null: a job did not end")
    ]
    least_completion_ns: Annotated[float | None, Meta(description="smallest mean of a run")]
    most_completion_ns: float | None
    jobs: list[JobOutcome]
    used_percent: Annotated[
        float | None, Meta(description="mean of the slots taken; null: no limit, or fixed shares")
    ]
    useful_percent: float | None
    occupancy: Annotated[Occupancy | None, Meta(description="of the first run")]
    lost: Annotated[float, Meta(description="packets lost on links and in full buffers")]
    wire_bytes: Annotated[float, Meta(description="over all links, each link counts")]
    hops: int
    links: Annotated[list[LinkBytes], Meta(description="all links that carried a packet")]


class AggregationResult(Record, frozen=True, kw_only=True):
    """The result of `aggregate`."""

    schema_version: str = SCHEMA_VERSION
    version: str
    fabric: FabricSummary
    jobs: list[JobSummary]
    runs: Annotated[int, Meta(description="runs with different seeds")]
    jitter: Annotated[float, Meta(description="compute times vary by up to this share")]
    schemes: list[SchemeResult]
    assumed: Annotated[list[str], Meta(description="what no published text gives")]
    warnings: list[str]
