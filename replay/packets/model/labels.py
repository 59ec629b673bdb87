"""The state of entropy-value selection at hosts, and how the driver calls it.

An entropy value (EV) is a number below `params[EVS]`; a host with several NIC ports sends it
out of port EV modulo `params[PORTS]`. A strategy of hosts is three compiled functions over
one `EvState`:

- select(state, flow, free_ports, now_ps): the EV of the next packet, -1 when no usable EV
  leaves by one of the free ports (a bit mask);
- feedback(state, flow, ev, what, now_ps): what became of a packet (codes below);
- wake(state, flow, now_ps): the EV to probe now, -1 for none, when `rows[flow, WAKE]` is due.

The functions are passed as pointers, so that the driver is compiled once for all of them.
Random numbers come from (seed, flow, count of draws), never from a stream: the order in which
flows are served does not matter.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, NamedTuple, TypeAlias

import numpy as np
from numba import types

from ....kernels.kernel import Int, Int32s, Ints, inlined, subkernel
from .draws import drawn_in_turn
from .pointer import pointer_to

WAKE, DRAWS, OUTSTANDING, OWN = 0, 1, 2, 3
"""Columns of `rows`: when to call `wake` (ps, NEVER), random numbers drawn, packets in flight
(written by the driver); a strategy's own columns follow."""
ROW: Final = 16
SEED, PORTS, EVS, OWN_PARAMETERS = 0, 1, 2, 3
"""Items of `params`; a strategy's own follow."""
PARAMETERS: Final = 16
NEVER: Final = 1 << 62

ACKED, MARKED, TRIMMED, LOST, TIMEOUT, PROBE_CLEAN, PROBE_MARKED, ALWAYS_SKIP = range(8)
"""What became of a packet: acknowledged, with an ECN mark, cut to its header, given up because
later ones arrived, given up by time; a probe's answer; the receiver calls the path bad."""
PORT_MASK: Final = 8
"""Instead of an EV comes the mask of NIC ports over which the destination can be reached."""


class EvState(NamedTuple):
    """State of all flows."""

    rows: Ints
    """int64[flows, ROW]."""
    table: Int32s
    """int32[flows, as many as the strategy needs]."""
    params: Ints
    """int64[PARAMETERS]."""


STATE_TYPE: Any = types.NamedTuple(  # type: ignore[no-untyped-call, unused-ignore]
    [types.Array(types.int64, 2, "C"), types.Array(types.int32, 2, "C"), types.int64[::1]],
    EvState,
)
SELECT = types.int64(STATE_TYPE, types.int64, types.int64, types.int64)
FEEDBACK = types.int64(STATE_TYPE, types.int64, types.int64, types.int64, types.int64)
WAKE_UP = types.int64(STATE_TYPE, types.int64, types.int64)
Select: TypeAlias = Callable[[EvState, Int, Int, Int], Int]
OnFeedback: TypeAlias = Callable[[EvState, Int, Int, Int, Int], Int]
OnWake: TypeAlias = Callable[[EvState, Int, Int], Int]


def new_state(
    flows: int, width: int, seed: int, ports: int, evs: int, own: tuple[int, ...] = ()
) -> EvState:
    """State of flows that have sent nothing; own: the strategy's parameters."""
    rows = np.zeros((flows, ROW), np.int64)
    rows[:, WAKE] = NEVER
    params = np.zeros(PARAMETERS, np.int64)
    params[:OWN_PARAMETERS] = seed, ports, evs
    params[OWN_PARAMETERS : OWN_PARAMETERS + len(own)] = own
    return EvState(rows, np.zeros((flows, max(1, width)), np.int32), params)


@inlined
def draw(state: EvState, flow: Int, below: Int) -> Int:
    """The flow's next random number, 0 .. below-1; below is at most 2^31."""
    count = state.rows[flow, DRAWS]
    state.rows[flow, DRAWS] = count + 1
    return drawn_in_turn(state.params[SEED], flow, count, below)


@inlined
def nth_port(mask: Int, n: Int) -> Int:
    """The number of the n-th set bit of a mask, from 0; -1 when there are fewer."""
    port = np.int64(0)
    while mask != 0:
        if mask & 1:
            if n == 0:
                return port
            n -= 1
        mask >>= 1
        port += 1
    return np.int64(-1)


@inlined
def count_ports(mask: Int) -> Int:
    """Number of set bits."""
    count = np.int64(0)
    while mask != 0:
        mask &= mask - 1
        count += 1
    return count


@inlined
def random_ev(state: EvState, flow: Int, free_ports: Int) -> Int:
    """A random EV that leaves by a free port; -1 when there is none."""
    ports = state.params[PORTS]
    free_ports &= (np.int64(1) << ports) - 1
    if free_ports == 0:
        return np.int64(-1)
    ev = draw(state, flow, state.params[EVS])
    if ports == 1 or free_ports >> (ev % ports) & 1:
        return ev
    port = nth_port(free_ports, draw(state, flow, count_ports(free_ports)))
    return ev - ev % ports + port


@subkernel
def no_feedback(state: EvState, flow: Int, ev: Int, what: Int, now_ps: Int) -> Int:
    """Of strategies that do not listen."""
    return np.int64(0)


@subkernel
def no_wake(state: EvState, flow: Int, now_ps: Int) -> Int:
    """Of strategies without probes."""
    return np.int64(-1)


@subkernel
def no_selection(state: EvState, flow: Int, free_ports: Int, now_ps: Int) -> Int:
    """Of strategies that choose no EVs: the drivers do not call it."""
    return np.int64(-1)


class HostFunctions(NamedTuple):
    """A strategy of hosts as the driver takes it."""

    select: Select
    feedback: OnFeedback
    wake: OnWake


def host_functions(
    select: Select, feedback: OnFeedback = no_feedback, wake: OnWake = no_wake
) -> HostFunctions:
    """Pointers to three compiled functions."""
    return HostFunctions(
        pointer_to(select, SELECT), pointer_to(feedback, FEEDBACK), pointer_to(wake, WAKE_UP)
    )
