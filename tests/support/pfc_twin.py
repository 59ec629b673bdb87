"""PFC as a plain event simulator, which checks its own bookkeeping after every event."""

from __future__ import annotations

import heapq
from collections import Counter
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
        self.buffers = [
            SimpleNamespace(
                shared=0, headroom=0, asked=False, paused=False, frames=[], pauses=0, since=0,
                total=0, longest=0, most=0, lost=0, room=self.room(link),
            )
            for link in range(len(self.links))
        ]  # fmt: skip
        self.used: list[set[int]] = [set() for _ in self.links]
        self.waited: list[set[int]] = [set() for _ in self.links]
        self.size, self.pool = [], [0] * fabric.switches
        for switch in range(fabric.switches):
            ports = [link for link, node in enumerate(self.target) if node == switch]
            total = self.pfc.shared_bytes
            if total is None:
                total = int(sum(self.rate[link] for link in ports) / 1e9 * 3200)
            self.size.append(total - sum(self.buffers[link].room for link in ports))

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
        """Every byte that waits in a switch is in the buffer of the port by which it came, and no
        buffer is overfull."""
        waiting: Counter[int] = Counter()
        for here in self.links:
            for packet in here.data:
                if packet.came_by >= 0:
                    waiting[packet.came_by] += packet.size
        used = [0] * self.fabric.switches
        for link, own in enumerate(self.buffers):
            assert own.shared + own.headroom == waiting[link]
            assert 0 <= own.headroom <= own.room and own.shared >= 0
            assert own.asked or not own.headroom
            assert waiting[link] or not own.asked  # what waits ends the pause when it leaves
            if self.target[link] < self.fabric.switches:
                used[self.target[link]] += own.shared
        assert used == self.pool
        assert all(have <= most for have, most in zip(used, self.size, strict=True))

    def limit(self, link: int) -> int:
        switch = self.target[link]
        free = self.size[switch] - self.pool[switch]
        limit = self.pfc.xoff_bytes
        if limit is None:
            limit = round(self.pfc.alpha * 2**20) * free >> 20
        return min(limit, self.buffers[link].shared + free)

    def held(self, link: int, time: int) -> bool:
        own = self.buffers[link]
        return own.paused or any(due <= time for due, _ in own.frames)

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
        at_once = self.links[link].free <= time and not self.held(link, time)
        if packet.key & (ACK | TRIMMED) or at_once:
            packet.came_by = -1
        elif not self.admit(packet, time):
            self.drops[link] += 1
            return
        super().enqueue(link, packet, time)

    def admit(self, packet: Any, time: int) -> bool:
        link = packet.came_by
        own = self.buffers[link]
        if own.shared + packet.size <= self.limit(link):
            own.shared += packet.size
            self.pool[self.target[link]] += packet.size
            return True
        fits = own.headroom + packet.size <= own.room
        if fits:
            own.headroom += packet.size
            own.most = max(own.most, own.headroom)
        else:
            own.lost += 1
        if not own.asked and own.headroom + own.shared:
            own.asked = True
            self.frame(link, time)
        return fits

    def left(self, packet: Any, time: int) -> None:
        link = packet.came_by
        if link < 0:
            return
        own = self.buffers[link]
        part = min(own.headroom, packet.size)
        own.headroom -= part
        own.shared -= packet.size - part
        self.pool[self.target[link]] -= packet.size - part
        xon = self.packet if self.pfc.xon_bytes is None else self.pfc.xon_bytes
        low = own.shared == 0 or own.shared + xon <= self.limit(link)
        if own.asked and own.headroom == 0 and low:
            own.asked = False
            self.frame(link, time)

    def frame(self, link: int, time: int) -> None:
        back = self.back(link)
        due = max(time, self.links[back].free) + self.took(back, 64) + self.delay[back]
        due += self.pfc.reaction_ps
        self.buffers[link].frames.append((due, self.buffers[link].asked))
        self.push(due, FRAME, link)

    def flow(self, packet: Any) -> int:
        return int(self.load.flow[(packet.key & ACK - 1) >> 28])

    def wait(self, link: int) -> None:
        self.waited[link] |= {self.flow(packet) for packet in self.links[link].data}

    def victims(self, causes: list[int]) -> list[int]:
        """By link, of which its sender is a switch: flows that waited there for the end of a pause,
        also of one that lasts, and never used a cause."""
        users = {flow for link in causes for flow in self.used[link]}
        for link, own in enumerate(self.buffers):
            if own.paused:
                self.wait(link)
        return [len(flows - users) for flows in self.waited]

    def obey(self, link: int, time: int, _: Any) -> None:
        own = self.buffers[link]
        while own.frames and own.frames[0][0] <= time:
            _, own.paused = own.frames.pop(0)
            if own.paused:
                own.pauses += 1
            else:
                own.total += time - own.since
                own.longest = max(own.longest, time - own.since)
                self.wait(link)
            own.since = time
        self.serve(link, time, None)

    def choose(self, switch: int, members: list[int], packet: Any, time: int) -> int:
        if self.name == "jsq":  # it sees queues after the departures of this instant
            for link in members:
                self.serve(link, time, None)
        return super().choose(switch, members, packet, time)
