"""PFC as a plain event simulator, which checks its own bookkeeping after every event."""

from __future__ import annotations

import heapq
from collections import Counter, deque
from types import SimpleNamespace
from typing import Any

import numpy as np
from packet_twin import ACK, TRIMMED, Twin

from rocescope.replay.fabrics.fabric import Fabric
from rocescope.replay.packets.model.model import Model, Workload

FRAME = 3


class PfcTwin(Twin):
    """Links of switches are handled in their order at an instant, each link: first the pause frames
    that its sender obeys, then its next packet, then the packet that arrives over it."""

    def __init__(self, load: Workload, fabric: Fabric, model: Model, name: str, seed: int) -> None:
        super().__init__(load, fabric, model, name, seed)
        assert model.pfc is not None
        self.pfc = model.pfc
        self.source, self.target = fabric.links.source.tolist(), fabric.links.target.tolist()
        self.rate = fabric.links.rate_bits_per_second.tolist()
        self.delay = (1000 * fabric.links.delay_ns).tolist()
        self.packet = int(max(load.packet_bytes.max(), load.last_bytes.max()))
        self.classes = model.classes
        self.k = len(self.classes)
        self.buffers = [
            SimpleNamespace(
                shared=0, headroom=0, asked=False, paused=False, frames=[], pauses=0, since=0,
                total=0, longest=0, most=0, lost=0, sent=0, storm=-1, expires=None, repeat=None,
                room=self.room(link) if one.lossless else 0,
            )
            for link in range(len(self.links)) for one in self.classes
        ]  # fmt: skip
        """By link and class."""
        least = min((one.weight for one in self.classes if one.weight), default=1)
        self.quantum = [-(-self.packet * one.weight // least) for one in self.classes]
        self.saved = [[0] * self.k for _ in self.links]
        self.turn, self.credited = [0] * len(self.links), [False] * len(self.links)
        self.used: list[set[int]] = [set() for _ in self.links]
        self.waited: list[set[int]] = [set() for _ in self.links]
        self.size, self.pool = [], [0] * fabric.switches
        for switch in range(fabric.switches):
            ports = [link for link, node in enumerate(self.target) if node == switch]
            total = self.pfc.shared_bytes
            if total is None:
                total = int(sum(self.rate[link] for link in ports) / 1e9 * 3200)
            rooms = (self.own(link, of).room for link in ports for of in range(self.k))
            self.size.append(total - sum(rooms))

    def own(self, link: int, of: int) -> Any:
        return self.buffers[link * self.k + of]

    def back(self, link: int) -> int:
        """The link of the same cable in the other direction."""
        count = range(len(self.links))
        ends = self.source[link], self.target[link]
        there = [x for x in count if (self.source[x], self.target[x]) == ends]
        both = [x for x in count if (self.target[x], self.source[x]) == ends]
        return both[there.index(link)]

    def room(self, link: int) -> int:
        if self.target[link] >= self.fabric.switches:
            return 0
        if self.pfc.headroom_bytes is not None:
            return self.pfc.headroom_bytes
        back = self.back(link)
        flight = 2 * max(self.delay[link], self.delay[back]) + self.pfc.reaction_ps
        slower = max(0.0, self.rate[link] / self.rate[back] - 1)
        sent = flight * self.rate[link] / 8e12 + slower * (self.packet + 64)
        return int(4 * self.packet + 64 + sent) + 1

    def push(self, time: int, kind: int, number: int, packet: Any = None) -> None:
        self.serial += 1
        rank, order = 2, 3 * number + kind % FRAME
        if kind == 0:
            rank, order = 0, self.serial
        elif kind == 1 and self.source[number] >= self.fabric.switches:
            rank = 1
        heapq.heappush(self.heap, (time, rank, order, self.serial, kind, number, packet))

    def run(self) -> None:
        handlers = (self.release, self.serve, self.arrive, self.obey)
        for m in np.flatnonzero(self.load.after < 0).tolist():
            self.push(int(self.load.release_ps[m]), 0, m)
        while self.heap and self.open:
            time, _, _, _, kind, number, packet = heapq.heappop(self.heap)
            handlers[kind](number, time, packet)
            self.check()

    def check(self) -> None:
        """Every byte that waits in a switch is in the buffer of the port and class by which it
        came, and no buffer is overfull."""
        waiting: Counter[int] = Counter()
        for here in self.links:
            for packet in here.data:
                if packet.came_by >= 0:
                    waiting[packet.came_by * self.k + packet.of] += packet.size
        used = [0] * self.fabric.switches
        for row, own in enumerate(self.buffers):
            link, of = divmod(row, self.k)
            assert own.shared + own.headroom == waiting[row]
            assert 0 <= own.headroom <= own.room and own.shared >= 0
            assert own.asked or not own.headroom
            assert waiting[row] or not own.asked  # what waits ends the pause when it leaves
            assert self.classes[of].lossless or not own.asked
            if self.target[link] < self.fabric.switches:
                used[self.target[link]] += own.shared
        assert used == self.pool
        assert all(have <= most for have, most in zip(used, self.size, strict=True))

    def limit(self, link: int, of: int) -> int:
        """Threshold of a class at the switch at the end of a link."""
        one = self.classes[of]
        alpha = self.pfc.alpha if one.alpha is None else one.alpha
        if one.xoff_bytes is not None:
            return one.xoff_bytes
        if one.alpha is None and self.pfc.xoff_bytes is not None:
            return self.pfc.xoff_bytes
        return round(alpha * 2**20) * self.free(link) >> 20

    def free(self, link: int) -> int:
        switch = self.target[link]
        return self.size[switch] - self.pool[switch]

    def held(self, link: int, time: int, of: int) -> bool:
        own = self.own(link, of)
        return own.paused or any(due <= time for due, _ in own.frames)

    def next_data(self, link: int, time: int) -> Any:
        first: dict[int, Any] = {}
        for packet in self.links[link].data:
            if not self.held(link, time, packet.of):
                first.setdefault(packet.of, packet)
        of = self.next_class(link, {of: packet.size for of, packet in first.items()})
        return None if of is None else first[of]

    def next_flow(self, link: int, ring: deque[int], time: int) -> int | None:
        first: dict[int, int] = {}
        for flow in ring:
            if not self.held(link, time, self.class_of(flow)):
                first.setdefault(self.class_of(flow), flow)
        of = self.next_class(link, dict.fromkeys(first, 1))
        return None if of is None else first[of]

    def next_class(self, link: int, needs: dict[int, int]) -> int | None:
        """Strict classes first, then deficit round robin; needs: bytes that a class must have."""
        strict = [of for of in needs if not self.quantum[of]]
        if strict or not needs:
            return min(strict, default=None)
        saved = self.saved[link]
        while True:
            of = self.turn[link]
            if of in needs:
                if not self.credited[link]:
                    saved[of] += self.quantum[of]
                self.credited[link] = True
                if saved[of] >= needs[of]:
                    return of
            self.turn[link], self.credited[link] = (of + 1) % self.k, False

    def has_sent(self, link: int, of: int, size: int, more: bool) -> None:
        if self.quantum[of]:
            self.saved[link][of] -= size
            if not more:
                self.saved[link][of] = min(0, self.saved[link][of])
                self.turn[link], self.credited[link] = (of + 1) % self.k, False

    def arrive(self, came_by: int, time: int, packet: Any) -> None:
        packet.came_by = came_by
        super().arrive(came_by, time, packet)

    def enqueue(self, link: int, packet: Any, time: int) -> None:
        if self.source[link] >= self.fabric.switches:
            packet.came_by = -1
            super().enqueue(link, packet, time)
            return
        self.serve(link, time, None)
        if not packet.key & (ACK | TRIMMED):
            self.used[link].add(self.flow(packet))
        at_once = self.links[link].free <= time and not self.held(link, time, packet.of)
        if packet.key & (ACK | TRIMMED) or at_once:
            packet.came_by = -1
        elif not self.admit(link, packet, time):
            self.drops[link] += 1
            return
        super().enqueue(link, packet, time)

    def admit(self, out: int, packet: Any, time: int) -> bool:
        link, size = packet.came_by, packet.size
        own, one = self.own(link, packet.of), self.classes[packet.of]
        if not one.lossless:
            queued = sum(p.size for p in self.links[out].data if p.of == packet.of)
            fits = size <= self.free(link) and queued + size <= self.limit(link, packet.of)
        else:
            fits = size <= self.free(link) and own.shared + size <= self.limit(link, packet.of)
        if fits:
            own.shared += size
            self.pool[self.target[link]] += size
            return True
        if not one.lossless:
            return False
        fits = own.headroom + size <= own.room
        if fits:
            own.headroom += size
            own.most = max(own.most, own.headroom)
        else:
            own.lost += 1
        if not own.asked and own.headroom + own.shared:
            own.asked = True
            self.frame(link, packet.of, time)
        return fits

    def left(self, packet: Any, time: int) -> None:
        link = packet.came_by
        if link < 0:
            return
        own = self.own(link, packet.of)
        part = min(own.headroom, packet.size)
        own.headroom -= part
        own.shared -= packet.size - part
        self.pool[self.target[link]] -= packet.size - part
        xon = self.packet if self.pfc.xon_bytes is None else self.pfc.xon_bytes
        limit = min(self.limit(link, packet.of), own.shared + self.free(link))
        if own.asked and own.headroom == 0 and (own.shared == 0 or own.shared + xon <= limit):
            own.asked = False
            self.frame(link, packet.of, time)

    def quanta_ps(self, link: int) -> int:
        assert self.pfc.quanta is not None
        return self.took(link, 64 * self.pfc.quanta)

    def frame(self, link: int, of: int, time: int) -> None:
        back, own = self.back(link), self.own(link, of)
        due = max(time, self.links[back].free) + self.took(back, 64) + self.delay[back]
        due += self.pfc.reaction_ps
        own.frames.append((due, own.asked))
        own.sent += own.asked
        own.repeat = None
        if own.asked and self.pfc.quanta is not None:
            own.repeat = time + max(1, self.quanta_ps(link) // 2)
            self.push(own.repeat, FRAME, link)
        self.push(due, FRAME, link)

    def flow(self, packet: Any) -> int:
        return int(self.load.flow[(packet.key & ACK - 1) >> 28])

    def wait(self, link: int, of: int) -> None:
        self.waited[link] |= {self.flow(p) for p in self.links[link].data if p.of == of}

    def victims(self, causes: list[int]) -> list[int]:
        """By link, of which its sender is a switch: flows that waited there for the end of a pause,
        also of one that lasts, and never used a cause."""
        users = {flow for link in causes for flow in self.used[link]}
        for row, own in enumerate(self.buffers):
            if own.paused:
                self.wait(*divmod(row, self.k))
        return [len(flows - users) for flows in self.waited]

    def obey(self, link: int, time: int, _: Any) -> None:
        for of in range(self.k):
            own = self.own(link, of)
            while own.frames and own.frames[0][0] <= time:
                _, pause = own.frames.pop(0)
                if not pause:
                    self.resume(link, of, time)
                    continue
                if not own.paused:
                    own.pauses, own.since, own.paused = own.pauses + 1, time, True
                if self.pfc.quanta is not None:
                    own.expires = time + self.quanta_ps(link)
                    self.push(own.expires, FRAME, link)
            if own.expires is not None and own.expires <= time:
                self.resume(link, of, time)
            if own.repeat is not None and own.repeat <= time:
                self.frame(link, of, time)
        self.serve(link, time, None)

    def resume(self, link: int, of: int, time: int) -> None:
        own = self.own(link, of)
        own.expires = None
        if own.paused:
            length = time - own.since
            own.total, own.longest = own.total + length, max(own.longest, length)
            if length >= self.pfc.storm_ps and own.storm < 0:
                own.storm = own.since + self.pfc.storm_ps
            self.wait(link, of)
            own.paused, own.since = False, time

    def choose(self, switch: int, members: list[int], packet: Any, time: int) -> int:
        if self.name == "jsq":  # it sees queues after the departures of this instant
            for link in members:
                self.serve(link, time, None)
        return super().choose(switch, members, packet, time)
