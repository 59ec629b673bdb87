"""What the hosts do: queue pairs, messages, rates, and what is wrong with a host."""

from __future__ import annotations

import json
import random
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, Self

from .topology import HOSTS, Fabric, address, host_mac, leaf_mac

_FILES = {"rc": "endpoint.py", "mrc": "mrc_endpoint.py"}
ACROSS = tuple((a, b) for a in HOSTS for b in HOSTS if HOSTS[a] != HOSTS[b])
"""Pairs of hosts of different leaves."""
_ENDPOINTS = {name: Path(__file__).with_name(file) for name, file in _FILES.items()}


@dataclass
class HostFault:
    """From and until are seconds of the run; `kind` is dead, loses (the next packet, every time),
    nags (loses it and NAKs the one after it), rnr or access, of MRC port or skip."""

    kind: str
    host: int
    numbers: list[int]
    """Queue pairs; of a port the plane, from 0."""
    from_s: float
    until_s: float = 1e9


@dataclass
class QueuePair:
    """A requester and its responder."""

    source: int
    target: int
    number: int
    peer_number: int
    sport: int
    first_psn: int
    tos: int
    payload_bytes: int
    messages: list[int]
    operation: str


@dataclass
class Traffic:
    """The queue pairs of one run, the same for the same seed."""

    seed: int
    seconds: float
    family: int = 4
    transport: Literal["rc", "mrc"] = "rc"
    rate: int = 600
    """Packets per second that a host sends as a requester."""
    pairs_of_hosts: Sequence[tuple[int, int]] = ACROSS
    queue_pairs: int = 40
    tos: Sequence[int] = (0,)
    payload_bytes: Sequence[int] = (1024,)
    operations: Sequence[str] = ("write",)
    """Of these each queue pair does one: write, send or read."""
    cnp: bool = False
    silent: int | None = None
    """The host that sends no CNPs although the others do."""
    notifies: int | None = None
    """The host that sends CNPs without a mark."""
    dont_fragment: bool = True
    """Of IPv4: routers drop what exceeds their MTU instead of fragmenting it."""
    icrc: bool = False
    """Whether hosts compute and check the ICRC, and captures keep whole frames."""
    retry_cnt: int = 0
    """0: endless."""
    timeout_s: float = 0.25
    linger_s: float = 0.8
    """How long the hosts answer after they stop sending: until the queues are empty."""
    faults: list[HostFault] = field(default_factory=list)
    made: list[QueuePair] = field(default_factory=list)

    def __post_init__(self) -> None:
        chance = random.Random(self.seed)
        next_number = {host: chance.randrange(0x11, 0x200) for host in HOSTS}
        sources = [source for source, _ in self.pairs_of_hosts]
        for i in range(self.queue_pairs):
            source, target = self.pairs_of_hosts[i % len(self.pairs_of_hosts)]
            here = sources.count(source) * self.queue_pairs / len(sources)
            share = self.rate * self.seconds / here
            messages: list[int] = []
            while sum(messages) < 3 * share:
                messages.append(chance.randint(16, 64))
            for host in (source, target):
                next_number[host] += 1
            self.made.append(
                QueuePair(
                    source,
                    target,
                    next_number[source],
                    next_number[target],
                    chance.randrange(49152, 65536),
                    chance.randrange(1 << 24),
                    chance.choice(self.tos),
                    chance.choice(self.payload_bytes),
                    messages,
                    self.operations[i * len(self.operations) // self.queue_pairs],
                )
            )

    def config(self, host: int) -> dict[str, Any]:
        """The configuration of the endpoint of a host."""
        pairs = []
        for pair in self.made:
            common = {
                "sport": pair.sport,
                "tos": pair.tos,
                "payload_bytes": pair.payload_bytes,
                "first_psn": pair.first_psn,
                "operation": pair.operation,
            }
            ends = [
                (pair.source, pair.number, pair.target, pair.peer_number, True),
                (pair.target, pair.peer_number, pair.source, pair.number, False),
            ]
            pairs += [
                {
                    "number": number,
                    "peer_number": peer_number,
                    "peer": address(peer, self.family),
                    "requester": requester,
                    "messages": pair.messages if requester else [],
                    **common,
                }
                for here, number, peer, peer_number, requester in ends
                if here == host
            ]
        return {
            "family": self.family,
            "address": address(host, self.family),
            "mac": host_mac(host),
            "to_mac": leaf_mac(host),
            "pairs": pairs,
            "rate": self.rate,
            "cnp": "always" if host == self.notifies else self.cnp and host != self.silent,
            "dont_fragment": self.dont_fragment,
            "icrc": self.icrc,
            "retry_cnt": self.retry_cnt,
            "timeout_s": self.timeout_s,
            "seconds": self.seconds,
            "linger_s": self.linger_s,
            "faults": [
                {
                    "kind": fault.kind,
                    "numbers": fault.numbers,
                    "from_s": fault.from_s,
                    "until_s": fault.until_s,
                }
                for fault in self.faults
                if fault.host == host
            ],
        }


class Running:
    """The endpoints of all hosts; `results` by host after it is closed."""

    def __init__(self, traffic: Traffic, fabric: Fabric) -> None:
        self.results: dict[int, dict[str, Any]] = {}
        self._processes: dict[int, subprocess.Popen[str]] = {}
        for host in HOSTS:
            command = ["ip", "netns", "exec", fabric.name(f"H{host}"), sys.executable]
            process = subprocess.Popen(
                [*command, str(_ENDPOINTS[traffic.transport])],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
            )
            print(json.dumps(traffic.config(host)), file=process.stdin, flush=True)
            self._processes[host] = process
        for process in self._processes.values():
            assert process.stdout.readline() == "ready\n"

    def start(self, at: float) -> None:
        """All of them start at this monotonic time."""
        for process in self._processes.values():
            print(at, file=process.stdin, flush=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for host, process in self._processes.items():
            process.stdin.close()
            self.results[host] = json.loads(process.stdout.read())
            assert process.wait(300) == 0, f"the endpoint of H{host} failed"
