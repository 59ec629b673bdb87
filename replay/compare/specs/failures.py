"""`--fail` and `--converge`: failures during a run, and when routing converges."""

from __future__ import annotations

from collections.abc import Sequence

from ....analyzer.errors import UsageError
from ....analyzer.units import parse_rate
from ...fabrics.fabric import Fabric
from ...packets.failures import LOSSY, SLOW, Failures, LinkEvent, flapping, outage, random_cables
from ...packets.model.draws import generator
from .values import share, time_ps
from .words import NEVER

_FLAPPING = "flap:20us:20us@0..500us"


def parse_failures(texts: Sequence[str], converge: str, fabric: Fabric, seed: int) -> Failures:
    """`spine1@100us..250us`, `1%`, `leaf1-spine1=100G@50us`, `plane1`, ... with times from 0.

    UsageError names the value and its mistake.
    """
    events = tuple(event for text in texts for event in _named(text, fabric, seed))
    if converge == NEVER:
        return Failures(events, None)
    return Failures(events, time_ps(converge, "--converge"))


def _named(text: str, fabric: Fabric, seed: int) -> tuple[LinkEvent, ...]:
    """`_events`; errors name the option and its value."""
    try:
        return _events(text, fabric, seed)
    except UsageError as error:
        if str(error).startswith("--fail"):
            raise
        raise UsageError(f"--fail {text}: {error}") from None


def _events(text: str, fabric: Fabric, seed: int) -> tuple[LinkEvent, ...]:
    what, _, times = text.partition("@")
    where, equals, how = what.partition("=")
    if where.startswith("flap:"):
        raise UsageError(f"flapping needs a link, for example leaf1-spine1={_FLAPPING}")
    begin_ps, end_ps = _times(times, text, seed)
    if where.endswith("%") and "~" in times:
        return _each_at_its_time(text, fabric, seed)
    if where.endswith("%"):
        if how:
            raise UsageError(f"--fail {text}: a share of all cables can only be down")
        return random_cables(fabric, share(where, f"--fail {text}"), seed, begin_ps, end_ps)
    from ...flows.checks.blast_radius import links_of

    links = [int(link) for link in links_of(fabric, where)]
    if not equals:
        return outage(links, begin_ps, end_ps)
    if how.startswith("flap:"):
        down, _, up = how.removeprefix("flap:").partition(":")
        if end_ps is None:
            raise UsageError(f"flapping needs an end, for example {where}={_FLAPPING}")
        both = [time_ps(one, f"--fail {text}") for one in (down, up)]
        if not all(both):
            raise UsageError(f"times of flapping must be above 0, for example {where}={_FLAPPING}")
        return flapping(links, begin_ps, end_ps, *both)
    if how.endswith("%"):
        kind, value = LOSSY, share(how, f"--fail {text}")
    else:
        try:
            kind, value = SLOW, float(parse_rate(how, "--fail"))
        except UsageError:
            raise UsageError(
                f"{how!r} is not a rate, share or flapping; write for example {where}=100G, "
                f"{where}=0.1% or {where}={_FLAPPING}"
            ) from None
    events = [LinkEvent(begin_ps, link, kind, value) for link in links]
    if end_ps is not None:
        rates = fabric.links.rate_bits_per_second
        if kind == SLOW:
            events += [LinkEvent(end_ps, link, SLOW, float(rates[link])) for link in links]
        else:
            events += [LinkEvent(end_ps, link, LOSSY, 0.0) for link in links]
    return tuple(events)


def _each_at_its_time(text: str, fabric: Fabric, seed: int) -> tuple[LinkEvent, ...]:
    """A share of all cables, each at its own random time."""
    what, _, times = text.partition("@")
    failed = random_cables(fabric, share(what, f"--fail {text}"), seed)
    events: list[LinkEvent] = []
    for number in range(0, len(failed), 2):  # both directions of a cable
        both = [event.link for event in failed[number : number + 2]]
        events += outage(both, *_times(times, text, seed, number))
    return tuple(events)


def _times(when: str, text: str, seed: int, number: int = 0) -> tuple[int, int | None]:
    """(begin, end) of `10us`, `10us..50us`, `10us+40us`; `0~10us` draws a begin in
    this interval with the seed."""
    where = f"--fail {text}"
    begin, dots, end = when.partition("..")
    begin, plus, length = begin.partition("+")
    begin, drawn, latest = begin.partition("~")
    begin_ps = time_ps(begin or "0", where)
    if drawn:
        latest_ps = time_ps(latest, where)
        if dots or latest_ps <= begin_ps:
            raise UsageError(f"{where}: write EARLIEST~LATEST+LENGTH, for example 0~100us+40us")
        rng = generator(seed, number, *text.encode())
        begin_ps = int(rng.integers(begin_ps, latest_ps, endpoint=True))
    if plus:
        if dots or not time_ps(length, where):
            raise UsageError(f"{where}: write FROM..TO or FROM+LENGTH, with a length above 0")
        return begin_ps, begin_ps + time_ps(length, where)
    end_ps = time_ps(end, where) if end else None
    if (dots and end_ps is None) or (end_ps is not None and end_ps <= begin_ps):
        raise UsageError(f"{where}: write FROM..TO, for example 100us..250us")
    return begin_ps, end_ps
