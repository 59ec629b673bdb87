"""The plain twin of the aggregation driver: objects, dictionaries and a heap, packet by packet.

It has the rules of `replay/aggregation` in their plainest form. Nothing of the engine is used but
the draws, so that both make the same choices.
"""

from __future__ import annotations

import heapq
import zlib
from collections import defaultdict, deque
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from rocescope.replay.aggregation.jobs import WIRE_BYTES, Job, priorities
from rocescope.replay.aggregation.run import Conditions
from rocescope.replay.aggregation.schemes import Conduct
from rocescope.replay.fabrics.fabric import Fabric
from rocescope.replay.packets.model.draws import drawn, generator, purpose

INT32 = (1 << 31) - 1


@dataclass
class Packet:
    kind: str
    job: int
    seq: int
    to: int
    host: int
    values: dict[int, int] = field(default_factory=dict)
    """Value of each worker: a sum whose parts stay visible."""
    total: int | None = None
    index: int = 0
    next_index: int = 0
    priority: int = 0
    flags: frozenset[str] = frozenset()


@dataclass
class Cell:
    job: int
    seq: int
    values: dict[int, int]
    priority: int
    done: bool = False
    touched: int = 0
    contended: bool = False
    result: int | None = None
    """SwitchML: the sum of all racks."""


@dataclass
class Entry:
    seq: int
    values: dict[int, int] = field(default_factory=dict)
    done: bool = False
    collided: bool = False
    since: int = 0
    index: int = 0
    next_index: int = 0
    floats: bool = False
    contended: bool = False


@dataclass
class Chunk:
    """A slot of SwitchML, at a worker."""

    seq: int
    due: int | None = None


class Windows:
    """A2TP's windows of a worker, with the formulas as its code writes them."""

    def __init__(self, most: int, aggregators: int) -> None:
        self.most = self.packets = most
        self.aggregators = min(most, aggregators or most)
        self.marked = self.contended = 0.0
        self.prompt = self.prompt_now = 1.0

    def begin(self, done: int, last: int, now: int, measured: bool) -> None:
        self.end, self.credit = last + self.packets, self.aggregators
        self.at, self.done_before, self.measured = now, done, measured
        self.contentions = 0

    def note(self, done: int, seq: int, contended: bool, base: int, percent: int, now: int) -> None:
        self.contentions += contended
        if not self.measured and base < now - self.at < 5 * base:
            self.prompt_now = min(1.0, (done - self.done_before) / self.packets)
            self.measured = True
        if seq < self.end:
            return
        self.prompt = 63 / 64 * self.prompt + self.prompt_now / 64
        share = self.contentions / self.aggregators
        self.contended = 7 / 8 * self.contended + share / 8
        limit = percent / 100
        if self.contentions and self.contended > limit:
            cut = pow(self.contended - limit, self.prompt) / (2 - limit)
            self.aggregators = int(self.aggregators * max(0.0, 1 - cut))
        else:
            self.aggregators += 1
        self.prompt_now = 1.0
        self.packets = min(self.packets + 1, self.most)  # no queue marks
        self.aggregators = min(max(self.aggregators, 1), self.packets)
        self.begin(done, seq, now, False)


class Worker:
    def __init__(self, job: int, bit: int, host: int, begin: int) -> None:
        self.job, self.bit, self.host, self.base = job, bit, host, begin
        self.sent = self.done = self.ready = self.iteration = self.layer = 0
        self.later = self.deadline = 0
        self.heard = False
        self.by_timer = 0
        self.asked: int | None = None
        self.slow = 1 << 16
        self.finished = -1
        self.got: set[int] = set()
        self.index: dict[int, int] = {}
        self.ends: list[int] = []
        self.windows: Windows
        self.pool: list[Chunk]


class Twin:
    def __init__(
        self, name: str, conduct: Conduct, jobs: list[Job], fabric: Fabric, c: Conditions
    ) -> None:
        self.name, self.conduct, self.jobs, self.fabric, self.c = name, conduct, jobs, fabric, c
        self.now = 0
        self.due: dict[tuple[int, int], int] = {}
        self.heap: list[tuple[int, int, int]] = []
        links = len(fabric.links.source)
        self.free_at = [0] * links
        self.wire: list[deque[tuple[int, Packet]]] = [deque() for _ in range(links)]
        self.cells: dict[tuple[int, int], Cell] = {}
        self.entries: list[dict[int, Entry]] = [{} for _ in jobs]
        self.tally: list[dict[str, int]] = [defaultdict(int) for _ in jobs]
        self.workers: list[Worker] = []
        self.two_windows = name == "a2tp"
        self.first: list[int] = []
        seed = c.seed
        for number, job in enumerate(jobs):
            self.first.append(len(self.workers))
            self.workers += [Worker(number, b, h, job.start_ps) for b, h in enumerate(job.workers)]
        self.levels = priorities(jobs, int(fabric.links.rate_bits_per_second.min()))
        self._windows()
        for worker in self.workers:
            worker.windows = Windows(self.window[worker.job], conduct.aggregators)
            worker.pool = [Chunk(slot) for slot in range(self.window[worker.job])]
        self.ring = 1 << (4 * max(self.window) - 1).bit_length()
        self.order = [
            generator(seed, 0x696E61, j).permutation(self.slots) for j in range(len(jobs))
        ]
        self.at = [0] * len(jobs)
        places = [(job, switch) for job in range(len(jobs)) for switch in self.switches_of(job)]
        self.rack = {place: number for number, place in enumerate(places)}
        for number, worker in enumerate(self.workers):
            self.begin(worker, number, jobs[worker.job].start_ps)
            self.wake_at((1, number), jobs[worker.job].start_ps)

    def _windows(self) -> None:
        jobs, c = self.jobs, self.c
        if not self.conduct.has_server:
            share = c.slots // len(jobs)
            self.share = [min(share, 2 * job.window) // 2 * 2 for job in jobs]
            self.window = [s // 2 for s in self.share]
            self.slots = c.slots
            return
        self.window = [job.window for job in jobs]
        private = self.conduct.private_slots or not self.conduct.aggregates
        self.slots = sum(self.window) if private else c.slots
        self.index: list[dict[int, int]] = []
        base = 0
        for number, window in enumerate(self.window):
            used: dict[int, int] = {}
            for position in range(window):
                if private:
                    used[position] = base + position
                    continue
                for salt in range(1 << 16):
                    text = (number + 1, 0, position % 256, position // 256, salt % 256, salt // 256)
                    slot = zlib.crc32(bytes(text)) % self.slots
                    if slot not in used.values():
                        used[position] = slot
                        break
            base += window
            self.index.append(used)
        for worker in self.workers:
            worker.index = dict(self.index[worker.job])

    # The calendar: an item is due at its earliest time.

    def wake_at(self, item: tuple[int, int], time: int) -> None:
        if item not in self.due or time < self.due[item]:
            self.due[item] = time
            heapq.heappush(self.heap, (time, *item))

    def run(self) -> None:
        while any(w.finished < 0 for w in self.workers):
            while self.heap:
                time, *item = heapq.heappop(self.heap)
                if self.due.get(tuple(item)) == time:  # type: ignore[call-overload]
                    break
            else:
                return
            del self.due[tuple(item)]  # type: ignore[arg-type]
            if time > self.c.until_ps:
                return
            self.now = time
            kind, number = item
            if kind == 0:
                self.arrive(number)
            elif kind == 1:
                self.wake(number)
            else:
                self.remind(number)

    # Links.

    def put(self, link: int, packet: Packet) -> None:
        links = self.fabric.links
        per_byte = round(8e12 * (1 << 20) / int(links.rate_bits_per_second[link]))
        service = (WIRE_BYTES * per_byte + (1 << 19)) >> 20
        begin = max(self.now, self.free_at[link])
        self.free_at[link] = begin + service
        arrival = begin + service + int(links.delay_ns[link]) * 1000
        self.wire[link].append((arrival, packet))
        self.wake_at((0, link), self.wire[link][0][0])

    def happens(self, share: float, what: str, link: int, packet: Packet) -> bool:
        key = ((packet.job + 1) << 40 | packet.seq) & ((1 << 56) - 1) ^ (packet.to << 20)
        number = (self.now << 16) ^ link
        use = purpose(f"aggregation {what}")
        if not share:
            return False
        return int(drawn(self.c.seed, use, key, number, 1 << 31)) < round(share * (1 << 31))

    def arrive(self, link: int) -> None:
        _, packet = self.wire[link].popleft()
        if self.wire[link]:
            self.wake_at((0, link), self.wire[link][0][0])
        if self.happens(self.c.loss, "loss", link, packet):
            return
        if self.happens(self.c.copies, "copy", link, packet):
            self.put(link, replace(packet, values=dict(packet.values)))
        if self.happens(self.c.delays, "delay", link, packet):
            self.put(link, packet)
            return
        node = int(self.fabric.links.target[link])
        if node < self.fabric.switches:
            self.at_switch(node, packet)
        elif packet.kind == "gradient":
            self.at_server(packet)
        elif packet.to >= 0:
            self.at_worker(self.first[packet.job] + packet.to, packet)

    def link_from(self, switch: int, packet: Packet) -> int:
        edge = int(self.fabric.attachments.edge[packet.host])
        if int(self.fabric.attachments.switch[packet.host, 0]) == switch:
            return int(self.fabric.attachments.exit_link[packet.host, 0])
        links, _ = self.fabric.group(switch, edge)
        use = purpose("aggregation route")
        return int(links[int(drawn(self.c.seed, use, packet.job, switch, len(links)))])

    # Switches.

    def switch_of(self, host: int) -> int:
        return int(self.fabric.attachments.switch[host, 0])

    def server_of(self, job: int) -> int:
        """The host of the PS; of SwitchML a worker at the root."""
        about = self.jobs[job]
        if self.conduct.has_server:
            return about.server
        here = [h for h in about.workers if self.switch_of(h) == self.switch_of(about.server)]
        return [*here, about.workers[0]][0]

    def waits_for(self, switch: int, job: int) -> set[int]:
        if not self.conduct.aggregates:
            return set()
        about = self.jobs[job]
        here = {b for b, h in enumerate(about.workers) if self.switch_of(h) == switch}
        root = self.switch_of(self.server_of(job))
        return set(range(len(about.workers))) if switch == root else here

    def at_switch(self, switch: int, packet: Packet) -> None:
        whole = self.waits_for(switch, packet.job)
        place = (switch, packet.index)
        cell = self.cells.get(place)
        same = cell is not None and (cell.job, cell.seq) == (packet.job, packet.seq)
        direct = packet.flags & {"direct", "collided", "floats"}
        ours = whole and set(packet.values) <= whole
        if packet.kind == "gradient" and ours and not direct:
            if self.conduct.has_server:
                if not self.aggregate(place, packet, whole):
                    return
                packet.host = self.jobs[packet.job].server
            else:
                self.switchml(place, switch, packet, whole)
                return
        elif packet.kind == "result" and whole and self.conduct.has_server:
            wait = self.conduct.slot_timeout_ps
            if same:
                del self.cells[place]
            elif cell is not None and wait and self.now - cell.touched > wait:
                self.tally[cell.job]["EXPIRED"] += 1
                del self.cells[place]
        elif packet.kind == "reminder" and whole and self.is_for_rack(packet, switch):
            if not same:
                return
            assert cell is not None
            packet.kind, packet.values = "gradient", cell.values
            packet.flags = frozenset({"direct"})
            packet.host = self.jobs[packet.job].server
            del self.cells[place]
        if packet.kind == "result" and self.is_for_rack(packet, switch):
            if not self.conduct.has_server and same:
                assert cell is not None
                cell.result = packet.total
            self.copy_to_rack(switch, packet)
            return
        self.put(self.link_from(switch, packet), packet)

    def is_for_rack(self, packet: Packet, switch: int) -> bool:
        own = self.rack.get((packet.job, switch))
        return own is not None and packet.to == -1 - own

    def copy_to_rack(self, switch: int, packet: Packet) -> None:
        for bit, host in enumerate(self.jobs[packet.job].workers):
            if self.switch_of(host) == switch:
                exit_link = int(self.fabric.attachments.exit_link[host, 0])
                self.put(exit_link, replace(packet, to=bit, host=host))

    def aggregate(self, place: tuple[int, int], packet: Packet, whole: set[int]) -> bool:
        """Whether the packet continues."""
        if self.name == "none":
            return True
        esa, tally = self.name == "esa", self.tally[packet.job]
        cell = self.cells.get(place)
        same = cell is not None and (cell.job, cell.seq) == (packet.job, packet.seq)
        bits = set(packet.values)
        if "resent" in packet.flags:
            if same:
                assert cell is not None
                there = set(cell.values)
                if not bits & there or bits <= there:
                    self.load(packet, cell)
                del self.cells[place]
            return True
        if cell is not None and not same:
            tally["COLLISIONS"] += 1
            packet.flags |= {"collided"}
            cell.contended = True
            if not esa:
                return True
            ageing = self.conduct.params[0]
            if cell.done or cell.priority >= packet.priority:
                cell.priority >>= ageing
                return True
            if bits != whole:
                tally["PREEMPTIONS"] += 1
                self.tally[cell.job]["EVICTED"] += 1
                own = Cell(packet.job, packet.seq, packet.values, packet.priority, touched=self.now)
                self.cells[place] = own
                packet.job, packet.seq, packet.values = cell.job, cell.seq, cell.values
                packet.flags, packet.to = frozenset({"direct"}), -1
            return True
        if cell is None:
            cell = Cell(
                packet.job, packet.seq, dict(packet.values), packet.priority, touched=self.now
            )
            cell.contended = "contended" in packet.flags
            self.cells[place] = cell
        elif not bits & set(cell.values):
            cell.values |= packet.values
            cell.touched = self.now
            cell.contended |= "contended" in packet.flags
        elif not bits <= set(cell.values):
            return True
        else:
            again = set(cell.values) == whole
            if again:
                self.load(packet, cell)
            return again
        if set(cell.values) != whole:
            tally["ABSORBED"] += 1
            return False
        tally["COMPLETED"] += 1
        cell.done = True
        self.load(packet, cell)
        if esa and self.conduct.params[1]:
            del self.cells[place]
        return True

    def load(self, packet: Packet, cell: Cell) -> None:
        packet.values = {**packet.values, **cell.values}
        if cell.contended and self.two_windows:
            packet.flags |= {"contended"}

    def switchml(
        self, place: tuple[int, int], switch: int, packet: Packet, whole: set[int]
    ) -> None:
        cell, tally = self.cells.get(place), self.tally[packet.job]
        if cell is not None and packet.seq < cell.seq:
            tally["STALE"] += 1
            return
        if cell is None or cell.seq != packet.seq:
            cell = self.cells[place] = Cell(packet.job, packet.seq, dict(packet.values), 0)
        elif cell.done:
            packet.values = dict(cell.values)
            self.summed(switch, packet, cell, [self.switch_of(self.host_of(packet))])
            return
        elif set(packet.values) <= set(cell.values):
            return
        else:
            cell.values |= packet.values
        if set(cell.values) != whole:
            tally["ABSORBED"] += 1
            return
        tally["COMPLETED"] += 1
        cell.done = True
        packet.values = dict(cell.values)
        if switch == self.switch_of(self.server_of(packet.job)):
            tally["WHOLE"] += 1
        self.summed(switch, packet, cell, None)

    def host_of(self, packet: Packet) -> int:
        """The worker whose gradient a packet was."""
        return self.jobs[packet.job].workers[packet.to]

    def summed(self, switch: int, packet: Packet, cell: Cell, only: list[int] | None) -> None:
        """A sum is complete; only: the switch whose worker or rack asked for it again."""
        server = self.server_of(packet.job)
        if switch == self.switch_of(server):
            cell.result = sum(cell.values.values())
        if cell.result is None:
            packet.host = server
            self.put(self.link_from(switch, packet), packet)
            return
        packet.kind, packet.total = "result", cell.result
        for other in self.switches_of(packet.job):
            if other != switch and (only is None or other in only):
                workers = self.jobs[packet.job].workers
                host = next(h for h in workers if self.switch_of(h) == other)
                to = -1 - self.rack[packet.job, other]
                copy = replace(packet, to=to, host=host)
                self.put(self.link_from(switch, copy), copy)
        if only is None:
            self.copy_to_rack(switch, packet)
        elif switch in only:
            packet.host = self.host_of(packet)
            self.put(self.link_from(switch, packet), packet)

    # The parameter server.

    def at_server(self, packet: Packet) -> None:
        job, seq, tally = packet.job, packet.seq, self.tally[packet.job]
        tally["SERVER"] += 1
        if any(late > seq and late % self.ring == seq % self.ring for late in self.entries[job]):
            tally["IGNORED"] += 1
            return
        entry = self.entries[job].setdefault(seq, Entry(seq))
        if entry.done:
            tally["IGNORED"] += 1
            self.answer(job, entry)
            return
        floats = "floats" in packet.flags
        if entry.floats and not floats:
            tally["IGNORED"] += 1
            self.answer(job, entry)
            return
        whole = len(self.jobs[job].workers)
        if len(packet.values) == whole:
            if not entry.values:
                tally["WHOLE"] += 1
            entry.values = dict(packet.values)
        elif set(entry.values) & set(packet.values):
            tally["IGNORED"] += 1
        else:
            entry.values |= packet.values
        entry.collided |= "collided" in packet.flags
        entry.collided |= self.two_windows and "resent" in packet.flags
        entry.contended |= "contended" in packet.flags
        entry.since = self.now
        if len(entry.values) == whole:
            position = seq % self.window[job]
            entry.index = entry.next_index = self.index[job][position]
            if abs(sum(entry.values.values())) > INT32 and not floats:
                tally["OVERFLOWS"] += 1
                entry.floats, entry.values = True, {}
                self.answer(job, entry)
                return
            entry.done = True
            if entry.collided and not entry.contended and self.conduct.rehash:
                for _ in range(self.slots):
                    new = int(self.order[job][self.at[job]])
                    self.at[job] = (self.at[job] + 1) % self.slots
                    if new not in self.index[job].values():
                        self.index[job][position] = entry.next_index = new
                        break
            self.answer(job, entry)
        elif self.conduct.remind_ps:
            self.wake_at((2, job), self.now + self.conduct.remind_ps)

    def switches_of(self, job: int) -> list[int]:
        about = self.jobs[job]
        found = [self.switch_of(host) for host in (*about.workers, self.server_of(job))]
        return list(dict.fromkeys(found))

    def answer(self, job: int, entry: Entry) -> None:
        about = self.jobs[job]
        link = int(self.fabric.attachments.access_link[about.server, 0])
        for switch in self.switches_of(job):
            own = [(b, h) for b, h in enumerate(about.workers) if self.switch_of(h) == switch]
            if own and self.conduct.multicast:
                own = [(-1 - self.rack[job, switch], own[0][1])]
            for to, host in own:
                packet = Packet("result", job, entry.seq, to, host, index=entry.index)
                packet.total, packet.next_index = sum(entry.values.values()), entry.next_index
                packet.flags = frozenset({"contended"} if entry.contended else ())
                if not entry.done:
                    packet.flags |= {"floats"}
                self.put(link, packet)

    def remind(self, job: int) -> None:
        about, wait = self.jobs[job], self.conduct.remind_ps
        link = int(self.fabric.attachments.access_link[about.server, 0])
        due = []
        for _, entry in sorted(self.entries[job].items()):
            if entry.done or not entry.values or entry.floats:
                continue
            if entry.since + wait <= self.now:
                entry.since = self.now
                for switch in self.switches_of(job):
                    here = [h for h in about.workers if self.switch_of(h) == switch]
                    self.tally[job]["REMINDERS"] += 1
                    to = -1 - self.rack[job, switch]
                    packet = Packet("reminder", job, entry.seq, to, [*here, about.server][0])
                    packet.index = self.index[job][entry.seq % self.window[job]]
                    self.put(link, packet)
            due.append(entry.since + wait)
        if due:
            self.wake_at((2, job), min(due))

    # Workers.

    def begin(self, worker: Worker, number: int, time: int) -> None:
        worker.base, worker.layer, worker.slow = time, 0, 1 << 16
        job = self.jobs[worker.job]
        spread = 0 if job.took_ns is not None else round(self.c.jitter * (1 << 16))
        if spread:
            use = purpose("compute time")
            worker.slow += int(drawn(self.c.seed, use, number, worker.iteration, spread))
        if job.slowness:
            own = job.slowness[worker.bit]
            own_slow = round(own[min(worker.iteration, len(own) - 1)] * (1 << 16))
            worker.slow = worker.slow * own_slow >> 16
        worker.windows.begin(worker.done, worker.done - 1, time, True)

    def computed(self, worker: Worker) -> int | None:
        job = self.jobs[worker.job]
        if worker.finished >= 0 or worker.layer >= len(job.steps[0].fragments):
            return None
        ps = job.steps[worker.iteration].computed_ps[worker.layer]
        return worker.base + (ps * worker.slow >> 16)

    def timer(self, worker: Worker) -> int:
        after = self.conduct.double_after
        wait = self.conduct.rto_ps if worker.heard else self.conduct.first_rto_ps
        return wait << min(10, worker.by_timer // after) if after else wait

    def wake(self, number: int) -> None:
        worker = self.workers[number]
        job = self.jobs[worker.job]
        while (at := self.computed(worker)) is not None and at <= self.now:
            worker.layer += 1
            before = self.end_of(worker.job, worker.iteration - 1)
            step = job.steps[worker.iteration]
            worker.ready = before + sum(step.fragments[: worker.layer])
        if not self.conduct.has_server:
            self.wake_pool(worker, number)
            return
        window = worker.windows.packets if self.two_windows else self.window[worker.job]
        end = min(worker.ready, worker.done + window)
        if worker.sent < end and worker.sent == worker.done:
            worker.deadline = self.now + self.timer(worker)
        while worker.sent < end:
            flags = frozenset[str]()
            if self.two_windows and worker.sent > worker.windows.end:
                flags = frozenset() if worker.windows.credit else frozenset({"resent"})
                self.tally[worker.job]["BYPASSED"] += len(flags)
                worker.windows.credit -= not flags
            self.send(worker, worker.sent, flags, "SENT")
            worker.sent += 1
        if worker.done < worker.sent:
            if worker.deadline <= self.now:
                self.tally[worker.job]["TIMEOUTS"] += 1
                missing = [s for s in range(worker.done, worker.sent) if s not in worker.got]
                later = [s for s in worker.got if s > worker.done]
                last = min(later) if later else worker.done + 1
                missing = [s for s in missing if s < last]
                worker.by_timer += len(missing)
                for seq in missing:
                    self.send(worker, seq, frozenset({"resent"}))
                worker.deadline = self.now + self.timer(worker)
            self.wake_at((1, number), worker.deadline)
        at = self.computed(worker)
        if at is not None:
            self.wake_at((1, number), at)

    def wake_pool(self, worker: Worker, number: int) -> None:
        """SwitchML: every slot has its own clock and timer."""
        for chunk in sorted(worker.pool, key=lambda one: one.seq):
            if chunk.due is None and chunk.seq < worker.ready:
                self.send(worker, chunk.seq, frozenset(), "SENT")
                chunk.due = self.now + self.timer(worker)
        for chunk in worker.pool:
            if chunk.due is not None and chunk.due <= self.now:
                self.tally[worker.job]["TIMEOUTS"] += 1
                worker.by_timer += 1
                self.send(worker, chunk.seq, frozenset({"resent"}), "RESENT")
                chunk.due = self.now + self.timer(worker)
            if chunk.due is not None:
                self.wake_at((1, number), chunk.due)
        at = self.computed(worker)
        if at is not None:
            self.wake_at((1, number), at)

    def value(self, job: int, seq: int, bit: int) -> int:
        what = (job + 1) << 40 | seq
        value = int(drawn(self.c.seed, purpose("gradient value"), what, bit, 1 << 21)) - (1 << 20)
        chance = round(self.jobs[job].overflow * (1 << 31)) if self.conduct.overflows else 0
        use = purpose("gradient overflow")
        if chance and int(drawn(self.c.seed, use, what, 0, 1 << 31)) < chance:
            value += 3 << 29
        return value

    def end_of(self, job: int, iteration: int) -> int:
        return sum(sum(step.fragments) for step in self.jobs[job].steps[: iteration + 1])

    def send(self, worker: Worker, seq: int, flags: frozenset[str], count: str = "RESENT") -> None:
        job = self.jobs[worker.job]
        server = self.server_of(worker.job)
        packet = Packet("gradient", worker.job, seq, worker.bit, server, flags=flags)
        packet.values = {worker.bit: self.value(worker.job, seq, worker.bit)}
        if self.conduct.has_server:
            packet.index = worker.index[seq % self.window[worker.job]]
        else:
            half = self.window[worker.job]
            base = sum(self.share[: worker.job])
            packet.index = base + seq // half % 2 * half + seq % half
        iteration = next(i for i in range(job.iterations) if seq < self.end_of(worker.job, i))
        at, sizes = seq - self.end_of(worker.job, iteration - 1), job.steps[iteration].fragments
        layer = next(i for i in range(len(sizes)) if at < sum(sizes[: i + 1]))
        packet.priority = self.levels[worker.job][iteration][layer]
        self.tally[worker.job][count] += 1
        self.put(int(self.fabric.attachments.access_link[worker.host, 0]), packet)

    def at_worker(self, number: int, packet: Packet) -> None:
        worker, tally = self.workers[number], self.tally[packet.job]
        job, seq = self.jobs[packet.job], packet.seq
        chunk = worker.pool[seq % self.window[packet.job]]
        pooled = not self.conduct.has_server
        old = (chunk.seq, chunk.due is None) != (seq, False) if pooled else seq < worker.done
        if old or seq in worker.got:
            tally["REPEATED"] += 1
            return
        worker.heard = True
        if "floats" in packet.flags:
            worker.deadline = self.now + self.timer(worker)
            self.send(worker, seq, frozenset({"resent", "floats"}))
            return
        tally["RESULTS"] += 1
        right = sum(self.value(packet.job, seq, b) for b in range(len(job.workers)))
        assert packet.total == right
        if pooled:
            worker.done += 1
            chunk.seq, chunk.due = seq + self.window[packet.job], None
            self.after_sum(worker, number)
            return
        worker.got.add(seq)
        worker.index[seq % self.window[packet.job]] = packet.next_index
        if seq != worker.done:
            worker.later += 1
            trigger = self.conduct.trigger
            if trigger and worker.later >= trigger and worker.asked != worker.done:
                worker.asked = worker.done
                self.send(worker, worker.done, frozenset({"resent"}))
        while worker.done in worker.got:
            worker.got.remove(worker.done)
            worker.done += 1
            worker.later = 0
        worker.deadline = self.now + self.timer(worker)
        if self.two_windows:
            worker.windows.note(
                worker.done,
                seq,
                "contended" in packet.flags,
                self.conduct.base_rtt_ps,
                self.conduct.contention_percent,
                self.now,
            )
        self.after_sum(worker, number)

    def after_sum(self, worker: Worker, number: int) -> None:
        if worker.done == self.end_of(worker.job, worker.iteration):
            worker.ends.append(self.now)
            worker.iteration += 1
            if worker.iteration == self.jobs[worker.job].iterations:
                worker.finished = self.now
                return
            self.begin(worker, number, self.now)
        self.wake(number)


def tallies(twin: Twin, names: Sequence[str]) -> list[tuple[int, ...]]:
    """The counts in the fields of `Outcome.tally`."""
    return [tuple(one[name.upper()] for name in names) for one in twin.tally]
