"""Training jobs as the packets show them: their ranks, steps, who is waited for, and hangs."""

from __future__ import annotations

from typing import Annotated, Literal

from .base import Record, about

Pattern = Literal["ring", "tree", "pairs", "exchange", "unknown"]
Boundary = Literal["marker", "longest_idle", "convention"]
Cause = Literal["late_data", "late_grants", "slow_transfers"]


class JobRank(Record, frozen=True):
    """An address of a job; one with several ranks has a record for each of them."""

    address: str
    rank: Annotated[int | None, about("null: neither grants nor logs name it")]
    host: Annotated[str | None, about("name of the host; null: unknown")]
    source: Annotated[
        Literal["grant", "log"] | None,
        about(
            "grant: NCCL's clear-to-send names the rank within the top parent of the communicator"
        ),
    ]


class JobGroup(Record, frozen=True, kw_only=True):
    """Addresses of a job that exchange data in one pattern."""

    pattern: Pattern
    order: Annotated[list[str], about("addresses; of a ring in the order of its data")]
    channels: Annotated[int | None, about("parallel edges between the same pair; null: unknown")]
    queue_pairs_per_connection: int | None
    slot_bytes: Annotated[int | None, about("size of a buffer that a grant names; null: unknown")]


class JobEpoch(Record, frozen=True):
    """A time in which the job keeps its queue pairs and does not stop."""

    from_ns: int
    until_ns: int
    ended_by: Annotated[
        Literal["restart", "silence", "end"],
        about("restart: new queue pairs between the same addresses; end: of the capture"),
    ]


class Sending(Record, frozen=True):
    """What a rank sends in one collective."""

    from_ns: Annotated[int, about("its first data packet")]
    until_ns: Annotated[int, about("its last data packet")]
    waited_ns: Annotated[int, about("from its first data to the first data of the last rank")]


class StepRank(Record, frozen=True, kw_only=True):
    """An address of a job in one step."""

    address: str
    first_data_ns: Annotated[int | None, about("null: the taps show no data of it in this step")]
    last_data_ns: int | None
    waited_ns: Annotated[
        int | None, about("for the last rank of each collective, in sum; null: does not show")
    ]
    sends: Annotated[
        list[Sending | None],
        about(
            "by collective, the same number at all ranks; null: not captured; empty: where"
            " collectives end does not show"
        ),
    ]


class JobStep(Record, frozen=True, kw_only=True):
    """One iteration of a job, as the taps see it."""

    index: Annotated[int, about("from 0")]
    epoch: Annotated[int, about("index in `epochs`")]
    first_message_ns: Annotated[int, about("last packet of the first data message of the step")]
    last_message_ns: Annotated[int, about("last packet of the last data message of the step")]
    duration_ns: Annotated[
        int | None,
        about("since the end of the step before; null: the first step of an epoch"),
    ]
    waited_ns: Annotated[
        int | None,
        about(
            "how long the median rank waited for the last one, over all collectives of the step;"
            " null: the arrival of the ranks does not show"
        ),
    ]
    waited_for: Annotated[
        int | None, about("rank that the others waited for most; null: none, or unknown")
    ]
    waited_for_address: Annotated[str | None, about("its address")]
    network_low_ns: Annotated[
        int | None, about("least part of the duration that the network can be responsible for")
    ]
    network_high_ns: Annotated[int | None, about("greatest part")]
    network_ns: Annotated[int | None, about("the part, where the pattern shows it exactly")]
    payload_bytes: int
    collectives: Annotated[int | None, about("null: unknown")]
    ranks: Annotated[
        list[StepRank],
        about("what the ranks do; of many steps only for the newest and the longest, else empty"),
    ] = []


class Iterations(Record, frozen=True, kw_only=True):
    """The steps of a job."""

    messages_per_step: Annotated[
        int | None, about("data messages of all queue pairs in a step; null: varies")
    ]
    period_p50_ns: float
    period_p5_ns: float
    period_p95_ns: float
    boundary: Annotated[
        Boundary,
        about(
            "where steps end: at a marker (a small collective), at the longest idle time, or by"
            " convention; then only durations are claimed"
        ),
    ]
    steps: list[JobStep]


class MissingRank(Record, frozen=True):
    """A rank that the others wait for in vain."""

    address: str
    rank: int | None


class Hang(Record, frozen=True):
    """The job stops before the end of the capture."""

    from_ns: Annotated[int, about("last data message before the silence")]
    until_ns: Annotated[int | None, about("null: the job does not return")]
    missing: Annotated[
        list[MissingRank],
        about("ranks that neither send nor grant while others wait; empty: not shown"),
    ]


class Straggler(Record, frozen=True, kw_only=True):
    """A rank that the others wait for in consecutive steps."""

    address: str
    rank: int | None
    from_step: int
    until_step: Annotated[int, about("the last one")]
    wait_ns: Annotated[int, about("sum over these steps: how much longer they took than usual")]
    cause: Annotated[
        Cause,
        about(
            "late_data: grants on time, data late (GPU or its kernels); late_grants: both late (the"
            " launch by the host); slow_transfers: the same messages take longer (network or NIC)"
        ),
    ]
    confidence: Literal["proven", "likely", "possible"]


class TrainingJob(Record, frozen=True, kw_only=True):
    """A training job in the captures."""

    id: int
    name: Annotated[str, about("from logs, else a letter")]
    addresses: list[str]
    ranks: list[JobRank]
    flows: Annotated[list[int], about("ids of its flows, grants included")]
    groups: list[JobGroup]
    epochs: list[JobEpoch]
    iterations: Iterations | None
    iterations_reason: Annotated[str | None, about("why `iterations` is null")]
    hang: Hang | None
    stragglers: list[Straggler]


class JobCost(Record, frozen=True):
    """What a finding costs a training job, against the steps before its onset."""

    job: Annotated[int, about("id of the job")]
    from_step: int
    until_step: Annotated[int, about("the last one")]
    step_ns: Annotated[int, about("median of the steps before the onset")]
    cost_ns: Annotated[int, about("time that these steps took longer than that, in sum")]
