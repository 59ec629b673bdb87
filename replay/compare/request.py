"""A replay that is asked for: its options as text."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace

from ...analyzer.errors import UsageError
from ...analyzer.wire.bth import ROCE_UDP_PORT
from ..strategies.registry import needs_packets

NEVER = "never"
"""`--converge`: switches learn only of failures of their own links."""
INFINITE, PFC = "infinite", "pfc"
"""`--lossless`."""
JOBS = "jobs"
"""How jobs are offered: messages and computations after what they wait for."""
DEFAULT_STRATEGIES = ("ecmp", "assign")
_WORDS = (
    "pattern", "jobs", "offer", "model", "lossless", "priority", "transport", "fail", "converge"
)  # fmt: skip

_SEVERAL = ("fail", "jobs", "priority")
"""May be given several times."""


@dataclass(frozen=True)
class ReplayRequest:
    """Options of `rocescope replay`, see docs/replay.md, unchecked."""

    fabric: str
    strategies: tuple[str, ...] = DEFAULT_STRATEGIES
    captures: tuple[str, ...] = ()
    """Captures; empty with a pattern."""
    pattern: str = ""
    jobs: tuple[str, ...] = ()
    """Jobs; the pattern is then traffic beside them."""
    tap_names: Mapping[str, str] = field(default_factory=dict)
    ethers: Mapping[int, str] = field(default_factory=dict)
    """Names of the taps of captures, by path; others have the names of their files."""
    map: str = "exact"
    filter: str | None = None
    concat: bool = False
    udp_ports: tuple[int, ...] = (ROCE_UDP_PORT,)
    job_logs: tuple[str, ...] = ()
    """Patterns of logs that name the ranks of queue pairs."""
    window: str = ""
    packets: bool = False
    """Use the packet engine even if no other option needs it."""
    model: str = ""
    lossless: str = ""
    """PFC, or queues without a limit; empty: PFC, unless the model has a buffer."""
    priority: tuple[str, ...] = ()
    """Classes of data, the first for all but the pattern beside jobs, which has the last."""
    transport: str = ""
    offer: str = ""
    """When captured packets are offered, one of OFFERS; empty: CAPTURED."""
    fail: tuple[str, ...] = ()
    converge: str = NEVER
    runs: int = 1
    seed: int = 1

    @property
    def by_packet(self) -> bool:
        """Whether an option needs the packet engine."""
        asked = self.packets or self.model or self.transport or self.fail or self.runs != 1
        asked = asked or self.jobs or self.lossless or self.priority or self.offer
        return bool(asked) or any(needs_packets(text) for text in self.strategies)

    @property
    def generated(self) -> bool:
        """Whether the traffic is a pattern or jobs, in place of captures."""
        return bool(self.pattern or self.jobs)

    @property
    def sources(self) -> list[str]:
        """The sources of the traffic, for the report."""
        generated = [*self.jobs, *filter(None, [self.pattern])]
        return [" + ".join(generated)] if generated else list(self.captures)

    @property
    def options(self) -> str:
        """Pattern, model, transport and failures that differ from the defaults."""
        words = []
        for name in _WORDS:
            value = getattr(self, name)
            if value != _DEFAULTS[name]:
                values = value if isinstance(value, tuple) else (value,)
                words += [f"--{name} {shlex.quote(word)}" for word in values]
        return " ".join(words)

    @property
    def words(self) -> str:
        """The input of `with_words`: fabric, host map, options."""
        return f"{shlex.quote(self.fabric)} {shlex.quote(self.map)} {self.options}".rstrip()


_DEFAULTS = {field.name: field.default for field in fields(ReplayRequest)}


def with_words(before: ReplayRequest, text: str) -> ReplayRequest:
    """`FABRIC [MAP] [--pattern P] [--fail F]...`: the request with only these options.

    UsageError for an unknown option or a missing value.
    """
    places, options = sorted_out(text, _WORDS)
    changes: dict[str, object] = {name: _DEFAULTS[name] for name in _WORDS}
    for name, values in options.items():
        if name not in _SEVERAL:
            once(name, values)
        changes[name] = tuple(values) if name in _SEVERAL else values[0]
    changes |= dict(zip(("fabric", "map"), places, strict=False))
    return replace(before, **changes)  # type: ignore[arg-type]


def sorted_out(text: str, known: Sequence[str]) -> tuple[list[str], dict[str, list[str]]]:
    """(fabric and host map, values by option) of a line with these options. UsageError for any
    other."""
    try:
        words = shlex.split(text)
    except ValueError as error:
        raise UsageError(f"{text}: {error}") from None
    places: list[str] = []
    options: dict[str, list[str]] = {}
    rest = iter(words)
    for word in rest:
        if not word.startswith("--"):
            places.append(word)
            continue
        name, equals, value = word.removeprefix("--").partition("=")
        if name not in known:
            raise UsageError(f"there is no option {word}; there are --{', --'.join(known)}")
        text_of_value = value if equals else next(rest, None)
        if not text_of_value:
            raise UsageError(f"--{name} needs a value")
        options.setdefault(name, []).append(text_of_value)
    if not 1 <= len(places) <= 2:
        raise UsageError("give a fabric, and a host map if it changes")
    return places, options


def once(name: str, values: Sequence[str]) -> None:
    """UsageError for several values of an option that has one."""
    if len(values) > 1:
        raise UsageError(f"--{name} is given twice")
