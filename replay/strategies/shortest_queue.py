"""Switches that take the shortest queue: of all links (JSQ), of a few (DRILL)."""

from __future__ import annotations

import numpy as np

from ...kernels.kernel import Int, Ints, inlined
from ..fabrics.fabric import Fabric
from ..packets.model.draws import SWITCH_PORT, TIE, drawn, purpose
from ..packets.model.model import ACK, Workload, queued_bytes
from ..packets.model.rules import Choice, Rules, Strategy, chooser, no_label, nth_link
from .base import WITHOUT_FLAGS, Configured, state_of

# The choice of the port with the lowest level, a measure of the strategy.

NONE = -1
"""Keep no port."""


def scratch_levels(fabric: Fabric) -> Ints:
    """A table of the state: scratch space for the levels of the links of one group."""
    return np.zeros(int(np.diff(fabric.forwarding.group_start).max(initial=1)), np.int64)


@inlined
def random_least(
    state: Ints, levels: Int, size: Int, seed: Int, what: Int, where: Int, kept: Int
) -> Int:
    """Position of the lowest of `size` >= 1 levels from state[levels] on.

    On ties `kept` if it is among the lowest, else a random position, drawn for (what, where).
    """
    best, equal = state[levels], np.int64(1)
    for i in range(1, size):
        level = state[levels + i]
        if level < best:
            best, equal = level, np.int64(1)
        elif level == best:
            equal += 1
    if 0 <= kept < size and state[levels + kept] == best:
        return kept
    skip = drawn(seed, TIE, what, where, equal)
    for i in range(size):
        if state[levels + i] == best:
            if skip == 0:
                return np.int64(i)
            skip -= 1
    return np.int64(0)


# Every switch sends every packet to the shortest of its equal-cost queues.
#
# Source: JSQ of "Load Balancing for AI Training Workloads" (arXiv 2507.21372), theory part:
# exact queue lengths. With the lowest port on ties it is "Adaptive RoCE" of REPS' baselines.
# By default ACKs use a random port: Ultra Ethernet's simulator (uet-htsim) hashes all packets under
# 100 B, and only then the queues equal those of the reference tables (docs/reproductions.md).


class ShortestQueue(Configured, Strategy):
    """Options: `ties`, `random` or `first` port (random); `acks`, `random` port or `shortest`
    queue (random)."""

    name = "jsq"

    def rules(self, workload: Workload, fabric: Fabric, seed: int) -> Rules:
        self.known("ties", "acks")
        ties = self.word("ties", "random", "first")
        acks = self.word("acks", "random", "shortest")
        state = state_of([seed, int(ties == "random"), int(acks == "random")])
        parameters = {"ties": ties, "acks": acks}
        return Rules(_choose(), no_label(), state, reads_queues=True, parameters=parameters)


@chooser
def _choose(state: Ints, links: Ints, at: Choice) -> Int:
    what = at.packet & np.int64(WITHOUT_FLAGS)
    if state[2] and at.packet & np.int64(ACK):
        return drawn(state[0], SWITCH_PORT, what, at.switch, at.size)
    best: Int = np.int64(1 << 62)
    equal: Int = np.int64(0)
    chosen: Int = np.int64(0)
    for i in range(at.size):
        queued = queued_bytes(links, nth_link(at, i), at.time)
        if queued < best:
            best, equal, chosen = queued, np.int64(1), np.int64(i)
        elif queued == best:
            equal += 1
    if state[1] and equal > 1:
        skip = drawn(state[0], TIE, what, at.switch, equal)
        for i in range(at.size):
            if queued_bytes(links, nth_link(at, i), at.time) == best:
                if skip == 0:
                    return np.int64(i)
                skip -= 1
    return chosen


# DRILL(d, m): the shortest of d random queues and of the queue that was shortest before.
#
# Source: Ghorbani et al., "DRILL: Micro Load Balancing for Low-latency Data Center Networks",
# SIGCOMM 2017: d = 2 and m = 1. Assumed: a switch is one forwarding engine, draws may hit the same
# port twice, and of equal queues the first drawn port wins.

_MORE = purpose("drill: the ports after the first one")


class Drill(Configured, Strategy):
    """Options: `samples`, random ports per packet (2); `memory`, remembered ports, 0 or 1 (1)."""

    name = "drill"

    def rules(self, workload: Workload, fabric: Fabric, seed: int) -> Rules:
        self.known("samples", "memory")
        samples, memory = self.whole("samples", 2, 1, 64), self.whole("memory", 1, 0, 1)
        remembered = np.full(max(1, len(fabric.forwarding.group_links)), -1, np.int64)
        state = state_of([seed, samples, memory], remembered)
        parameters = {"samples": str(samples), "memory": str(memory)}
        return Rules(_choose_drill(), no_label(), state, reads_queues=True, parameters=parameters)


@chooser
def _choose_drill(state: Ints, links: Ints, at: Choice) -> Int:
    """State: seed, samples, memory; position that was best last, by group."""
    what = at.packet & np.int64(WITHOUT_FLAGS)
    chosen = drawn(state[0], SWITCH_PORT, what, at.switch, at.size)
    shortest = queued_bytes(links, nth_link(at, chosen), at.time)
    for i in range(1, state[1]):
        where = (at.switch << np.int64(8)) | i
        other = drawn(state[0], _MORE, what, where, at.size)
        queued = queued_bytes(links, nth_link(at, other), at.time)
        if queued < shortest:
            chosen, shortest = other, queued
    kept = state[3] + at.first % (len(state) - state[3])
    if state[2] and 0 <= state[kept] < at.size:
        if queued_bytes(links, nth_link(at, state[kept]), at.time) < shortest:
            chosen = state[kept]
    state[kept] = chosen
    return chosen
