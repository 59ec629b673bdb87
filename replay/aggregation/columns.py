"""Columns of the tables of a run: kernels take the fields of these tuples as constants."""

from __future__ import annotations

from typing import NamedTuple


class _PacketColumns(NamedTuple):
    """Columns of `World.extra`, int64[slots, 8]."""

    KIND: int = 0
    """GRADIENT, RESULT or REMINDER, and flags."""
    JOB: int = 1
    SEQ: int = 2
    BITS: int = 3
    """Mask of the workers whose values are in VALUE."""
    VALUE: int = 4
    INDEX: int = 5
    """The slot of the switch memory."""
    PRIORITY: int = 6
    """0 to 255; in a RESULT the slot of this window position from now on."""
    TO: int = 7
    """RESULT: bit of the worker, or -1 - rack for all workers of a rack. REMINDER: -1 - rack.
    GRADIENT: bit of the sender."""
    COLUMNS: int = 8


class _CellColumns(NamedTuple):
    """Columns of `Memory.cells`, int64[switches * slots, 8]: the slots of all switches."""

    OWNER: int = 0
    """`owner_of` of the fragment, 0 for an empty slot."""
    BITS: int = 1
    VALUE: int = 2
    PRIORITY: int = 3
    MARKED: int = 4
    """FEEDBACK of the contributions, and CONTENDED if another fragment wanted the slot (A2TP)."""
    SINCE: int = 5
    """When the slot was claimed."""
    DONE: int = 6
    """Whether the sum was complete; 2: VALUE is the result of the root (SwitchML)."""
    TOUCHED: int = 7
    """Time of the last contribution."""

    COLUMNS: int = 8


class _TallyColumns(NamedTuple):
    """Columns of `Memory.tally`, int64[jobs, COLUMNS]: counts of packets of a job."""

    SENT: int = 0
    """Gradients, first transmissions."""
    RESENT: int = 1
    TIMEOUTS: int = 2
    """Expired timers of workers."""
    ABSORBED: int = 3
    """Gradients that ended in a switch, because their slot had not all workers yet."""
    COMPLETED: int = 4
    """Sums that a switch completed, at every level."""
    COLLISIONS: int = 5
    """Gradients that found their slot taken."""
    PREEMPTIONS: int = 6
    """Slots taken from other jobs."""
    EVICTED: int = 7
    """Partial sums that left a switch for another job."""
    SERVER: int = 8
    """Gradient packets that reached the PS."""
    WHOLE: int = 9
    """Those with the values of all workers; SwitchML: sums that the switch completed."""
    IGNORED: int = 10
    """Packets at the PS with a value that it already had."""
    RESULTS: int = 11
    """Results that workers received for the first time."""
    REPEATED: int = 12
    """Results that a worker already had."""
    REMINDERS: int = 13
    WRONG: int = 14
    """Results with another value than the sum of what the workers sent."""
    STALE: int = 15
    """Gradients of a chunk that was complete already."""
    OVERFLOWS: int = 16
    """Sums that saturated: the PS asked for the values in floats."""
    EXPIRED: int = 17
    """Slots of the job that a result of another fragment released: the slot's timeout."""
    BYPASSED: int = 18
    """Gradients that were sent past the switch memory at their first transmission (A2TP)."""

    COLUMNS: int = 19


class _JobColumns(NamedTuple):
    """Columns of `World.jobs`, int64[jobs, 16]."""

    WORKERS: int = 0
    FIRST: int = 1
    """First worker."""
    SERVER: int = 2
    """Host of the PS; with SwitchML a worker in the rack of the root."""
    ITERATIONS: int = 3
    WINDOW: int = 4
    LAYERS: int = 5
    """Of an iteration."""
    FIRST_LAYER: int = 6
    """Row of its first layer in `World.layers`; all layers of an iteration follow each other."""
    JITTER: int = 7
    """Compute times vary by up to this share, times 2**16."""
    OVERFLOW: int = 8
    """Chance of a fragment that its sum exceeds int32, out of 2**31."""
    FIRST_RACK: int = 9
    RACKS: int = 10
    BASE: int = 11
    """SwitchML: the first of its slots."""
    SLOTS: int = 12
    """SwitchML: its slots, half of them per version."""
    NEXT_INDEX: int = 13
    """Next entry of its list of unused slots, for collisions."""
    HIGHEST: int = 14
    """One more than the highest sequence number that reached the PS."""

    COLUMNS: int = 16


class _WorkerColumns(NamedTuple):
    """Columns of `World.workers`, int64[workers, 16]."""

    JOB: int = 0
    BIT: int = 1
    HOST: int = 2
    SENT: int = 3
    """Next sequence number to send."""
    DONE: int = 4
    """First sequence number without a result; with SwitchML the number of results."""
    READY: int = 5
    """End of the sequence numbers that are computed."""
    ITERATION: int = 6
    LAYER: int = 7
    """Next layer of the iteration to be computed."""
    BASE: int = 8
    """Start of the iteration."""
    SLOWNESS: int = 9
    """Compute time over that of the model, times 2**16, in this iteration."""
    DEADLINE: int = 10
    """When the timer expires."""
    LATER: int = 11
    """Results since DONE was asked for that are not DONE."""
    ASKED: int = 12
    """One more than the last sequence number retransmitted for later results."""
    FINISHED: int = 13
    """When the last iteration ended, -1 before."""
    CONGESTION: int = 14
    """Congestion window in packets, times 2**10."""
    HALVED: int = 15
    """The window was last halved below this sequence number; the threshold of slow start is the
    window then."""
    HEARD: int = 16
    """Whether a result has arrived."""
    BY_TIMER: int = 17
    """Gradients that its timer retransmitted."""

    # A2TP, see two_windows.py.
    AGGREGATORS: int = 18
    """Window of aggregators, packets."""
    CREDIT: int = 19
    """Gradients that may still use switch memory in this period."""
    PERIOD_END: int = 20
    """Sequence number whose result ends the period."""
    PERIOD_AT: int = 21
    """Start of the period."""
    PERIOD_DONE: int = 22
    """DONE at its start."""
    MEASURED: int = 23
    """Whether the share of prompt results of this period is known."""
    ECHOES: int = 24
    """Results of this period with the mark of ECN."""
    CONTENTIONS: int = 25
    """Results of this period whose slot another fragment wanted."""

    COLUMNS: int = 26


class _PoolColumns(NamedTuple):
    """Columns of `World.pool`, int64[workers, window, 2]: slots of SwitchML as workers see them."""

    SEQ: int = 0
    """Sequence number that waits for its result, or the next one."""
    DUE: int = 1
    """When its timer expires, 0: not sent."""

    COLUMNS: int = 2


class _DegreeColumns(NamedTuple):
    """Columns of `World.degrees`, float64[workers, 4]: A2TP's moving averages, 0 to 1."""

    MARKED: int = 0
    """Share of results with the mark of ECN."""
    CONTENDED: int = 1
    """Share of results whose slot another fragment wanted."""
    PROMPT: int = 2
    """Share of a window whose results came within the base round-trip time."""
    PROMPT_NOW: int = 3
    """The same of this period alone."""

    COLUMNS: int = 4


class _SumColumns(NamedTuple):
    """Columns of `World.sums`, int64[jobs * ring, 8]: what the PS of each job holds."""

    SEQ: int = 0
    """One more than the sequence number, 0 for none."""
    BITS: int = 1
    VALUE: int = 2
    DONE: int = 3
    COLLIDED: int = 4
    MARKED: int = 5
    """FEEDBACK of the packets."""
    SINCE: int = 6
    """Time of the last contribution or reminder."""
    INDEX: int = 7
    """The slot, once DONE."""
    NEXT: int = 8
    """The slot of its window position from now on, once DONE."""
    FLOATS: int = 9
    """Whether the sum saturated and starts again in floats."""

    COLUMNS: int = 10


pk = _PacketColumns()
cl = _CellColumns()
ty = _TallyColumns()
jb = _JobColumns()
wk = _WorkerColumns()
sm = _SumColumns()
pl = _PoolColumns()
dg = _DegreeColumns()

GRADIENT, RESULT, REMINDER = range(3)
KINDS = 3
"""Mask of the kind within KIND."""
RESENT, COLLIDED, DIRECT, ECHO, FLOATS, CONTENDED = 4, 8, 16, 32, 64, 128
"""Flags: retransmitted, or sent past the switch memory (A2TP); found its slot taken; no switch adds
to it any longer; a packet of this sum was marked by ECN; a GRADIENT in floats, or a RESULT that
asks for them; another fragment wanted the slot of this sum (A2TP)."""
FEEDBACK = ECHO | CONTENDED
"""Flags that a sum takes along to its result."""
