"""Faults of generated training jobs, `slow-gpu:rank=2,from=4,factor=1.35`, and places of taps."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

import numpy as np

from ...analyzer.errors import UsageError
from ...analyzer.spec import Options, parse_spec
from ...analyzer.words import choices, parse_duration
from ...kernels.kernel import Int32s, Ints
from ..fabrics.fabric import Fabric
from ..packets.failures import LOSSY, SLOW, LinkEvent, cables
from .jobs import Plan, RankFault

PS: Final = 1_000
_RANK_KINDS: Final = {"slow-gpu": "slow_compute", "late-launch": "late_launch", "hang": "hang"}
_LINK_KINDS: Final = {"slow-nic": "slow_nic", "congested-link": "congested_link", "loss": "loss"}
"""Names of faults, and those that truth.json has."""
_WHO: Final = ("job", "rank", "from", "until")
_KEYS: Final = {
    "slow-gpu": (*_WHO, "factor"),
    "late-launch": (*_WHO, "delay"),
    "hang": ("job", "rank", "from", "restart", "lost-steps", "kernel"),
    "slow-nic": (*_WHO, "factor"),
    "congested-link": ("job", "link", "from", "until", "factor"),
    "loss": (*_WHO, "link", "chance"),
}


class LinkFault(NamedTuple):
    """A fault of links, from a step or time to before another."""

    kind: str
    job: str
    """Whose steps are meant."""
    link: str | None
    """Its name; None: the interfaces of ranks."""
    links: tuple[int, ...]
    ranks: tuple[int, ...]
    begin: str
    """A step or a time."""
    end: str | None
    factor: float
    """Of the rate."""
    chance: float
    """Of loss."""

    def span_ps(self, step_begins: Callable[[str, int], int]) -> tuple[int, int | None]:
        """When it acts. step_begins: time at which a step of a job begins without faults."""
        begin = _time_ps(self, self.begin, step_begins)
        return begin, None if self.end is None else _time_ps(self, self.end, step_begins)

    def events(self, fabric: Fabric, begin: int, end: int | None) -> list[LinkEvent]:
        events = []
        for link in self.links:
            rate = float(fabric.links.rate_bits_per_second[link])
            what, value, usual = SLOW, rate * self.factor, rate
            if self.kind == "loss":
                what, value, usual = LOSSY, self.chance, 0.0
            events.append(LinkEvent(begin, link, what, value))
            if end is not None:
                events.append(LinkEvent(end, link, what, usual))
        return events


def _time_ps(fault: LinkFault, text: str, step_begins: Callable[[str, int], int]) -> int:
    if text.isdecimal():
        return step_begins(fault.job, int(text))
    return parse_duration(text, f"--fault {fault.kind}", zero=True) * PS


class Restart(NamedTuple):
    """What follows a hang."""

    after_ps: int
    lost_steps: int
    """Steps before the hanging one that are computed again."""


class Faults(NamedTuple):
    """All faults of a run."""

    ranks: tuple[RankFault, ...] = ()
    links: tuple[LinkFault, ...] = ()
    restarts: dict[str, Restart] = {}
    """By the name of a job that hangs and returns."""

    def hang_of(self, job: str) -> RankFault | None:
        """The hang of a job."""
        return next((f for f in self.ranks if f.kind == "hang" and f.job == job), None)


def parse_faults(
    texts: Sequence[str], plans: Sequence[Plan], hosts: Sequence[Int32s], fabric: Fabric
) -> Faults:
    """hosts: of the ranks of each job. UsageError names the fault and key."""
    ranks: list[RankFault] = []
    links: list[LinkFault] = []
    restarts: dict[str, Restart] = {}
    for text in texts:
        kind, o = parse_spec(text, "--fault")
        if kind not in _KEYS:
            raise UsageError(f"--fault: there is no fault {kind!r}; {choices(kind, _KEYS)}")
        o.check_known(_KEYS[kind])
        names = [plan.name for plan in plans]
        if o.get("job", names[0]) not in names:
            raise UsageError(f"{o.where}: there is no job {o['job']!r}; {choices(o['job'], names)}")
        at = names.index(o.get("job", names[0]))
        if "link" in o and "rank" in o:
            raise UsageError(f"{o.where}: link and rank cannot be combined")
        who = _ranks(o, plans[at]) if "link" not in o and kind != "congested-link" else ()
        if kind in _RANK_KINDS:
            if kind == "hang" and Faults(tuple(ranks)).hang_of(plans[at].name):
                raise UsageError(f"{o.where}: {plans[at].name} hangs twice; join ranks by +")
            ranks.append(_rank_fault(kind, o, plans[at], who))
            if "lost-steps" in o and "restart" not in o:
                raise UsageError(f"{o.where}: lost-steps needs restart=TIME")
            if "restart" in o:
                first = ranks[-1].from_step
                lost = o.whole("lost-steps", str(min(1, first)), 0, first)
                restarts[plans[at].name] = Restart(o.time_ps("restart"), lost)
        else:
            links.append(_link_fault(kind, o, plans[at], who, hosts[at], fabric))
    return Faults(tuple(ranks), tuple(links), restarts)


def _ranks(o: Options, plan: Plan) -> tuple[int, ...]:
    if "rank" not in o:
        raise UsageError(f"{o.where} needs rank=NUMBER, or several joined by +")
    ranks = []
    for text in o["rank"].split("+"):
        if not text.isdecimal() or int(text) >= plan.ranks:
            raise UsageError(f"{o.where}: rank is 0 to {plan.ranks - 1}, not {text!r}")
        ranks.append(int(text))
    return tuple(ranks)


def _rank_fault(kind: str, o: Options, plan: Plan, ranks: tuple[int, ...]) -> RankFault:
    first = o.whole("from", "0", 0, plan.steps - 1)
    return RankFault(
        _RANK_KINDS[kind],
        plan.name,
        ranks,
        first,
        o.whole("until", "", first + 1) if "until" in o else None,
        o.number("factor", "1.5", 0.1, 100),
        o.time_ps("delay", "5ms"),
        o.switched_on("kernel", "no"),
    )


def _link_fault(
    kind: str, o: Options, plan: Plan, ranks: tuple[int, ...], hosts: Int32s, fabric: Fabric
) -> LinkFault:
    if "link" in o:
        links = tuple(int(link) for link in fabric.find_links(o["link"]))
    elif kind == "congested-link":
        raise UsageError(f"{o.where} needs link=NAME, such as link=leaf1>spine1")
    else:
        at = fabric.attachments
        ends = [*at.access_link[hosts[list(ranks)]].flat, *at.exit_link[hosts[list(ranks)]].flat]
        links = tuple(int(link) for link in ends if link >= 0)
    for key in ("from", "until"):
        if key in o and not o[key].isdecimal():
            parse_duration(o[key], f"{o.where}: {key}", zero=True)
        elif key in o:
            o.whole(key, "", 0, plan.steps)
    begin, end = o.get("from", "0"), o.get("until", "")
    if begin.isdecimal() and end.isdecimal() and int(end) <= int(begin):
        raise UsageError(f"{o.where}: until={end} is not after from={begin}")
    return LinkFault(
        _LINK_KINDS[kind],
        plan.name,
        o.get("link"),
        links,
        ranks,
        o.get("from", "0"),
        o.get("until"),
        o.number("factor", "0.3", 0.001, 1),
        o.share("chance", "1%"),
    )


class Tap(NamedTuple):
    """A cable that is captured, at one of its ends."""

    name: str
    links: tuple[int, int]
    """Both directions."""
    node: int
    """The end."""


def all_cables(fabric: Fabric) -> Ints:
    """int64[n, 2]: both directions of every cable, those of hosts too."""
    at = fabric.attachments
    used = at.access_link >= 0
    return np.concatenate(
        [np.stack([at.access_link[used], at.exit_link[used]], 1).astype(np.int64), cables(fabric)]
    )


def parse_taps(text: str, fabric: Fabric, hosts: Sequence[int]) -> list[Tap]:
    """`leaf1`: all links of a leaf to other switches; `uplinks`: of all leaves, at the leaves;
    `hosts`: interfaces of these hosts; or links and nodes joined by +."""
    names, switches = fabric.nodes.names, fabric.switches
    ports = np.count_nonzero(fabric.attachments.access_link >= 0, axis=1)
    source, target = fabric.links.source, fabric.links.target
    taps: list[Tap] = []
    for part in text.split("+"):
        before = len(taps)
        wanted = set() if part in ("uplinks", "hosts") else set(fabric.find_links(part).tolist())
        for link, back in all_cables(fabric).tolist():
            a, b = int(source[link]), int(target[link])
            inner = a < switches and b < switches
            if part == "hosts":
                chosen = not inner and a - switches in hosts
            elif part == "uplinks":
                chosen = inner and 1 in (fabric.nodes.tier[a], fabric.nodes.tier[b])
            else:
                chosen = link in wanted or back in wanted
                chosen &= inner or "-" in part or part == names[a]
            if not chosen:
                continue
            node = b if part == names[b] else a
            is_only = not inner and ports[a - switches] == 1
            label = names[a] if is_only else fabric.link_name(link).replace(">", "-")
            taps.append(Tap(label, (link, back), node))
        if len(taps) == before:
            raise UsageError(f"--taps: {part!r} has no links; use uplinks, hosts, or names")
    return list({tap.links: tap for tap in taps}.values())
