"""Which questions a trace asks of which router, and their answers.

hop.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal, NamedTuple, TypeAlias

import numpy as np

from ...kernels.kernel import Bools, Int32s, Ints
from ...replay.compare.captured import links_by_port
from ...replay.fabrics.devices import has_no_cable, parent_of
from ...replay.fabrics.fabric import Fabric
from ...replay.hashing.keys import address_of
from ...replay.hashing.settings import HashSettings
from ...replay.traffic.traffic import Traffic
from ..asking import COMMAND, Query, Request, Run, batch, is_port, plain, ports_of
from ..dialects.dialect import Dialect
from .results import AskedSwitch, AskReport

# Next hops of flows asked from switches, each in the way of its dialect.
#
# Linux answers a whole batch at once. A system with a calculator gets one command per flow, of
# which a few hundred are asked. SONiC has none that only reads, and `ip route get` would tell the
# choice of its CPU, not that of its chip: it is not asked.

MOST_COMMANDS = 512
"""Questions per hop to a system that takes one command per flow."""
_AT_ONCE = 4
"""As many as run at once on a connection."""
_MOST_BYTES = 64 << 10
"""Of the answer to one question."""
NO_CALCULATOR = "its system has no read-only path command"
TOO_MANY = f"more than {MOST_COMMANDS} questions to one switch, one command each"
NOT_ASKED_ON = f"not asked further after {_AT_ONCE} commands without an answer"

Dialects = Mapping[str, Dialect]
"""By name of the switch; one without is asked as Linux."""


class Ports(NamedTuple):
    """The answers of one switch."""

    ports: list[str | None]
    """The port that each query leaves by; None without an answer of use."""
    problem: str
    """Why some are missing; empty: every command was answered."""


def asks_as_linux(dialect: Dialect | None) -> bool:
    """Whether `ip route get` shows what its packets do."""
    return dialect is None or bool(dialect.met)


def ports_told(
    run: Run,
    asked: Sequence[tuple[str, Sequence[Query]]],
    dialects: Dialects,
    left: dict[str, int] | None = None,
) -> list[Ports]:
    """The ports that switches name for their queries, all switches at once.

    left: how many commands each system with a calculator still gets, MOST_COMMANDS unless it is
    there; this call takes its own off.
    """
    asked = [(switch, [plain(query) for query in queries]) for switch, queries in asked]
    linux = [i for i, (switch, _) in enumerate(asked) if asks_as_linux(dialects.get(switch))]
    batches = [Request(asked[i][0], COMMAND, batch(asked[i][1])) for i in linux]
    results = [Ports([None] * len(queries), NO_CALCULATOR) for _, queries in asked]
    for i, said in zip(linux, run(batches) if batches else (), strict=True):
        results[i] = Ports(ports_of(asked[i][1], said.output), said.problem)
    _calculate(run, asked, dialects, {} if left is None else left, results)
    return results


def _calculate(
    run: Run,
    asked: Sequence[tuple[str, Sequence[Query]]],
    dialects: Dialects,
    left: dict[str, int],
    results: list[Ports],
) -> None:
    """Set `results` of systems with a calculator, _AT_ONCE commands per switch and round.

    A switch is not asked on after a round without an answer: each may take its whole time limit.
    """
    waiting: dict[str, list[tuple[int, int]]] = {}
    calculators = {name: kind.calculator for name, kind in dialects.items() if kind.calculator}
    for i, (switch, queries) in enumerate(asked):
        if switch in calculators and not asks_as_linux(dialects[switch]):
            allowed = min(left.get(switch, MOST_COMMANDS), len(queries))
            left[switch] = left.get(switch, MOST_COMMANDS) - allowed
            results[i] = Ports(results[i].ports, TOO_MANY if allowed < len(queries) else "")
            waiting.setdefault(switch, []).extend((i, row) for row in range(allowed))
    while waiting := {switch: rows for switch, rows in waiting.items() if rows}:
        now = [(switch, *at) for switch, rows in waiting.items() for at in rows[:_AT_ONCE]]
        commands = [calculators[switch].command(asked[i][1][row]) for switch, i, row in now]
        answers = run(
            [
                Request(switch, command, most_bytes=_MOST_BYTES)
                for (switch, _, _), command in zip(now, commands, strict=True)
            ]
        )
        answering = set()
        for (switch, i, row), command, said in zip(now, commands, answers, strict=True):
            if not said.problem:
                answering.add(switch)
                results[i].ports[row] = calculators[switch].port(said.output)
            if results[i].ports[row] is None and not results[i].problem:
                problem = said.problem or "its answer is not as documented"
                results[i] = Ports(results[i].ports, f"`{command}`: {problem}")
        for switch in waiting:
            if switch not in answering:
                left[switch] = 0
                for i in {i for i, _ in waiting[switch]}:
                    results[i] = Ports(results[i].ports, results[i].problem or NOT_ASKED_ON)
        waiting = {
            switch: rows[_AT_ONCE:] for switch, rows in waiting.items() if switch in answering
        }


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
            link = None
            if port is not None:
                link = self._ports.get((name, port), self._ports.get((name, parent_of(port))))
            begin, end = forwarding.group_start[group : group + 2]
            links = forwarding.group_links[begin:end].tolist()
            is_cable = port is not None and (link is not None or not has_no_cable(port))
            unknown = ELSEWHERE if is_cable else NO_ANSWER
            members.append(links.index(link) if link in links else unknown)
        return members


def _kind_of(dialect: Dialect | None) -> str:
    """The same for a system with a calculator of its own."""
    if dialect is None or dialect.calculator is None:
        return _MUTE
    return "all" if dialect.calculator.ipv6 else "none"


def _kind(settings: HashSettings | None) -> str:
    """Of which IPv6 packets `ip route get` names the next hop: one of _KINDS."""
    policy = None if settings is None else settings.extra.get("policy", 1)
    if policy == 1:
        return "all"
    return "no label" if policy in (0, 2) else "none"
