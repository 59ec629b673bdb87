"""Assigns packets to one-way flows: (source, destination, destination QPN) -> index."""

from __future__ import annotations

import numpy as np

from ...kernels.kernel import Bools, Int, Int32s, inlined, subkernel
from ..wire.opcodes import FULL, OPCODE_CLASS, SEQUENCED
from ..wire.packets import IPV6, TableArrays
from .state import USED_FLOWS, USED_PAIRS, State

_EMPTY = -1
_SHIFT_1, _SHIFT_2 = np.uint64(29), np.uint64(32)
_MULTIPLIER = np.uint64(0xBF58476D1CE4E5B9)  # from the splitmix64 finaliser


@inlined
def _mixed(a: Int, b: Int, c: Int) -> Int:
    """A well-mixed non-negative number of three 32-bit fields."""
    h = (np.uint64(a) << _SHIFT_2) | np.uint64(b)
    h ^= np.uint64(c) * _MULTIPLIER
    h ^= h >> _SHIFT_1
    h *= _MULTIPLIER
    h ^= h >> _SHIFT_2
    return np.int64(h >> np.uint64(1))


@inlined
def _pair_of(state: State, pair_slots: Int32s, src: Int, dst: Int) -> Int:
    """Index of the host pair, created when new."""
    low, high = min(src, dst), max(src, dst)
    mask = len(pair_slots) - 1
    at = _mixed(low, high, 0) & mask
    while pair_slots[at] != _EMPTY:
        index = pair_slots[at]
        if state.pairs[index].low == low and state.pairs[index].high == high:
            return np.int64(index)
        at = (at + 1) & mask
    index = state.used[USED_PAIRS]
    state.used[USED_PAIRS] += 1
    pair_slots[at] = index
    state.pairs[index].low = low
    state.pairs[index].high = high
    state.pairs[index].head[0] = _EMPTY
    state.pairs[index].head[1] = _EMPTY
    return np.int64(index)


@subkernel
def _new_flow(
    state: State, pair_slots: Int32s, src: Int, dst: Int, dest_qp: Int, time: Int, no_ids: Int
) -> Int:
    index = state.used[USED_FLOWS]
    state.used[USED_FLOWS] += 1
    flow = state.flows[index]
    flow.src, flow.dst, flow.dest_qp = src, dst, dest_qp
    flow.peer = _EMPTY
    flow.candidate = _EMPTY
    flow.recent = _EMPTY
    flow.first_time = time
    flow.last_time = time
    flow.no_ids = no_ids
    pair = _pair_of(state, pair_slots, src, dst)
    direction = 0 if src <= dst else 1
    flow.pair = pair
    flow.next_in_pair = state.pairs[pair].head[direction]
    state.pairs[pair].head[direction] = index
    return np.int64(index)


@subkernel
def assign(
    state: State,
    flow_slots: Int32s,
    pair_slots: Int32s,
    table: TableArrays,
    start: Int,
    flow_of_row: Int32s,
) -> Int:
    """Fill `flow_of_row[start:]` and learn the path MTU of flows and host pairs.

    Returns the row at which it stopped: the number of rows, or less if the tables must grow first.
    First and Middle packets carry exactly one path MTU.
    """
    mask = len(flow_slots) - 1
    last: Int = np.int64(_EMPTY)
    last_src = last_dst = last_qp = np.int64(-1)
    room = min(len(state.flows), len(flow_slots) // 2)
    for i in range(start, len(table.src)):
        s, d, q = np.int64(table.src[i]), np.int64(table.dst[i]), np.int64(table.dest_qp[i])
        if last < 0 or s != last_src or d != last_dst or q != last_qp:
            at = _mixed(s, d, q) & mask
            last = np.int64(_EMPTY)
            while flow_slots[at] != _EMPTY:
                index = np.int64(flow_slots[at])
                flow = state.flows[index]
                if flow.dest_qp == q and flow.src == s and flow.dst == d:
                    last = index
                    break
                at = (at + 1) & mask
            if last < 0:
                if state.used[USED_FLOWS] >= room:
                    return i
                last = _new_flow(
                    state,
                    pair_slots,
                    s,
                    d,
                    q,
                    table.time_ns[i],
                    np.int64(table.decode_flags[i] & IPV6),
                )
                flow_slots[at] = last
            last_src, last_dst, last_qp = s, d, q
        flow_of_row[i] = last
        bits = OPCODE_CLASS[table.opcode[i]]
        if bits & FULL and bits & SEQUENCED and table.payload_bytes[i] <= 4096:
            payload = table.payload_bytes[i]
            if payload > state.flows[last].path_mtu:
                state.flows[last].path_mtu = payload
                pair = state.pairs[state.flows[last].pair]
                if payload > pair.path_mtu:
                    pair.path_mtu = payload
    return len(table.src)


@subkernel
def known_rows(state: State, flow_slots: Int32s, table: TableArrays, known: Bools) -> None:
    """Set `known` for the rows whose flow exists."""
    mask = len(flow_slots) - 1
    for i in range(len(table.src)):
        s, d, q = np.int64(table.src[i]), np.int64(table.dst[i]), np.int64(table.dest_qp[i])
        at = _mixed(s, d, q) & mask
        while flow_slots[at] != _EMPTY:
            flow = state.flows[np.int64(flow_slots[at])]
            if flow.dest_qp == q and flow.src == s and flow.dst == d:
                known[i] = True
                break
            at = (at + 1) & mask


@subkernel
def rebuild_slots(state: State, flow_slots: Int32s, pair_slots: Int32s) -> None:
    """Enter all flows and host pairs into freshly emptied hash tables."""
    mask = len(flow_slots) - 1
    for index in range(state.used[USED_FLOWS]):
        flow = state.flows[index]
        at = _mixed(np.int64(flow.src), np.int64(flow.dst), np.int64(flow.dest_qp)) & mask
        while flow_slots[at] != _EMPTY:
            at = (at + 1) & mask
        flow_slots[at] = index
    mask = len(pair_slots) - 1
    for index in range(state.used[USED_PAIRS]):
        pair = state.pairs[index]
        at = _mixed(np.int64(pair.low), np.int64(pair.high), 0) & mask
        while pair_slots[at] != _EMPTY:
            at = (at + 1) & mask
        pair_slots[at] = index
