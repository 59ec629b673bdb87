"""What a job leaves beside the packets: collectives as PyTorch and NCCL recorded them."""

from __future__ import annotations

from typing import Annotated, Literal

from .base import Record, about

RecordSource = Literal["flight_recorder", "nccl_inspector"]
Lacking = Literal["enqueued", "started", "completed"]
MatchedBy = Literal["end", "count", "clocks"]


class RecordedRank(Record, frozen=True, kw_only=True):
    """What one rank recorded of one process group."""

    rank: Annotated[int, about("global, or within the group, see `ranks_are` of the group")]
    group_rank: Annotated[int | None, about("within the group; null: unknown")]
    host: Annotated[str | None, about("null: the records do not name it")]
    collectives: int
    first_sequence: Annotated[
        int | None, about("null: no collective, or NCCL Inspector, which numbers each operation")
    ]
    last_sequence: Annotated[int | None, about("null: as `first_sequence`")]


class RecordedGroup(Record, frozen=True, kw_only=True):
    """A process group of PyTorch, or a communicator of NCCL, in the records."""

    id: int
    source: RecordSource
    name: Annotated[str, about("of the process group, or the hash of the communicator")]
    description: str
    size: Annotated[int, about("ranks of the group, recorded or not")]
    ranks_are: Annotated[
        Literal["global", "group"],
        about("global: ranks of the job; group: the records show only ranks within the group"),
    ]
    ranks: list[RecordedRank]
    unrecorded: Annotated[
        list[int], about("ranks of the group without usable records, the first 1,000")
    ]


class MissingCollective(Record, frozen=True, kw_only=True):
    """The first collective of a group that some ranks miss. Later ones follow from it."""

    group: Annotated[int, about("id of the group")]
    sequence: int
    operation: str
    lacking: Annotated[
        Lacking,
        about(
            "what `ranks` did not do: enqueued (the program did not call it), started (the GPU did"
            " not reach it), completed; others did"
        ),
    ]
    ranks: Annotated[
        list[int], about("empty: all recorded ranks wait in it; who is missing does not show")
    ]
    waiting: Annotated[list[int], about("ranks that did, and have not completed it")]
    unknown: Annotated[list[int], about("ranks whose records do not reach it, or are missing")]
    timed_out: Annotated[
        bool,
        about(
            "a rank gave up waiting; false: the collective may have been in flight when the"
            " records were written"
        ),
    ]
    since_ns: Annotated[int, about("when the first rank enqueued it, by the clock of its host")]


class CollectiveVariant(Record, frozen=True):
    """One form of a collective, and the ranks that called it so."""

    operation: str
    sizes: str
    ranks: list[int]


class MismatchedCollective(Record, frozen=True, kw_only=True):
    """The first collective of a group that ranks called differently."""

    group: Annotated[int, about("id of the group")]
    sequence: int
    differs: Literal["operation", "size", "type"]
    variants: Annotated[list[CollectiveVariant], about("most ranks first: none of them is blamed")]


class LateRank(Record, frozen=True, kw_only=True):
    """A rank that enters collectives last: its own execution is the shortest."""

    group: Annotated[int, about("id of the group")]
    rank: int
    last: Annotated[int, about("collectives that it entered last")]
    collectives: Annotated[int, about("that all ranks recorded with an execution time")]
    others_wait_ns: Annotated[
        int, about("sum over those: median execution time less its own, as the median rank waited")
    ]
    slowest: Annotated[bool, about("last in more than half of at least 3 collectives")]


class StepCollectives(Record, frozen=True):
    """The collectives of one step of a job."""

    step: Annotated[int, about("index of the step")]
    first_sequence: Annotated[
        int | None, about("null: of NCCL Inspector, which numbers each operation on its own")
    ]
    last_sequence: Annotated[int | None, about("null: as `first_sequence`")]
    operations: Annotated[dict[str, int], about("number of collectives by operation")]


class BesidePackets(Record, frozen=True, kw_only=True):
    """Records of a group beside the steps of a job in the packets."""

    job: Annotated[int, about("id of the job")]
    group: Annotated[int, about("id of the group")]
    matched_by: Annotated[
        MatchedBy | None,
        about(
            "end: both stop in a hang; count: as many steps as the packets show; clocks: the"
            " nearest step by the clocks of the hosts; null: not matched, see `notes`"
        ),
    ]
    collectives_per_step: int
    clock_offset_ns: Annotated[
        int | None,
        about(
            "records less packets at the ends of steps, median: clocks of hosts and capture, and"
            " how far the program runs ahead; null: not matched"
        ),
    ]
    steps: list[StepCollectives]
    agreements: list[str]
    contradictions: list[str]
    notes: list[str]


class JobRecords(Record, frozen=True, kw_only=True):
    """Everything read from --flight-recorder and --nccl-inspector."""

    files: Annotated[int, about("with records")]
    collectives: int
    groups: list[RecordedGroup]
    missing: list[MissingCollective]
    mismatches: list[MismatchedCollective]
    late: Annotated[list[LateRank], about("longest `others_wait_ns` of each group first")]
    beside: list[BesidePackets]
    notes: Annotated[list[str], about("what could not be read or judged")]
