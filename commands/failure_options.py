"""`replay --transport`, `--fail` and `--converge`: how hosts send, and what fails meanwhile."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ..analyzer.errors import UsageError
from ..analyzer.units import parse_duration, parse_rate

if TYPE_CHECKING:
    from ..replay.fabric import Fabric
    from ..replay.failures import Failures, LinkEvent
    from ..replay.transport.parameters import Transport

_PS = 1000
TRANSPORT = ("recovery", "congestion", "reordering", "rto", "rate")


def parse_transport(text: str) -> Transport:
    """`recovery=sack,congestion=nscc,reordering=32,rto=70us,rate=95%`; UsageError names the key."""
    from ..replay.strategies import parse_options
    from ..replay.transport.parameters import Transport

    options = parse_options(text, "--transport")
    values: dict[str, Any] = {}
    for key, value in options.items():
        if key not in TRANSPORT:
            raise UsageError(f"--transport has no {key!r}; it has {', '.join(TRANSPORT)}")
        if key in ("recovery", "congestion"):
            values[key] = value
        elif key == "reordering":
            if not value.isascii() or not value.isdecimal():
                raise UsageError(f"--transport: reordering={value} is not a whole number")
            values["reordering_packets"] = int(value)
        elif key == "rto":
            values["rto_ps"] = parse_duration(value, "--transport: rto") * _PS
        else:
            values["rate_share"] = _share(value, "--transport: rate")
    try:
        return Transport(**values)
    except UsageError as error:
        words = str(error).replace("reordering_packets", "reordering").replace("rto_ps", "rto")
        raise UsageError(f"--transport: {words.replace('rate_share', 'rate')}") from None


def parse_failures(texts: Sequence[str], converge: str, fabric: Fabric, seed: int) -> Failures:
    """`spine1@100us..250us`, `1%`, `leaf1-spine1=100G@50us`, `plane1`, ... with times from 0 on.

    UsageError says what is wrong with which.
    """
    from ..replay.failures import Failures

    events = tuple(event for text in texts for event in _events(text, fabric, seed))
    if converge == "never":
        return Failures(events, None)
    return Failures(events, _time_ps(converge, "--converge"))


def _events(text: str, fabric: Fabric, seed: int) -> tuple[LinkEvent, ...]:
    from ..replay.blast_radius import links_of
    from ..replay.failures import LOSSY, SLOW, LinkEvent, flapping, outage, random_cables

    what, _, times = text.partition("@")
    where, _, how = what.partition("=")
    begin, dots, end = times.partition("..")
    begin_ps = _time_ps(begin or "0", f"--fail {text}")
    end_ps = _time_ps(end, f"--fail {text}") if end else None
    if dots and end_ps is None or end_ps is not None and end_ps <= begin_ps:
        raise UsageError(f"--fail {text}: write FROM..TO, for example 100us..250us")
    if where.endswith("%"):
        if how:
            raise UsageError(f"--fail {text}: a share of all cables can only be down")
        return random_cables(fabric, _share(where, f"--fail {text}"), seed, begin_ps, end_ps)
    links = [int(link) for link in links_of(fabric, where)]
    if not how:
        return outage(links, begin_ps, end_ps)
    if how.startswith("flap:"):
        down, _, up = how.removeprefix("flap:").partition(":")
        if end_ps is None:
            raise UsageError(f"--fail {text}: flapping needs an end, @FROM..TO")
        both = [_time_ps(one, f"--fail {text}") for one in (down, up)]
        return flapping(links, begin_ps, end_ps, *both)
    if how.endswith("%"):
        kind, value = LOSSY, _share(how, f"--fail {text}")
    else:
        kind, value = SLOW, float(parse_rate(how, f"--fail {text}"))
    events = [LinkEvent(begin_ps, link, kind, value) for link in links]
    if end_ps is not None:
        rates = fabric.links.rate_bits_per_second
        if kind == SLOW:
            events += [LinkEvent(end_ps, link, SLOW, float(rates[link])) for link in links]
        else:
            events += [LinkEvent(end_ps, link, LOSSY, 0.0) for link in links]
    return tuple(events)


def _time_ps(text: str, option: str) -> int:
    return 0 if text == "0" else parse_duration(text, option) * _PS


def _share(text: str, option: str) -> float:
    try:
        share = float(text.removesuffix("%")) / 100 if text.endswith("%") else -1.0
    except ValueError:
        share = -1.0
    if not 0.0 <= share <= 1.0:
        raise UsageError(f"{option}: {text!r} is not a share; write it like 1%")
    return share
