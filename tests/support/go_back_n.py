"""A go-back-N connection in plain Python, with taps on its path: an oracle for the rules.

Time goes in steps of 1 us. Packets and answers take some steps; each may get lost before or
behind the tap. The sender and the receiver do what the InfiniBand specification asks of them,
or break one rule on purpose.
"""

from __future__ import annotations

import random
from collections import deque

from conformance_traces import ACK, NAK, answer, last, write
from traffic import WRITE_FIRST, WRITE_ONLY

DELAY = 20
TIMEOUT = 3000
MESSAGE = 8
"""Packets of a message, unless the connection says otherwise."""


class Connection:
    """One sender, one receiver, a tap halfway; `run` gives what the tap saw.

    The first transmissions numbered in `lost_first` never reach the tap.
    """

    message = MESSAGE
    outstanding = 32

    def __init__(
        self, seed, first, packets, loss_before, loss_behind, ack_loss, fault="", lost_first=()
    ):
        self.random = random.Random(seed)
        self.first, self.packets = first, packets
        self.loss_before, self.loss_behind, self.ack_loss = loss_before, loss_behind, ack_loss
        self.fault, self.lost_first = fault, lost_first
        self.rows = []
        self.to_tap, self.to_receiver = deque(), deque()
        self.from_receiver, self.to_sender = deque(), deque()
        self.next = self.unacked = 0  # of the sender
        self.progress = 0  # when it last heard something new
        self.expected, self.nak_sent, self.messages = 0, False, 0  # of the receiver
        self.ip_id, self.answer_id, self.now = 0, 1000, 0
        self.naks, self.rewinds = 0, 0
        self.seen, self.sent_unseen, self.had_already = set(), set(), 0

    def run(self):
        """Rows at the tap until everything is acknowledged."""
        while self.unacked < self.packets:
            self.now += 1
            self._deliver(self.to_tap, self._at_tap)
            self._deliver(self.to_receiver, self._receive)
            self._deliver(self.from_receiver, self._answer_at_tap)
            self._deliver(self.to_sender, self._hear)
            self._send()
            assert self.now < 2_000_000
        return self.rows

    def _deliver(self, line, take):
        while line and line[0][0] <= self.now:
            take(line.popleft()[1])

    def _lost(self, chance):
        return self.random.random() < chance

    def _send(self):
        if self.now - self.progress > TIMEOUT and self.next > self.unacked:
            self._go_back(self.unacked)
        if self.next < self.packets and self.next - self.unacked < self.outstanding:
            self.ip_id += 1
            lost = self.ip_id in self.lost_first
            # Without `lost_first` the tap sees the first.
            if not lost and (self.ip_id == 1 or not self._lost(self.loss_before)):
                self.to_tap.append((self.now + DELAY, (self.next, self.ip_id)))
            elif self.next not in self.seen:
                self.sent_unseen.add(self.next)
            self.next += 1

    def _go_back(self, index):
        self.rewinds += 1
        self.next, self.progress = index, self.now

    def _at_tap(self, packet):
        index, ip_id = packet
        self.seen.add(index)
        make = last if self._ends(index) else write
        opcode = {} if index % self.message else {"opcode": WRITE_FIRST}
        if self.message == 1:
            opcode = {"opcode": WRITE_ONLY}
        psn = (self.first + index) & 0xFFFFFF
        self.rows.append(make(psn, at=self.now, ip_id=ip_id & 0xFFFF, **opcode))
        if not self._lost(self.loss_behind):
            self.to_receiver.append((self.now + DELAY, index))

    def _ends(self, index):
        return index % self.message == self.message - 1

    def _receive(self, index):
        ends = self._ends(index)
        if index == self.expected:
            self.expected += 1
            self.nak_sent = False
            self.messages += ends
            if ends:
                self._answer(index, ACK)
        elif index < self.expected:
            self.had_already += 1
            if ends:
                self._answer(self.expected - 1, ACK)
        elif not self.nak_sent or self.fault == "repeats NAKs":
            self.nak_sent = True
            self._answer(self.expected, NAK)

    def _answer(self, index, syndrome):
        self.answer_id += 1
        self.naks += syndrome == NAK
        one = (index, syndrome, self.messages, self.answer_id)
        self.from_receiver.append((self.now + DELAY, one))

    def _answer_at_tap(self, one):
        index, syndrome, messages, ip_id = one
        psn = (self.first + index) & 0xFFFFFF
        self.rows.append(answer(psn, syndrome, messages, at=self.now, ip_id=ip_id & 0xFFFF))
        if not self._lost(self.ack_loss):
            self.to_sender.append((self.now + DELAY, one))

    def _hear(self, one):
        index, syndrome, _, _ = one
        through = index if syndrome == NAK else index + 1
        if through > self.unacked:
            self.unacked, self.progress = through, self.now
            self.next = max(self.next, through)
        if syndrome == NAK and through >= self.unacked and self.next > through:
            self._go_back(through + (self.fault == "starts behind the NAK"))
