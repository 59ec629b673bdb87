"""Next hops that switches name themselves, asked while paths are walked: in batches per switch and
hop."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, TypeAlias

import numpy as np

from ...kernels.kernel import Bools, Int32s, Ints
from ...replay.compare.captured import links_by_port
from ...replay.fabrics.fabric import Fabric
from ...replay.hashing.keys import address_of
from ...replay.hashing.settings import HashSettings
from ...replay.traffic.traffic import Traffic
from ..asking.commands import Run
from ..asking.route_get import Query, is_port
from ..dialects.dialect import Dialect
from .questions import NO_CALCULATOR, Dialects, asks_as_linux, ports_told
from .results import AskedSwitch, AskReport

Mode: TypeAlias = Literal["sample", "all"]
MOST_QUERIES = 20_000
"""Of one batch: its answers stay far below the limits of a command, 16 MiB and 30 s."""
SAMPLE = 32
"""Computed hops that are asked per switch and hop with mode sample."""
_MUTE = "never"
_KINDS = ("all", "no label", "none", _MUTE)
NO_ANSWER, ELSEWHERE = -1, -2
"""In place of a member: none, or a port that is not in the group of the tables."""


class Asking:
    """Asks switches by their dialects: Linux routers with `ip route get`.

    mode all: every hop with a choice. mode sample: a sample of the computed hops, all hops that
    cannot be computed, and all hops of a switch that contradicted the computation.
    """

    def __init__(self, run: Run, mode: Mode, dialects: Dialects | None = None) -> None:
        self._run, self._mode = run, mode
        self._dialects = dialects or {}
        self._counts: dict[str, list[int]] = {}
        self._problems: dict[str, str] = {}
        self._not_asked: dict[str, int] = {}
        self._rng = np.random.default_rng(1)

    def begin(self, traffic: Traffic, fabric: Fabric) -> None:
        """The traffic whose units `members` asks about."""
        self._traffic, self._fabric = traffic, fabric
        self._ports = links_by_port(fabric)
        self._names = {link: port for (_, port), link in self._ports.items()}
        label = traffic.keys.flow_label == 0
        own_dialects = [self._dialects.get(name) for name in fabric.nodes.names[: fabric.switches]]
        kinds = [
            _kind(setting) if asks_as_linux(dialect) else _kind_of(dialect)
            for setting, dialect in zip(fabric.hash_settings, own_dialects, strict=True)
        ]
        self._kind = np.array([_KINDS.index(kind) for kind in kinds], np.int8)
        every = {"all": np.ones_like(label), "no label": label, "none": np.zeros_like(label)}
        self._askable = np.stack([~traffic.keys.ipv6 | every[kind] for kind in every])
        self._mute = np.array([kind == _MUTE for kind in kinds], np.bool_)

    def members(
        self, rows: Ints, at: Int32s, came_by: Int32s, groups: Int32s, chosen: Ints, trusted: Bools
    ) -> Ints:
        """int64[n]: the member of its group that each unit takes, NO_ANSWER or ELSEWHERE.

        chosen: computed members, of use where `trusted`.
        """
        members = np.full(len(rows), NO_ANSWER, np.int64)
        left: dict[str, int] = {}
        askable = self._askable[np.minimum(self._kind[at], 2), rows]
        self._note(
            "IPv6: the switch would name another next hop than packets take, or none", ~askable
        )
        self._note(f"{NO_CALCULATOR} (SONiC)", askable & self._mute[at])
        askable &= ~self._mute[at]
        known = np.array([is_port(self._names.get(link ^ 1, "")) for link in came_by.tolist()])
        self._note("the ingress port is not known", askable & ~known)
        askable &= known
        wanted = askable if self._mode == "all" else askable & self._sampled(at, trusted)
        self._ask(np.flatnonzero(wanted), rows, at, came_by, groups, members, left)
        wrong = np.unique(at[wanted & trusted & (members != NO_ANSWER) & (members != chosen)])
        rest = askable & ~wanted & np.isin(at, wrong)
        self._ask(np.flatnonzero(rest), rows, at, came_by, groups, members, left)
        answered = (members != NO_ANSWER) & trusted
        for switch in np.unique(at[answered]).tolist():
            at_switch = answered & (at == switch)
            count = self._count(switch)
            count[2] += int(np.count_nonzero(at_switch))
            count[3] += int(np.count_nonzero(at_switch & (members == chosen)))
        return members

    def report(self) -> AskReport:
        """What was asked, and how often the computation agreed."""
        return AskReport(
            mode=self._mode,
            switches=[
                AskedSwitch(
                    switch=name,
                    questions=asked,
                    answers=answers,
                    computed_too=both,
                    agreeing=agreeing,
                    problem=self._problems.get(name),
                )
                for name, (asked, answers, both, agreeing) in sorted(self._counts.items())
            ],
            not_asked=self._not_asked,
        )

    def _note(self, why: str, rows: Bools) -> None:
        if rows.any():
            self._not_asked[why] = self._not_asked.get(why, 0) + int(np.count_nonzero(rows))

    def _count(self, switch: int) -> list[int]:
        return self._counts.setdefault(self._fabric.nodes.names[switch], [0, 0, 0, 0])

    def _sampled(self, at: Int32s, trusted: Bools) -> Bools:
        """All rows that are not trusted, and SAMPLE of the others per switch."""
        chosen = ~trusted
        for switch in np.unique(at[trusted]).tolist():
            trusted_rows = np.flatnonzero(trusted & (at == switch))
            chosen[self._rng.permutation(trusted_rows)[:SAMPLE]] = True
        return chosen

    def _ask(
        self,
        which: Ints,
        rows: Ints,
        at: Int32s,
        came_by: Int32s,
        groups: Int32s,
        members: Ints,
        left: dict[str, int],
    ) -> None:
        """Set `members` of some rows, with batches of at most MOST_QUERIES per switch."""
        switches = [
            (switch, part[first : first + MOST_QUERIES])
            for switch in np.unique(at[which]).tolist()
            for part in (which[at[which] == switch],)
            for first in range(0, len(part), MOST_QUERIES)
        ]
        queries = [[self._query(rows[i], came_by[i]) for i in part] for _, part in switches]
        names = self._fabric.nodes.names
        said = ports_told(
            self._run,
            [(names[switch], q) for (switch, _), q in zip(switches, queries, strict=True)],
            self._dialects,
            left,
        )
        for (switch, part), asked, (ports, problem) in zip(switches, queries, said, strict=True):
            answered = sum(port is not None for port in ports)
            count = self._count(switch)
            count[0] += len(asked)
            count[1] += answered
            if problem and answered < len(asked):
                self._problems[names[switch]] = problem
            members[part] = self._members(switch, ports, groups[part])

    def _query(self, unit: int, came_by: int) -> Query:
        keys = self._traffic.keys
        return Query(
            address_of(keys.src[unit]),
            address_of(keys.dst[unit]),
            int(keys.sport[unit]),
            int(keys.dport[unit]),
            self._names[int(came_by) ^ 1],
        )

    def _members(self, switch: int, ports: Sequence[str | None], groups: Int32s) -> list[int]:
        forwarding, name = self._fabric.forwarding, self._fabric.nodes.names[switch]
        members = []
        for port, group in zip(ports, groups.tolist(), strict=True):
            link = self._ports.get((name, port)) if port is not None else None
            begin, end = forwarding.group_start[group : group + 2]
            links = forwarding.group_links[begin:end].tolist()
            unknown = NO_ANSWER if port is None else ELSEWHERE
            members.append(links.index(link) if link in links else unknown)
        return members


def _kind_of(dialect: Dialect | None) -> str:
    """The same for a system with a calculator of its own."""
    if dialect is None or dialect.calculator is None:
        return _MUTE
    return "all" if dialect.calculator.ipv6 else "none"


def _kind(settings: HashSettings | None) -> str:
    """Of which IPv6 packets `ip route get` names the next hop (route_get.py): one of _KINDS."""
    policy = None if settings is None else settings.extra.get("policy", 1)
    if policy == 1:
        return "all"
    return "no label" if policy in (0, 2) else "none"
