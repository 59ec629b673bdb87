"""Next hops of flows asked from switches, each in the way of its dialect.

Linux answers a whole batch at once. A system with a calculator gets one command per flow, of which
a few hundred are asked. SONiC has none that only reads, and `ip route get` would tell the choice of
its CPU, not that of its chip: it is not asked.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from ..asking.commands import Request, Run
from ..asking.route_get import COMMAND, Query, batch, plain, ports_of
from ..dialects.dialect import Dialect

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
