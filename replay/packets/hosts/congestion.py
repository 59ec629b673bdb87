"""The parts of a congestion control, and its state over all flows.

The drivers call its functions by pointer, so that they are compiled once for all algorithms:

- on_ack(rows, params, heard): bytes were acknowledged;
- on_cnp(rows, params, flow, now_ps): a CNP arrived; receivers send them only if `cnp_ps` is set;
- on_loss(rows, params, flow, lost, trimmed, now_ps): `lost` bytes were trimmed, or considered lost
  without a trim;
- on_send(rows, params, flow, size, now_ps): ps from a packet of `size` bytes sent now to the next
  packet of the flow, 0 without pacing.

The bytes in flight of a flow stay within `rows[flow, WINDOW]`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, TypeAlias

import numpy as np

from ....kernels.kernel import Floats, Int, NamedTuple, function_at, pointer_to, subkernel
from ..model.arrays import RoundTrips

WINDOW, OWN_COLUMNS = 0, 1
"""Columns of `rows`: maximum of bytes in flight; the columns of the algorithm follow."""
COLUMNS: Final = 16
MSS, OWN_PARAMETERS = 0, 1
"""Items of `params`: wire bytes of a full packet; the items of the algorithm follow."""
PARAMETERS: Final = 16


class Heard(NamedTuple):
    """What a sender learns from an ACK."""

    flow: Int
    acked: Int
    """Bytes that it is the first to acknowledge."""
    rtt_ps: Int
    """Since the packet that caused the ACK left its host."""
    marked: Int
    """1 if a packet since the last ACK was marked."""
    hops: Int
    """Links that the packet passed."""
    now_ps: Int


def _of_rows(numbers: int) -> Any:
    """The signature of a function of rows, params and some integers."""
    from numba import types

    return types.int64(types.float64[:, ::1], types.float64[::1], *[types.int64] * numbers)


def _ack() -> Any:
    from numba import types

    heard: Any = types.NamedUniTuple(types.int64, 6, Heard)  # type: ignore[no-untyped-call, unused-ignore]
    return types.int64(types.float64[:, ::1], types.float64[::1], heard)


def _cnp() -> Any:
    return _of_rows(2)


def _loss() -> Any:
    return _of_rows(4)


def _send() -> Any:
    return _of_rows(3)


on_ack_at, on_cnp_at = function_at(_ack), function_at(_cnp)
on_loss_at, on_send_at = function_at(_loss), function_at(_send)

_F = Floats
OnAck: TypeAlias = Callable[[_F, _F, Heard], Int]
OnCnp: TypeAlias = Callable[[_F, _F, Int, Int], Int]
OnLoss: TypeAlias = Callable[[_F, _F, Int, Int, Int, Int], Int]
OnSend: TypeAlias = Callable[[_F, _F, Int, Int, Int], Int]


class Line(NamedTuple):
    """What an algorithm knows of the network at its start."""

    mss: int
    """Wire bytes of a full packet."""
    trips: RoundTrips
    """Base RTT, rate and links of each flow."""
    trimming: bool
    """Whether queues trim packets instead of dropping them."""


@subkernel
def ignore_ack(rows: Floats, params: Floats, heard: Heard) -> Int:
    """For algorithms that do not use acknowledgements."""
    return np.int64(0)


@subkernel
def ignore_cnp(rows: Floats, params: Floats, flow: Int, now_ps: Int) -> Int:
    """For algorithms without CNPs."""
    return np.int64(0)


@subkernel
def ignore_loss(
    rows: Floats, params: Floats, flow: Int, lost: Int, trimmed: Int, now_ps: Int
) -> Int:
    """For algorithms that do not use losses."""
    return np.int64(0)


@subkernel
def at_once(rows: Floats, params: Floats, flow: Int, size: Int, now_ps: Int) -> Int:
    """For algorithms without pacing."""
    return np.int64(0)


def leave_open(rows: Floats, params: Floats, line: Line) -> None:
    """For algorithms without state."""


class Algorithm(NamedTuple):
    """The parts of a congestion control."""

    start: Callable[[Floats, Floats, Line], None] = leave_open
    """Initialises rows (window: no limit) and params (MSS) before the first packet."""
    on_ack: OnAck = ignore_ack
    on_loss: OnLoss = ignore_loss
    on_send: OnSend = at_once
    on_cnp: OnCnp = ignore_cnp
    cnp_ps: int = 0
    """Least interval between the CNPs that the receiver of a flow sends for marked packets; 0: it
    sends none."""


class Congestion(NamedTuple):
    """Congestion control of all flows of a run."""

    rows: Floats
    """float64[flows, COLUMNS]."""
    params: Floats
    """float64[PARAMETERS]."""
    on_ack: int
    """Address of the function; likewise below."""
    on_loss: int
    on_send: int
    on_cnp: int
    cnp_ps: int


def congestion(algorithm: Algorithm, flows: int, line: Line) -> Congestion:
    """The state before the first packet."""
    rows, params = np.zeros((flows, COLUMNS)), np.zeros(PARAMETERS)
    rows[:, WINDOW], params[MSS] = np.inf, line.mss
    algorithm.start(rows, params, line)
    return Congestion(
        rows,
        params,
        pointer_to(algorithm.on_ack, _ack),
        pointer_to(algorithm.on_loss, _loss),
        pointer_to(algorithm.on_send, _send),
        pointer_to(algorithm.on_cnp, _cnp),
        algorithm.cnp_ps,
    )
