"""The next PSN: a READ reserves the PSNs of its responses, whose number depends on the path MTU.

The path MTU is learned from packets, often after the first READ; until then the PSN after a READ is
a guess, and another PSN is accepted.
"""

from __future__ import annotations

import numpy as np

from ....kernels.kernel import Int, inlined
from ...wire.opcodes import FULL, READ_REQUEST
from ...wire.psn import psn_add, psn_distance
from ..state import FlowRecord, State, StreamRecord

_SMALLEST_PATH_MTU = 256
_LARGEST_PATH_MTU = 4096


@inlined
def reserved_psns(length: Int, path_mtu: Int) -> Int:
    """PSNs that a READ of `length` bytes reserves for its responses (at least one)."""
    return max(1, (length + path_mtu - 1) // path_mtu)


@inlined
def path_mtu_of(state: State, flow: FlowRecord) -> Int:
    """The connection's path MTU; 0 while unknown. Other connections are no evidence."""
    if flow.path_mtu > 0:
        return np.int64(flow.path_mtu)
    if flow.peer >= 0:
        return np.int64(state.flows[flow.peer].path_mtu)
    return np.int64(0)


@inlined
def responses_of(state: State, flow: FlowRecord, bits: Int, dma_length: Int) -> Int:
    """PSNs of the responses to a READ or atomic, as far as known."""
    path_mtu = path_mtu_of(state, flow)
    if path_mtu == 0:
        path_mtu = np.int64(state.pairs[flow.pair].path_mtu)
    if bits & READ_REQUEST and path_mtu > 0:
        return reserved_psns(dma_length, path_mtu)
    return np.int64(1)


@inlined
def advance(
    state: State, flow: FlowRecord, stream: StreamRecord, psn: Int, bits: Int, dma_length: Int
) -> None:
    """Move the next expected PSN after the newest packet of a stream."""
    stream.mid_message = 1 if bits & FULL else 0
    stream.read_pending = 0
    count: Int = np.int64(1)
    if bits & READ_REQUEST:
        count = responses_of(state, flow, bits, dma_length)
        if dma_length > _SMALLEST_PATH_MTU and path_mtu_of(state, flow) == 0:
            stream.read_pending = 1
            stream.read_psn = psn
            stream.read_length = dma_length
    stream.next = psn_add(psn, count)
    stream.next_dense += 1


@inlined
def resolve_read(
    state: State, flow: FlowRecord, stream: StreamRecord, psn: Int, bits: Int, dma_length: Int
) -> None:
    """After a READ with unknown path MTU `next` was a guess: accept another PSN.

    A larger PSN is always accepted, because without the path MTU no PSN is known to be missing. A
    smaller one is accepted only if a path MTU explains it, unless it repeats the rest of that READ.
    """
    step = psn_distance(psn, np.int64(stream.read_psn))
    if step <= 0:
        return
    accepted = psn_distance(psn, np.int64(stream.next)) > 0
    if bits & READ_REQUEST and not accepted:
        if psn_add(psn, responses_of(state, flow, bits, dma_length)) == stream.next:
            return
    path_mtu = np.int64(_SMALLEST_PATH_MTU)
    while path_mtu <= _LARGEST_PATH_MTU:
        if reserved_psns(np.int64(stream.read_length), path_mtu) == step:
            accepted = True
        path_mtu *= 2
    if accepted:
        stream.read_pending = 0
        stream.next = psn
