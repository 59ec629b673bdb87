"""The aggregation schemes: ATP with its relatives, ESA, SwitchML; and what a run asks of one."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

import numpy as np

from ...analyzer import spec
from ...kernels.kernel import Int, pointer_to, subkernel
from ..packets.model.records import Records
from .state import (
    COLLIDED,
    CONTENDED,
    FIXED_WINDOW,
    ONE_WINDOW,
    OWN,
    RESENT,
    TWO_WINDOWS,
    Memory,
    added,
)
from .switches import (
    ABSORB,
    FORWARD,
    MULTICAST,
    REPLY,
    add,
    at_switch_signature,
    claim,
    collide,
    flush,
    fragment_of,
    is_resent,
    load,
    release,
    swap,
    use,
)

US = 1_000_000
"""Picoseconds of a microsecond."""


@dataclass(frozen=True)
class Conduct:
    """How hosts and switches of a scheme behave; times in ps."""

    at_switch: int
    """A pointer to the function for gradients at a switch."""
    params: tuple[int, ...] = ()
    """Parameters of the scheme from `state.OWN` on."""
    has_server: bool = True
    """False: the switch itself sends results."""
    aggregates: bool = True
    multicast: bool = True
    """Switches copy a result for the workers of a rack; else the PS sends one to each worker."""
    private_slots: bool = False
    """Every job has as many slots as it can use."""
    rto_ps: int = 200 * US
    first_rto_ps: int = 50_000 * US
    """Until the first result arrives."""
    trigger: int = 3
    """Later results until the first missing one is asked for, 0: timers only."""
    double_after: int = 0
    """A worker's timer doubles after as many retransmissions by it, 0: never."""
    overflows: bool = True
    """Sums of int32 can saturate, and hosts then repeat the fragment in floats."""
    slot_timeout_ps: int = 0
    """A result releases the slot that it finds in the hands of another fragment, unless that
    had a contribution within this time; 0: never."""
    rehash: int = 0
    """The PS gives a window position another slot after a gradient with one of these flags."""
    remind_ps: int = 0
    congestion: int = FIXED_WINDOW
    """FIXED_WINDOW, ONE_WINDOW or TWO_WINDOWS."""
    base_rtt_ps: int = 0
    aggregators: int = 0
    """Window of aggregators at the start, 0: all that may be in flight (A2TP)."""
    contention_percent: int = 0
    """See `state.CONTENTION`."""


class AllReduce(NamedTuple):
    """No scheme but a collective of the workers alone, to compare with: `ring` or `tree`."""

    name: str
    parameters: Mapping[str, str]


class Scheme(NamedTuple):
    """A scheme with its options."""

    name: str
    """Its name and the options that differ from the defaults."""
    parameters: Mapping[str, str]
    """All options with their values, for the report."""
    conduct: Conduct
    """The rules for a run."""


class Options:
    """The options of a scheme; every option that is read has a default, and no other is allowed."""

    def __init__(self, scheme: str, given: Mapping[str, str], defaults: Mapping[str, str]) -> None:
        options = spec.Options(given, f"scheme {scheme}")
        options.check_known(defaults, f"scheme {scheme} has no option")
        self.values = options.with_defaults(defaults)
        changes = [f"{k}={v}" for k, v in given.items() if v != defaults[k]]
        self.name = f"{scheme}:{','.join(changes)}" if changes else scheme

    def built(self, at_switch: Callable[..., Int], **conduct: Any) -> Scheme:
        """The scheme with its function for gradients at a switch and other items of `Conduct`;
        with the timers of ATP if it has them as options."""
        if "first-rto" in self.values:
            conduct["rto_ps"], conduct["first_rto_ps"] = self.ps("rto"), self.ps("first-rto")
            conduct["trigger"] = self.number("trigger", 0, 1000)
        pointer = pointer_to(at_switch, at_switch_signature)
        return Scheme(self.name, self.values, Conduct(pointer, **conduct))

    def ps(self, key: str) -> int:
        """A duration in ps; `off` is 0."""
        return 0 if self.values[key] == "off" else self.values.time_ps(key)

    def on(self, key: str) -> bool:
        """yes or no."""
        return self.values.switched_on(key)

    def one_of(self, key: str, *words: str) -> str:
        """One of these words."""
        return self.values.word(key, *words)

    def number(self, key: str, least: int, most: int) -> int:
        """An integer."""
        return self.values.whole(key, "", least, most)


# ATP: slots shared by all jobs, first come first served, found by a hash of the end hosts.
#
# Rules: "ATP: In-network Aggregation for Multi-tenant Learning" (NSDI 2021) and its released code.
# A slot that another fragment holds is a collision: the gradient goes to the PS without
# aggregation, and the PS gives this window position another slot. A slot is released when the
# result passes, or when a retransmission takes its partial sum to the PS.
#
# A2TP: ATP, and workers that send past the switch memory what exceeds a second window.
#
# Rules: the released code of "A2TP: Aggregator-aware In-network Aggregation for Multi-tenant
# Learning" (EuroSys 2023), which is built on that of ATP. A slot that another fragment wanted says
# so with its sum, and the workers of that sum shrink their window of aggregators (`workers.py`). A
# gradient beyond it has the bit of a retransmission: it takes the sum of its slot to the PS.
#
# Unlimited memory: ATP's rules, and a slot for every fragment, so that no two ever collide.
#
# No aggregation: every gradient goes to the PS, which sends every worker its result.

TIMERS: Final[Mapping[str, str]] = {"rto": "200us", "first-rto": "50ms", "trigger": "3"}
"""The code's timers; three later results ask for a missing one, as in the paper (the code: one)."""
ATP_DEFAULTS: Final[Mapping[str, str]] = {
    **TIMERS,
    "cc": "no",
    "rehash": "yes",
    "reminder": "off",
    "slot-timeout": "50ms",
}


@subkernel
def atp_at_switch(
    memory: Memory, extra: Records, slot: Int, first: Int, all_workers: Int, now_ps: Int
) -> Int:
    """See `switches.AtSwitch`."""
    cell = first + extra[slot].index
    owner = memory.cells[cell].owner
    same = owner == fragment_of(extra, slot)
    if is_resent(extra, slot):
        if same:
            flush(memory, extra, slot, cell, now_ps)
        return np.int64(FORWARD)
    if same or owner == 0:
        return add(memory, extra, slot, cell, all_workers, now_ps)
    collide(memory, extra, slot)
    return np.int64(FORWARD)


def atp(given: Mapping[str, str]) -> Scheme:
    """ATP with its options."""
    options = Options("atp", given, ATP_DEFAULTS)
    return options.built(
        atp_at_switch,
        rehash=COLLIDED * options.on("rehash"),
        remind_ps=options.ps("reminder"),
        congestion=ONE_WINDOW if options.on("cc") else FIXED_WINDOW,
        slot_timeout_ps=options.ps("slot-timeout"),
    )


A2TP_DEFAULTS: Final[Mapping[str, str]] = {
    **TIMERS,
    "rehash": "yes",
    "slot-timeout": "50ms",
    "base-rtt": "20us",
    "contention": "10",
    "aggregators": "0",
}
"""Base round-trip time and the tolerated percentage of contended results are those of the code, and
so is the window of aggregators at the start: 0, all packets in flight. The code's timers differ
from ATP's: rto=50ms,trigger=1."""


@subkernel
def a2tp_at_switch(
    memory: Memory, extra: Records, slot: Int, first: Int, all_workers: Int, now_ps: Int
) -> Int:
    """That of ATP, which marks the sum whose slot another fragment wants."""
    cell = first + extra[slot].index
    owner = memory.cells[cell].owner
    if owner != 0 and owner != fragment_of(extra, slot) and not is_resent(extra, slot):
        memory.cells[cell].marked |= np.int64(CONTENDED)
    return atp_at_switch(memory, extra, slot, first, all_workers, now_ps)


def a2tp(given: Mapping[str, str]) -> Scheme:
    """A2TP with its options."""
    options = Options("a2tp", given, A2TP_DEFAULTS)
    return options.built(
        a2tp_at_switch,
        rehash=(COLLIDED | RESENT) * options.on("rehash"),
        slot_timeout_ps=options.ps("slot-timeout"),
        congestion=TWO_WINDOWS,
        base_rtt_ps=options.ps("base-rtt"),
        aggregators=options.number("aggregators", 0, 1 << 13),
        contention_percent=options.number("contention", 0, 100),
    )


def ideal(given: Mapping[str, str]) -> Scheme:
    """ATP without limits of memory."""
    options = Options("ideal", given, TIMERS)
    return options.built(
        atp_at_switch,
        private_slots=True,
    )


@subkernel
def none_at_switch(
    memory: Memory, extra: Records, slot: Int, first: Int, all_workers: Int, now_ps: Int
) -> Int:
    """See `switches.AtSwitch`."""
    return np.int64(FORWARD)


def no_aggregation(given: Mapping[str, str]) -> Scheme:
    """A PS alone."""
    options = Options("none", given, TIMERS)
    return options.built(
        none_at_switch,
        aggregates=False,
        multicast=False,
        overflows=False,
    )


# ESA: slots that a gradient of higher priority may take from another job.
#
# "Efficient Data-Plane Memory Scheduling for In-Network Aggregation" (arXiv 2201.06398). Its
# abstract names preemptive allocation and priority scheduling in the data plane; the rules here are
# assumed, each an option: docs/aggregation.md says what each rests on.

_AGEING, _EARLY = OWN, OWN + 1
ESA_DEFAULTS: Final[Mapping[str, str]] = {
    **TIMERS,
    "reminder": "60us",
    "ageing": "yes",
    "release": "result",
    "rehash": "no",
}


@subkernel
def esa_at_switch(
    memory: Memory, extra: Records, slot: Int, first: Int, all_workers: Int, now_ps: Int
) -> Int:
    """See `switches.AtSwitch`."""
    cells, params = memory.cells, memory.params
    cell = first + extra[slot].index
    owner = cells[cell].owner
    same = owner == fragment_of(extra, slot)
    if is_resent(extra, slot):
        if same:
            flush(memory, extra, slot, cell, now_ps)
        return np.int64(FORWARD)
    if not same and owner:
        collide(memory, extra, slot)
        if cells[cell].done or cells[cell].priority >= extra[slot].priority:
            if params[_AGEING]:
                cells[cell].priority >>= 1
            return np.int64(FORWARD)
        if extra[slot].bits != all_workers:
            swap(memory, extra, slot, cell, now_ps)
        return np.int64(FORWARD)
    fate = add(memory, extra, slot, cell, all_workers, now_ps)
    if params[_EARLY] and cells[cell].done:
        release(memory, cell, now_ps)
    return fate


def esa(given: Mapping[str, str]) -> Scheme:
    """ESA with its assumptions as options."""
    options = Options("esa", given, ESA_DEFAULTS)
    return options.built(
        esa_at_switch,
        params=(
            int(options.on("ageing")),
            int(options.one_of("release", "result", "completion") == "completion"),
        ),
        rehash=COLLIDED * options.on("rehash"),
        remind_ps=options.ps("reminder"),
    )


# SwitchML: a fixed share of the slots per job, two versions of each, results from the switch.
#
# Rules: "Scaling Distributed Machine Learning with In-Network Aggregation" (NSDI 2021) and its
# released code. While one version of a slot is filled, the other keeps the last result: a repeated
# contribution to a complete chunk is answered with it, and nobody is more than one chunk ahead. The
# code clears a worker's bit of the other version with each contribution; here a slot knows its
# chunk instead, so that a packet that the network copied or held back until its chunk was complete
# is told apart, where the code would add it to the next.

SWITCHML_DEFAULTS: Final[Mapping[str, str]] = {"rto": "10ms", "double-after": "50000"}
"""The code's: general options double the timer after 100 timeouts, those of DPDK after 50,000. With
100 the loss of 1 % that the paper measures would stop a job."""


@subkernel
def switchml_at_switch(
    memory: Memory, extra: Records, slot: Int, first: Int, all_workers: Int, now_ps: Int
) -> Int:
    """See `switches.AtSwitch`. The packet's `index` is that of its version."""
    cells, job = memory.cells, extra[slot].job
    cell = first + extra[slot].index
    chunk, bit = fragment_of(extra, slot), extra[slot].bits
    if chunk < cells[cell].owner:
        memory.tally[job].stale += 1
        return np.int64(ABSORB)
    if chunk != cells[cell].owner:
        claim(memory, extra, slot, cell, now_ps)
    elif cells[cell].done:
        load(memory, extra, slot, cell)
        return np.int64(REPLY)
    elif cells[cell].bits & bit:
        return np.int64(ABSORB)
    else:
        cells[cell].bits |= bit
        cells[cell].value = added(cells[cell].value, extra[slot].value)
    if cells[cell].bits != all_workers:
        memory.tally[job].absorbed += 1
        return np.int64(ABSORB)
    cells[cell].done = 1
    use(memory, cells[cell].since, now_ps, np.int64(1))
    memory.tally[job].completed += 1
    load(memory, extra, slot, cell)
    return np.int64(MULTICAST)


def switchml(given: Mapping[str, str]) -> Scheme:
    """SwitchML with its options."""
    options = Options("switchml", given, SWITCHML_DEFAULTS)
    return options.built(
        switchml_at_switch,
        has_server=False,
        rto_ps=options.ps("rto"),
        first_rto_ps=options.ps("rto"),
        trigger=0,
        double_after=options.number("double-after", 0, 1_000_000),
        overflows=False,
    )
