"""What happens in generated training jobs: the steps, who comes last, and what faults cost."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from statistics import median
from typing import Any, Final, NamedTuple

import numpy as np

from ...kernels.kernel import Array, Ints
from ..generate.pcap_writer import file_header
from ..generate.queue_pairs import START_NS
from ..packets.failures import LinkEvent
from ..packets.model.model import ACK
from .faults import PS, Faults, LinkFault, Tap
from .frames import Seen, message_and_number, records
from .jobs import Plan
from .nccl import DATA, Collective
from .run import (
    PAYLOAD,
    Generation,
    Run,
    Settings,
    TapView,
    Wire,
    at_taps,
    generations_of,
    hosts_of,
    perfect,
    simulate,
)

Json = dict[str, Any]

DEFINITIONS: Final = {
    "step": "end_ns: the last rank leaves the last collective of the step; start_ns: the first rank"
    " begins to compute",
    "duration_ns": "from the end of the step before (the first of a generation: from its own"
    " start)",
    "first_message_ns, last_message_ns": "last packet of the first and of the last message of data"
    " of the step that the taps see (first tap, without clock errors)",
    "visible_components": "addresses joined by the data that the taps see",
    "network_ns": "duration minus the duration with a perfect network and the same compute times",
    "fault_ns": "duration minus the duration without the faults; null: the run has none, or the"
    " job has restarted",
    "last_rank": "the rank that came last to the collectives, weighted by the wait; waited_ns: how"
    " long the median rank waited for the last, summed over the step's collectives; sends and"
    " receives of pipelines do not count",
    "sources": "of a cause: addresses whose data passes the links of the fault",
}


class Made(NamedTuple):
    """A generated run."""

    views: list[TapView]
    wire: Wire
    truth: Json

    def captures(self) -> dict[str, Seen]:
        """The packets of each tap by its name."""
        return {view.tap.name: view.seen for view in self.views}

    def at_all_taps(self) -> Seen:
        """The packets of all taps in one capture."""
        columns = zip(*self.captures().values(), strict=True)
        seen = Seen._make(np.concatenate(column) for column in columns)
        return seen.take(np.argsort(seen.time_ns, kind="stable"))

    def pcap(self, seen: Seen, snap: int) -> Iterator[bytes]:
        """A pcap file; snap: bytes kept per frame."""
        yield file_header(snap)
        yield from records(seen, self.wire.flows, self.wire.messages, PAYLOAD, snap)


def make(
    plans: Sequence[Plan],
    settings: Settings,
    faults_of: Callable[[Sequence[Any]], Faults],
    taps_of: Callable[[Sequence[int]], list[Tap]],
) -> Made:
    """Run jobs with and without their faults. faults_of: the faults, from the hosts of the ranks of
    each job; taps_of: the taps, from all hosts of jobs."""
    hosts = hosts_of(plans, settings.fabric, settings.seed)
    faults = faults_of(hosts)
    taps = taps_of(sorted({int(host) for each in hosts for host in each}))
    is_clean = not faults.ranks and not faults.links
    watched = {link for tap in taps for link in tap.links}
    watched |= {link for fault in faults.links for link in fault.links}
    usual = generations_of(plans, hosts, Faults(), settings, {})
    clean, wire = simulate(usual, settings, (), watched if is_clean else ())
    run, spans = clean, list[tuple[int, int | None]]()
    if not is_clean:
        events: list[LinkEvent] = []
        for fault in faults.links:
            spans.append(fault.span_ps(lambda job, step: _begin(clean, job, step)))
            events += fault.events(settings.fabric, *spans[-1])
        begins: dict[str, int] = {}
        if faults.restarts:
            before = generations_of(plans, hosts, faults, settings, {})
            hanging, _ = simulate(before, settings, events)
            for name in faults.restarts:
                hang = faults.hang_of(name)
                assert hang is not None
                begins[name] = _begin(hanging, name, hang.from_step)
        generations = generations_of(plans, hosts, faults, settings, begins)
        run, wire = simulate(generations, settings, events, watched)
    views = at_taps(run, wire, taps, settings.fabric)
    truth = _Truth(run, wire, views, faults, spans, None if is_clean else clean, settings)
    return Made(views, wire, truth.all())


def _begin(run: Run, job: str, step: int) -> int:
    """When a step of a job begins, ps."""
    generation = next(each for each in run.generations if each.plan.name == job)
    begins = generation.trained.begins
    if step >= len(begins):
        return _end(run, generation, len(begins) - 1)
    return min(run.end(generation, node) for node in begins[step].values())


def _end(run: Run, generation: Generation, at: int) -> int:
    """When a step ends; -1: never."""
    ends = [run.end(generation, node) for node in generation.trained.ends[at].values()]
    return -1 if min(ends) < 0 else max(ends)


def _host(generation: Generation, rank: int) -> int:
    """Number of the host of a rank: that of its first interface."""
    nics = generation.plan.nics
    return int(generation.job.hosts[rank // nics * nics])


def _durations(run: Run, generation: Generation) -> list[int | None]:
    """ps of each step, None if it does not end."""
    lasting: list[int | None] = []
    before = -1
    for at, begins in enumerate(generation.trained.begins):
        end = _end(run, generation, at)
        first = min(run.end(generation, node) for node in begins.values())
        lasting.append(None if end < 0 else end - (before if at else first))
        before = end
    return lasting


class _Truth:
    """Puts truth.json together."""

    def __init__(
        self,
        run: Run,
        wire: Wire,
        views: Sequence[TapView],
        faults: Faults,
        spans: Sequence[tuple[int, int | None]],
        clean: Run | None,
        settings: Settings,
    ) -> None:
        self.run, self.wire, self.views, self.faults = run, wire, views, faults
        self.spans, self.clean, self.settings = spans, clean, settings
        self.ideal = replace(run, ends=perfect(run))
        self.seen_ns = _seen(wire, views)
        self.sources = [self._sources(fault) for fault in faults.links]

    def all(self) -> Json:
        by_name: dict[str, list[int]] = defaultdict(list)
        for index, generation in enumerate(self.run.generations):
            by_name[generation.plan.name].append(index)
        hangs = [self._hang(name, indices) for name, indices in by_name.items()]
        return {
            "definitions": DEFINITIONS,
            "jobs": [self._job(indices) for indices in by_name.values()],
            "hang": next((hang for hang in hangs if hang), None),
            "restarts": [
                {
                    "job": generation.plan.name,
                    "at_ns": _ns(generation.start_ps),
                    "first_step": generation.trained.first_step,
                }
                for generation in self.run.generations
                if generation.number
            ],
            "queue_pairs": list(self._queue_pairs()),
            "flows": self._flows(),
        }

    # Jobs.

    def _job(self, indices: list[int]) -> Json:
        generation = self.run.generations[indices[0]]
        plan = generation.plan
        return {
            "name": plan.name,
            "kind": plan.kind,
            "ranks": [
                {"rank": rank, "host": _host(generation, rank), "address": self._address(host)}
                for rank, host in enumerate(generation.job.hosts.tolist())
            ],
            "visible_components": self._components(indices),
            "steps": [step for index in indices for step in self._steps(index)],
            "collectives": [
                collective for index in indices for collective in self._collectives(index)
            ],
        }

    def _address(self, host: int) -> str:
        return str(self.settings.fabric.address_of(host))

    def _steps(self, index: int) -> Iterator[Json]:
        generation = self.run.generations[index]
        lasting, ideal = _durations(self.run, generation), _durations(self.ideal, generation)
        usual: list[int | None] = []
        if self.clean is not None and generation.number == 0:
            of = next(g for g in self.clean.generations if g.plan is generation.plan)
            usual = _durations(self.clean, of)
        rows = np.flatnonzero((self.wire.generation == index) & (self.wire.messages.kind == DATA))
        rows = rows[self.seen_ns[rows] >= 0]
        of_step: dict[int, list[Collective]] = defaultdict(list)
        for each in generation.trained.nccl.collectives:
            of_step[each.step].append(each)
        for at, begins in enumerate(generation.trained.begins):
            number = generation.trained.first_step + at
            starts = [self.run.end(generation, node) for node in begins.values()]
            if min(starts) < 0:
                return
            end = _end(self.run, generation, at)
            times = self.seen_ns[rows[self.wire.step[rows] == number]]
            step: Json = {
                "generation": generation.number,
                "step": number,
                "complete": end >= 0,
                "causes": self._causes(generation, number, min(starts), end),
                "start_ns": _ns(min(starts)),
                "end_ns": _ns(end) if end >= 0 else None,
                "first_message_ns": int(times.min()) if len(times) else None,
                "last_message_ns": int(times.max()) if len(times) else None,
            }
            duration, perfectly = lasting[at], ideal[at]
            if duration is not None and perfectly is not None:
                network = duration - perfectly
                without = usual[at] if usual else None
                step |= {
                    "duration_ns": duration // PS,
                    "network_ns": network // PS,
                    "network_percent": round(network / duration * 100, 2),
                    "fault_ns": None if without is None else (duration - without) // PS,
                }
                step |= self._last(generation, of_step[number])
            yield step

    def _last(self, generation: Generation, collectives: list[Collective]) -> Json:
        """collectives: of one step."""
        waits: dict[int, float] = defaultdict(float)
        for each in collectives:
            arrivals = self._arrivals(generation, each)
            if each.kind != "send_recv" and min(arrivals.values()) >= 0:
                last = max(arrivals, key=lambda rank: arrivals[rank])
                waits[last] += arrivals[last] - median(arrivals.values())
        last_rank = max(waits, key=lambda rank: waits[rank]) if waits else None
        return {"last_rank": last_rank, "waited_ns": int(sum(waits.values()) // PS)}

    def _arrivals(self, generation: Generation, of: Collective) -> dict[int, int]:
        return {rank: self.run.end(generation, node) for rank, node in of.arrivals.items()}

    def _collectives(self, index: int) -> Iterator[Json]:
        """One record per operation; sends and receives of a step and communicator together."""
        generation = self.run.generations[index]
        groups: dict[tuple[int, str, int], list[Collective]] = defaultdict(list)
        for at, each in enumerate(generation.trained.nccl.collectives):
            together = 0 if each.kind == "send_recv" else 1 + at
            groups[each.step, each.communicator, together].append(each)
        for (step, communicator, _), operations in groups.items():
            arrivals = [t for o in operations for t in self._arrivals(generation, o).values()]
            ends = [self.run.end(generation, node) for o in operations for node in o.ends.values()]
            if min(arrivals) < 0:
                continue
            yield {
                "step": step,
                "generation": generation.number,
                "kind": operations[0].kind,
                "comm": communicator,
                "count": len(operations),
                "bytes": operations[0].size,
                "first_arrival_ns": _ns(min(arrivals)),
                "last_arrival_ns": _ns(max(arrivals)),
                "end_ns": _ns(max(ends)) if min(ends) >= 0 else None,
            }

    # Faults.

    def _causes(self, generation: Generation, step: int, start: int, end: int) -> list[Json]:
        name, hosts = generation.plan.name, generation.job.hosts
        causes: list[Json] = []
        for fault in self.faults.ranks:
            again = fault.kind == "hang" and generation.number
            ranks = [rank for rank in fault.ranks if fault.acts(rank, step)]
            if fault.job == name and ranks and not again:
                host = _host(generation, ranks[0])
                if fault.kind != "hang":  # the ranks of a host are late together
                    nics = generation.plan.nics
                    late = {rank // nics for rank in ranks}
                    ranks = [r for r in range(generation.plan.ranks) if r // nics in late]
                causes.append({"kind": fault.kind, "host": host, "ranks": ranks})
        own = {self._address(host) for host in hosts.tolist()}
        for link, (begin, until), sources in zip(
            self.faults.links, self.spans, self.sources, strict=True
        ):
            acts = (end < 0 or begin < end) and (until is None or until > start)
            if acts and sources & own:
                ranks = list(link.ranks) if link.job == name else []
                causes.append(
                    {
                        "kind": link.kind,
                        "link": link.link,
                        "host": _host(generation, ranks[0]) if ranks else None,
                        "ranks": ranks,
                        "sources": sorted(sources & own),
                    }
                )
        return causes

    def _sources(self, fault: LinkFault) -> set[str]:
        passages = self.run.passages
        there = passages[np.isin(passages["link"], fault.links) & (passages["key"] & ACK == 0)]
        message = np.unique(message_and_number(there["key"])[0])
        message = message[self.wire.messages.kind[message] == DATA]
        flows = np.unique(self.wire.messages.flow[message])
        return {_text(self.wire.flows.src[flow]) for flow in flows.tolist()}

    def _hang(self, name: str, indices: list[int]) -> Json | None:
        fault = self.faults.hang_of(name)
        if fault is None:
            return None
        first = self.run.generations[indices[0]]
        at = _begin(self.run, name, fault.from_step)
        lost = None
        for index in indices[1:]:
            again = self.run.generations[index]
            begins = again.trained.begins[fault.from_step - again.trained.first_step]
            lost = (min(self.run.end(again, node) for node in begins.values()) - at) // PS
        return {
            "job": name,
            "step": fault.from_step,
            "host": _host(first, fault.ranks[0]),
            "ranks": list(fault.ranks),
            "at_ns": _ns(at),
            "lost_ns": lost,
        }

    # Queue pairs and flows.

    def _queue_pairs(self) -> Iterator[Json]:
        messages, flows = self.wire.messages, self.wire.flows
        data = np.flatnonzero(messages.kind == DATA)
        _, first = np.unique(messages.flow[data], return_index=True)
        for row in data[first].tolist():
            generation = self.run.generations[int(self.wire.generation[row])]
            connection = generation.trained.nccl.connections[int(self.wire.connection[row])]
            flow = int(messages.flow[row])
            yield {
                "job": generation.plan.name,
                "generation": generation.number,
                "comm": connection.communicator,
                "channel": connection.channel,
                "from_rank": connection.sender,
                "to_rank": connection.receiver,
                "src": _text(flows.src[flow]),
                "src_qp": int(flows.ack_qp[flow]),
                "dst": _text(flows.dst[flow]),
                "dst_qp": int(flows.dest_qp[flow]),
                "udp_source_port": int(flows.port[flow]),
            }

    def _flows(self) -> list[Json]:
        """At the tap that sees most packets of a flow."""
        messages, flows = self.wire.messages, self.wire.flows
        most: dict[tuple[str, str, int], Json] = {}
        for view in self.views:
            at: dict[tuple[str, str, int], Json] = {}
            key, message = view.seen.key, view.seen.message
            flow, answer = messages.flow[message], (key & ACK) != 0
            last = ~answer & (view.seen.number == messages.packets[message] - 1)
            for number in np.unique(flow).tolist():
                ends = _text(flows.src[number]), _text(flows.dst[number])
                data = (flow == number) & ~answer
                own = np.unique(message[data & last])
                held = np.minimum(
                    PAYLOAD, messages.size[message[data]] - view.seen.number[data] * PAYLOAD
                )
                _add(
                    at, (*ends, int(flows.dest_qp[number])), int(data.sum()), len(own),
                    int(held.sum()),
                )  # fmt: skip
                answers = int(((flow == number) & answer).sum())
                _add(at, (ends[1], ends[0], int(flows.ack_qp[number])), answers, 0, 0)
            for ends_of, flow_of in at.items():
                before = most.get(ends_of)
                if before is None or flow_of["packets"] > before["packets"]:
                    most[ends_of] = flow_of
        return [most[key] for key in sorted(most) if most[key]["packets"]]

    def _components(self, indices: list[int]) -> list[list[str]]:
        messages, flows = self.wire.messages, self.wire.flows
        seen = np.isin(self.wire.generation, indices) & (messages.kind == DATA)
        seen &= self.seen_ns >= 0
        groups: list[set[str]] = []
        for flow in np.unique(messages.flow[seen]).tolist():
            joined = {_text(flows.src[flow]), _text(flows.dst[flow])}
            touching = [group for group in groups if group & joined]
            groups = [group for group in groups if not group & joined]
            groups.append(joined.union(*touching))
        return sorted(sorted(group) for group in groups)


def _add(
    at: dict[tuple[str, str, int], Json],
    ends: tuple[str, str, int],
    packets: int,
    messages: int,
    size: int,
) -> None:
    """Data and ACKs to one queue pair are one flow."""
    empty = {"src": ends[0], "dst": ends[1], "dest_qp": ends[2]}
    flow = at.setdefault(ends, {**empty, "packets": 0, "messages": 0, "payload_bytes": 0})
    flow["packets"] += packets
    flow["messages"] += messages
    flow["payload_bytes"] += size


def _seen(wire: Wire, views: Sequence[TapView]) -> Ints:
    """int64[M], ns: when the last packet of each message passes the first tap, for the last time
    if it is retransmitted; -1: never."""
    count = len(wire.messages.size)
    first = np.full(count, np.iinfo(np.int64).max)
    for view in views:
        seen = view.seen
        last = (seen.key & ACK == 0) & (seen.number == wire.messages.packets[seen.message] - 1)
        times = np.full(count, -1)
        np.maximum.at(times, seen.message[last], seen.time_ns[last])
        first = np.where(times >= 0, np.minimum(first, times), first)
    return np.where(first == np.iinfo(np.int64).max, -1, first)


def _text(address: Array) -> str:
    return ".".join(map(str, address.tolist()))


def _ns(time_ps: int) -> int:
    return START_NS + time_ps // PS
