"""A plain event simulator of the packet engine: packets are objects, events are on a heap."""

from __future__ import annotations

import heapq
from collections import deque
from types import SimpleNamespace
from typing import Any

import numpy as np

from rocescope.replay.fabrics.fabric import Fabric
from rocescope.replay.packets.model.arrays import fabric_arrays, ports_in_turn
from rocescope.replay.packets.model.model import Model, Workload
from rocescope.replay.strategies.base import WITHOUT_FLAGS

ACK, MARKED, TRIMMED = 1 << 56, 1 << 57, 1 << 58
_64 = (1 << 64) - 1


def _mixed(x: int) -> int:
    x = (x + 0x9E3779B97F4A7C15) & _64
    x = ((x ^ x >> 30) * 0xBF58476D1CE4E5B9) & _64
    x = ((x ^ x >> 27) * 0x94D049BB133111EB) & _64
    return x ^ x >> 31


def drawn(seed: int, purpose: int, what: int, number: int) -> int:
    """Upper 32 bits."""
    return _mixed(_mixed(_mixed(seed ^ purpose << 56) ^ what) ^ number) >> 32


class Twin:
    """Packets as objects, events on a heap: (time, 0) release, (time, 1) link free, (time, 2)
    arrival by link. See replay/packets/model/model.py for the rules."""

    def __init__(self, load: Workload, fabric: Fabric, model: Model, name: str, seed: int) -> None:
        self.load, self.fabric, self.model, self.name, self.seed = load, fabric, model, name, seed
        count = len(fabric.links.source)
        self.links = [
            SimpleNamespace(
                free=0, acks=deque(), data=deque(), served=0, bytes=0, packets=0, rivals=0
            )
            for _ in range(count)
        ]
        self.most, self.drops, self.trims, self.marks = (np.zeros(count, int) for _ in range(4))
        self.arrays = fabric_arrays(fabric)
        self.heap: list[Any] = []
        self.serial = 0
        self.ring: dict[int, deque[int]] = {link: deque() for link in range(count)}
        m = len(load.flow)
        self.ready, self.sent, self.got, self.unacked, self.acked = ([0] * m for _ in range(5))
        self.started, self.received, self.completed = ([-1] * m for _ in range(3))
        self.arrived = [-1] * int(load.packet_start[-1])
        self.cursor = load.flow_start[:-1].tolist()
        self.computed = [-1] * len(load.waits.host)
        self.open = m + len(self.computed)
        self.missing = [self.predecessors(node) for node in range(self.open)]
        self.port = ports_in_turn(self.arrays, load.src, load.dst).tolist()

    def run(self) -> None:
        load, base = self.load, 0
        for phase in range(int(load.phase.max()) + 1):
            rows = np.flatnonzero((load.phase == phase) & (load.after < 0)).tolist()
            if phase == 0:
                rows += [len(load.flow) + c for c in range(len(self.computed))]
            rows = [node for node in rows if not self.missing[node]]
            for node in sorted(rows, key=lambda node: (self.takes(node), node)):
                if node >= len(load.flow) or self.port[load.flow[node]] >= 0:
                    self.push(base + self.takes(node), 0, node)
            while self.heap and self.open:
                time, kind, _, _, number, packet = heapq.heappop(self.heap)
                (self.release, self.serve, self.arrive)[kind](number, time, packet)
            done = [self.completed[m] for m in np.flatnonzero(load.phase == phase)]
            done += self.computed
            if min(done, default=0) < 0:
                return
            base = max(done, default=base)

    def push(self, time: int, kind: int, number: int, packet: Any = None) -> None:
        self.serial += 1
        order = number if kind else self.serial  # releases of an instant in the order of pushing
        heapq.heappush(self.heap, (time, kind, order, self.serial, number, packet))

    def ports(self, flow: int) -> list[int]:
        """Access links a flow may use; the first one's ring is the shared one."""
        own = [int(x) for x in self.arrays.access[self.load.src[flow]] if x >= 0]
        if self.name == "host-spray":
            return own
        return [int(self.arrays.access[self.load.src[flow], self.port[flow]])]

    def predecessors(self, node: int) -> set[tuple[int, int]]:
        load, waits = self.load, self.load.waits
        found = {
            (int(waits.after[i]), int(waits.on[i])) for i in np.flatnonzero(waits.node == node)
        }
        if node < len(load.flow) and load.after[node] >= 0:
            found.add((int(load.after[node]), int(load.on[node])))
        return found

    def takes(self, node: int) -> int:
        m = len(self.load.flow)
        return int(self.load.release_ps[node] if node < m else self.load.waits.takes_ps[node - m])

    def release(self, m: int, time: int, _: Any) -> None:
        if m >= len(self.load.flow):
            self.computed[m - len(self.load.flow)] = time
            self.open -= 1
            self.follow(m, 0, time)
            return
        self.ready[m] = 1
        flow = int(self.load.flow[m])
        if self.cursor[flow] == m:
            self.ring[self.ports(flow)[0]].append(flow)
            for link in self.ports(flow):
                self.push(time, 1, link)

    def took(self, link: int, size: int, gap: bool = False) -> int:
        rate = int(self.fabric.links.rate_bits_per_second[link])
        q20 = int(np.rint(8e12 * (1 << 20) / rate))
        return ((size + (self.model.gap_bytes if gap else 0)) * q20 + (1 << 19)) >> 20

    def start(self, link: int, packet: Any, time: int) -> None:
        here = self.links[link]
        here.free, here.served = time + self.took(link, packet.size, True), packet.size
        here.bytes += packet.size
        here.packets += 1
        self.push(here.free, 1, link)
        delay = int(self.fabric.links.delay_ns[link]) * 1000
        passed = min(packet.size, self.header(link))
        self.push(time + self.took(link, passed) + delay, 2, link, packet)

    def header(self, link: int) -> int:
        """Bytes after which the node at the end of a link forwards a packet."""
        links = self.fabric.links
        end = int(links.target[link])
        slower = links.rate_bits_per_second[links.source == end] <= links.rate_bits_per_second[link]
        through = self.model.cut_through and end < self.fabric.switches and slower.all()
        return max(64, self.model.header_bytes) if through else 1 << 20

    def serve(self, link: int, time: int, _: Any) -> None:
        here = self.links[link]
        if here.free > time:
            return
        if here.acks:
            self.start(link, here.acks.popleft(), time)
        elif here.data:
            packet = self.next_data(link, time)
            if packet is not None:
                self.mark(link, packet, sum(p.size for p in here.data if p.of == packet.of))
                self.left(packet, time)
                here.data.remove(packet)
                self.start(link, packet, time)
                self.has_sent(
                    link, packet.of, packet.size, any(p.of == packet.of for p in here.data)
                )
        elif self.fabric.links.source[link] >= self.fabric.switches:
            self.pull(link, time)

    def mark(self, link: int, packet: Any, queued: int) -> None:
        low, high = self.model.ecn_low_bytes, self.model.ecn_high_bytes
        if low is None or high is None or queued <= low:
            return
        if self.fabric.links.target[link] >= self.fabric.switches and not self.model.ecn_last_hop:
            return
        share = drawn(self.seed, 4, packet.key & (MARKED - 1), link) >> 8
        most = round(self.model.ecn_most * (1 << 24))
        if queued > high or share * (high - low) < (queued - low) * most:
            packet.key |= MARKED
            self.marks[link] += 1

    def next_data(self, link: int, time: int) -> Any:
        """The data packet that is next, None if all wait for the end of a pause."""
        return self.links[link].data[0]

    def next_flow(self, link: int, ring: deque[int], time: int) -> int | None:
        """The flow whose packet a host sends next."""
        return ring[0]

    def has_sent(self, link: int, of: int, size: int, more: bool) -> None:
        """A packet of a class has left a queue or a ring, which has more of them."""

    def held(self, link: int, time: int, of: int) -> bool:
        """Whether data of a class waits at a link for the end of a pause."""
        return False

    def left(self, packet: Any, time: int) -> None:
        """A waiting data packet is about to be transmitted."""

    def pull(self, link: int, time: int) -> None:
        host = int(self.fabric.links.source[link]) - self.fabric.switches
        access = [int(x) for x in self.arrays.access[host] if x >= 0]
        ring = self.ring[access[0] if self.name == "host-spray" else link]
        flow = self.next_flow(link, ring, time) if ring else None
        if flow is None:
            return
        ring.remove(flow)
        m = self.cursor[flow]
        n = self.sent[m]
        if n == 0:
            self.started[m] = time
        self.sent[m] += 1
        last = n + 1 == self.load.packets[m]
        size = int((self.load.last_bytes if last else self.load.packet_bytes)[m])
        if last:
            self.cursor[flow] += 1
            if m + 1 < self.load.flow_start[flow + 1] and self.ready[m + 1]:
                ring.append(flow)
        else:
            ring.append(flow)
        packet = SimpleNamespace(key=m << 28 | n, size=size, dst=int(self.load.dst[flow]), acks=0)
        packet.of = self.class_of(flow)
        packet.label = self.label(packet.key)
        self.start(link, packet, time)
        self.has_sent(link, packet.of, size, any(self.class_of(f) == packet.of for f in ring))
        if self.model.host_jitter:
            most = (self.took(link, size) * round(self.model.host_jitter * 2**20) >> 20) + 1
            self.links[link].free += drawn(self.seed, 7, packet.key, time) * most >> 32
            self.push(self.links[link].free, 1, link)

    def class_of(self, flow: int) -> int:
        return int(self.load.priority[flow]) if len(self.load.priority) else 0

    def label(self, key: int) -> int:
        return drawn(self.seed, 2, key & WITHOUT_FLAGS, 0) * 5 >> 32

    def enqueue(self, link: int, packet: Any, time: int) -> None:
        here, model = self.links[link], self.model
        first = bool(packet.key & (ACK | TRIMMED))
        if here.free <= time and (first or not self.held(link, time, packet.of)):
            if not first:
                self.mark(link, packet, packet.size)
            self.most[link] = max(self.most[link], 1)
            self.start(link, packet, time)
            return
        buffer = 1 << 60 if model.buffer_bytes is None else model.buffer_bytes
        if not first and sum(p.size for p in here.data) + packet.size + here.served > buffer:
            if model.drop == "random" and here.data:
                here.rivals += 1
                last = here.data[-1]
                fits = sum(p.size for p in here.data) - last.size + packet.size + here.served
                what = packet.key & MARKED - 1
                drawn_first = drawn(self.seed, 8, what, here.packets) * here.rivals >> 32 == 0
                if fits <= buffer and drawn_first:
                    here.data[-1], packet = packet, last
            if model.trim_bytes is None:
                self.drops[link] += 1
                return
            self.trims[link] += 1
            packet.key |= TRIMMED
            packet.size = model.trim_bytes
            first = True
        if first and sum(p.size for p in here.acks) + packet.size > buffer:
            self.drops[link] += 1
            return
        (here.acks if first else here.data).append(packet)
        here.rivals = here.rivals if first else 1
        busy = here.free > time
        self.most[link] = max(self.most[link], len(here.acks) + len(here.data) + busy)

    def choose(self, switch: int, members: list[int], packet: Any, time: int) -> int:
        key, n = packet.key & WITHOUT_FLAGS, len(members)
        if self.name == "switch-random":
            return drawn(self.seed, 1, key, switch) * n >> 32
        if self.name == "host-spray":
            flow = int(self.load.flow[(key & ACK - 1) >> 28]) | (1 << 30 if key & ACK else 0)
            return drawn(self.seed, 1, flow << 32 | packet.label, switch) * n >> 32
        queued = []
        for link in members:
            here = self.links[link]
            waiting = sum(p.size for p in (*here.acks, *here.data))
            queued.append(waiting + (here.served if here.free > time else 0))
        best = [i for i in range(n) if queued[i] == min(queued)]
        return best[drawn(self.seed, 3, key, switch) * len(best) >> 32]

    def arrive(self, came_by: int, time: int, packet: Any) -> None:
        node = int(self.fabric.links.target[came_by])
        if node >= self.fabric.switches:
            self.receive(came_by, time, packet)
            return
        at = self.fabric.attachments
        out = at.exit_link[packet.dst][at.switch[packet.dst] == node]
        if len(out):
            self.enqueue(int(out[0]), packet, time)
            return
        members = self.fabric.group(node, int(at.edge[packet.dst]))[0].tolist()
        if members:
            position = self.choose(node, members, packet, time) if len(members) > 1 else 0
            self.enqueue(members[position], packet, time)

    def receive(self, came_by: int, time: int, packet: Any) -> None:
        m, n = (packet.key & ACK - 1) >> 28, packet.key & (1 << 28) - 1
        if packet.key & ACK:
            self.acked[m] += packet.acks
            if self.acked[m] == self.load.packets[m]:
                self.completed[m] = time
                self.open -= 1
                self.follow(m, 0, time)
            return
        at = int(self.load.packet_start[m]) + n
        self.arrived[at] = time if self.arrived[at] < 0 else self.arrived[at]
        if packet.key & TRIMMED:
            return
        self.got[m] += 1
        self.unacked[m] += 1
        whole = self.got[m] == self.load.packets[m]
        if whole or self.unacked[m] >= self.model.ack_every:
            packet.key |= ACK
            packet.size, packet.dst = self.model.ack_bytes, int(self.load.src[self.load.flow[m]])
            packet.acks, self.unacked[m] = self.unacked[m], 0
            packet.label = self.label(packet.key)
            self.enqueue(int(self.arrays.return_link[came_by]), packet, time)
        if whole:
            self.received[m] = time
            self.follow(m, 1, time)

    def follow(self, m: int, end: int, time: int) -> None:
        after = np.flatnonzero((self.load.after == m) & (self.load.on == end)).tolist()
        waits = self.load.waits
        after += waits.node[(waits.after == m) & (waits.on == end)].tolist()
        for other in after:
            self.missing[other].discard((m, end))
            if not self.missing[other]:
                self.push(time + self.takes(other), 0, other)
