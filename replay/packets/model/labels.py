"""The state of entropy-value selection at hosts, and how the driver calls it.

An entropy value (EV) is a number below `params[EVS]`; a host with several NIC ports sends its
packets by port EV modulo `params[PORTS]`. A strategy of hosts is three compiled functions over
one `EvState`:

- select(state, flow, free_ports, now_ps): the EV of the next packet, -1 if no usable EV
  uses a free port (bit mask);
- feedback(state, flow, ev, what, now_ps): the fate of a packet (codes below);
- wake(state, flow, now_ps): the EV to probe now, -1 for none; called at `rows[flow, WAKE]`.

The functions are passed as pointers, so that the driver is compiled once for all strategies.
Random numbers are functions of (seed, flow, count of draws), so the order in which flows are
served does not matter.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, TypeAlias

import numpy as np

from ....kernels.kernel import (
    Int,
    Int32s,
    Ints,
    NamedTuple,
    function_at,
    inlined,
    pointer_to,
    subkernel,
)
from .draws import drawn_in_turn

WAKE, DRAWS, OUTSTANDING, RTT, HOPS, OWN = range(6)
"""Columns of `rows`: time of the next `wake` (ps, NEVER), random numbers drawn; written by the
driver: packets in flight, and for `feedback` on an ACK the time since its packet left the host (ps)
and the links that this packet passed; the columns of the strategy follow."""
ROW: Final = 16
SEED, PORTS, EVS, OWN_PARAMETERS = 0, 1, 2, 3
"""Items of `params`; the items of the strategy follow."""
PARAMETERS: Final = 16
NEVER: Final = 1 << 62

ACKED, MARKED, TRIMMED, LOST, TIMEOUT, PROBE_CLEAN, PROBE_MARKED, ALWAYS_SKIP = range(8)
"""The fate of a packet: acknowledged, acknowledged with an ECN mark, trimmed, lost because later
packets arrived, lost by timeout; answer to a probe, without or with a mark; the receiver declares
the path bad."""
PORT_MASK: Final = 8
"""The argument is not an EV but the mask of NIC ports that reach the destination."""


class EvState(NamedTuple):
    """State of all flows."""

    rows: Ints
    """int64[flows, ROW]."""
    table: Int32s
    """int32[flows, columns of the strategy]."""
    params: Ints
    """int64[PARAMETERS]."""


def _of_state(numbers: int) -> Any:
    """The signature of a function of the state and some integers."""
    from numba import types

    arrays = [types.Array(types.int64, 2, "C"), types.Array(types.int32, 2, "C"), types.int64[::1]]
    state: Any = types.NamedTuple(arrays, EvState)  # type: ignore[no-untyped-call, unused-ignore]
    return types.int64(state, *[types.int64] * numbers)


def _select() -> Any:
    return _of_state(3)


def _feedback() -> Any:
    return _of_state(4)


def _wake() -> Any:
    return _of_state(2)


select_at, feedback_at, wake_at = function_at(_select), function_at(_feedback), function_at(_wake)
Select: TypeAlias = Callable[[EvState, Int, Int, Int], Int]
OnFeedback: TypeAlias = Callable[[EvState, Int, Int, Int, Int], Int]
OnWake: TypeAlias = Callable[[EvState, Int, Int], Int]


def new_state(
    flows: int, width: int, seed: int, ports: int, evs: int, parameters: tuple[int, ...] = ()
) -> EvState:
    """The state before the first packet; parameters: those of the strategy."""
    rows = np.zeros((flows, ROW), np.int64)
    rows[:, WAKE] = NEVER
    params = np.zeros(PARAMETERS, np.int64)
    params[:OWN_PARAMETERS] = seed, ports, evs
    params[OWN_PARAMETERS : OWN_PARAMETERS + len(parameters)] = parameters
    return EvState(rows, np.zeros((flows, max(1, width)), np.int32), params)


@inlined
def draw(state: EvState, flow: Int, below: Int) -> Int:
    """The next random number of the flow, 0 .. below-1; below is at most 2^31."""
    count = state.rows[flow, DRAWS]
    state.rows[flow, DRAWS] = count + 1
    return drawn_in_turn(state.params[SEED], flow, count, below)


@inlined
def nth_port(mask: Int, n: Int) -> Int:
    """The position of the n-th set bit of a mask, n from 0; -1 if there are fewer bits."""
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
    """A random EV of a free port; -1 if no port is free."""
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
    """For strategies without feedback."""
    return np.int64(0)


@subkernel
def no_wake(state: EvState, flow: Int, now_ps: Int) -> Int:
    """For strategies without probes."""
    return np.int64(-1)


@subkernel
def no_selection(state: EvState, flow: Int, free_ports: Int, now_ps: Int) -> Int:
    """For strategies that select no EVs; the drivers do not call it."""
    return np.int64(-1)


class HostFunctions(NamedTuple):
    """Addresses of the functions of a strategy of hosts, for the driver."""

    select: int
    feedback: int
    wake: int


def host_functions(
    select: Select, feedback: OnFeedback = no_feedback, wake: OnWake = no_wake
) -> HostFunctions:
    """Addresses of three compiled functions."""
    return HostFunctions(
        pointer_to(select, _select), pointer_to(feedback, _feedback), pointer_to(wake, _wake)
    )
