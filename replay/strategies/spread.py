"""Switches that spread packets without looking at queues: at random, in turn."""

from __future__ import annotations

import numpy as np

from ...kernels.kernel import Int, Ints
from ..fabrics.fabric import Fabric
from ..packets.model.draws import SHUFFLE, SWITCH_PORT, drawn
from ..packets.model.model import ACK, Workload
from ..packets.model.rules import Choice, Rules, Strategy, chooser, no_label
from .base import WITHOUT_FLAGS, Configured, shuffled, state_of

# Every switch sends every packet over a random equal-cost link.
#
# Source: RSQ in the theory part of "Load Balancing for AI Training Workloads" (arXiv 2507.21372);
# Dixit et al., "On the Impact of Packet Spraying in Data Center Networks", INFOCOM 2013.


class SwitchRandom(Configured, Strategy):
    """No options."""

    name = "switch-random"

    def rules(self, workload: Workload, fabric: Fabric, seed: int) -> Rules:
        self.known()
        return Rules(_choose(), no_label(), state_of([seed]))


@chooser
def _choose(state: Ints, links: Ints, at: Choice) -> Int:
    return drawn(state[0], SWITCH_PORT, at.packet & np.int64(WITHOUT_FLAGS), at.switch, at.size)


# Every switch sends its packets over its equal-cost links in turn.
#
# A pointer per group of links. Source: "Load Balancing for AI Training Workloads" (arXiv
# 2507.21372): "Simple RR" never changes the order of the ports, "Switch Pkt" shuffles it
# every 5 rounds. The option for a separate pointer of ACKs is not from the paper.

RESHUFFLE_ROUNDS = 5


class SwitchRoundRobin(Configured, Strategy):
    """Options: `reshuffle`, rounds until the order is shuffled again, 0 for never (5);
    `acks`, `shared` or `own` pointer (shared)."""

    name = "switch-rr"

    def rules(self, workload: Workload, fabric: Fabric, seed: int) -> Rules:
        self.known("reshuffle", "acks")
        rounds = self.whole("reshuffle", RESHUFFLE_ROUNDS, 0, 1 << 20)
        acks = self.word("acks", "shared", "own")
        start = fabric.forwarding.group_start
        total = len(fabric.forwarding.group_links)
        sizes = np.diff(start)
        first = start[:-1]
        order = np.stack([shuffled(sizes, seed, first | k << 32)[1] for k in (0, 1)])
        zeros = np.zeros((2, total), np.int64)
        state = state_of([seed, rounds, int(acks == "own"), total], order, zeros, zeros)
        parameters = {"reshuffle": str(rounds), "acks": acks}
        return Rules(_choose_switch_rr(), no_label(), state, parameters=parameters)


@chooser
def _choose_switch_rr(state: Ints, links: Ints, at: Choice) -> Int:
    """State: seed, rounds, whether ACKs have a pointer, members; by kind: order, packets sent,
    shuffles."""
    kind = np.int64(1) if at.packet & np.int64(ACK) and state[2] else np.int64(0)
    pointer = kind * state[3] + at.first
    order, sent = state[4] + pointer, state[5] + pointer
    turn = state[sent]
    position = state[order + turn]
    turn += 1
    if turn == at.size:
        turn = np.int64(0)
        # A group has at least two members: the place of the second holds the rounds.
        state[sent + 1] += 1
        if state[1] > 0 and state[sent + 1] == state[1]:
            state[sent + 1] = 0
            shuffles = state[6] + pointer
            state[shuffles] += 1
            for i in range(at.size - 1, 0, -1):
                what = at.first | (kind << np.int64(32))
                j = drawn(state[0], SHUFFLE, what, state[shuffles] * 65536 + i, i + 1)
                other = state[order + i]
                state[order + i] = state[order + j]
                state[order + j] = other
    state[sent] = turn
    return position
