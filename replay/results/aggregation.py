"""Results of `aggregate`."""

from __future__ import annotations

from typing import Annotated

from ...analyzer.results.base import Record, about
from .base import SCHEMA_VERSION, FabricSummary

ALL_REDUCES = ("ring", "tree")
"""Names of results that are no scheme: collectives of the workers alone."""


class JobSummary(Record, frozen=True, kw_only=True):
    """A job and its hosts."""

    name: str
    workers: list[str]
    server: Annotated[str, about("host of the parameter server")]
    racks: Annotated[int, about("switches with workers of the job")]
    fragments: Annotated[int, about("packets of gradients per worker and iteration")]
    layers: int
    compute_ns: Annotated[int, about("computing of an iteration, without jitter")]
    iterations: int
    window: Annotated[int, about("packets in flight of a worker, at most")]
    start_ns: int
    captured_ns: Annotated[int | None, about("its time in the capture; null: not captured")]
    ranks: Annotated[
        list[list[int]],
        about("ranks of each worker in the capture, from logs; empty: none is known"),
    ]


class JobOutcome(Record, frozen=True, kw_only=True):
    """A job under one scheme; counts are means over the runs."""

    name: str
    completion_ns: Annotated[
        float | None, about("from its start; null: a run ended before the job")
    ]
    sent: Annotated[float, about("gradients of all workers, first transmissions")]
    retransmitted: float
    timeouts: float
    aggregated_percent: Annotated[
        float, about("fragments of which the server got one packet, with all values")
    ]
    server_packets: Annotated[float, about("gradient packets that reached the server")]
    collisions: Annotated[float, about("gradients that found their slot taken")]
    preemptions: Annotated[float, about("slots taken from other fragments")]
    evicted: Annotated[float, about("its partial sums that lost their slot")]
    reminders: Annotated[float, about("partial sums the server asked switches for")]


class Occupancy(Record, frozen=True, kw_only=True):
    """Memory over time, as percent of the slots of all switches with memory."""

    bin_ns: float
    used_percent: list[float]
    useful_percent: Annotated[list[float], about("slots whose sum became complete in the switch")]


class LinkBytes(Record, frozen=True, kw_only=True):
    """A link and what it carried."""

    link: str
    wire_bytes: float


class SchemeResult(Record, frozen=True, kw_only=True):
    """One scheme with one size of memory."""

    name: str
    parameters: dict[str, str]
    slots: Annotated[int | None, about("of each switch; null: the scheme has no such limit")]
    mean_completion_ns: Annotated[
        float | None, about("mean over jobs and runs; null: a job did not end")
    ]
    least_completion_ns: Annotated[float | None, about("smallest mean of a run")]
    most_completion_ns: float | None
    jobs: list[JobOutcome]
    used_percent: Annotated[
        float | None, about("mean of the slots taken; null: no limit, or fixed shares")
    ]
    useful_percent: float | None
    occupancy: Annotated[Occupancy | None, about("of the first run")]
    lost: Annotated[float, about("packets lost on links and in full buffers")]
    wire_bytes: Annotated[float, about("over all links, each link counts")]
    hops: int
    links: Annotated[list[LinkBytes], about("all links that carried a packet")]


class AggregationResult(Record, frozen=True, kw_only=True):
    """The result of `aggregate`."""

    schema_version: str = SCHEMA_VERSION
    version: str
    fabric: FabricSummary
    jobs: list[JobSummary]
    runs: Annotated[int, about("runs with different seeds")]
    jitter: Annotated[float, about("compute times vary by up to this share")]
    schemes: list[SchemeResult]
    assumed: Annotated[list[str], about("what no published text gives")]
    warnings: list[str]
