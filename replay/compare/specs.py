"""Options of a replay as text: pattern, model, hosts, PFC, classes, failures."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from ...analyzer.errors import UsageError
from ...analyzer.spec import PS, Fields, Options, parse_options, parse_spec
from ...analyzer.words import (
    parse_duration,
    parse_number,
    parse_rate,
    parse_share,
    parse_size,
    parse_whole,
)
from ..fabrics.fabric import Fabric
from ..generate.from_pattern import generate, offered_traffic
from ..generate.patterns import Settings
from ..generate.queue_pairs import PATH_MTUS, QueuePairs, Sending
from ..packets.failures import (
    DOWN,
    LOSSY,
    SLOW,
    Failures,
    LinkEvent,
    flapping,
    outage,
    random_cables,
    rho_max,
)
from ..packets.hosts.transport import Transport
from ..packets.model.draws import generator
from ..packets.model.model import Model, Workload
from ..packets.model.queueing import MOST_CLASSES, Pfc, TrafficClass
from ..packets.offers import ITERATED, from_queue_pairs
from ..traffic.traffic import Traffic
from .request import INFINITE, NEVER, PFC

if TYPE_CHECKING:
    from ..packets.offers import Shape

# --model

_SIZES = {
    "mtu": "payload_bytes",
    "header": "header_bytes",
    "ack": "ack_bytes",
    "gap": "gap_bytes",
    "buffer": "buffer_bytes",
    "trim": "trim_bytes",
}
SHAPE = ("message-size", "qps")
"""Keys for captures alone; `mtu` is one of generated traffic, too."""
MODEL_KEYS = (
    *_SIZES,
    "drop",
    "jitter",
    "ack-every",
    "ecn",
    "ecn-last-hop",
    "forwarding",
    *SHAPE,
)
CUT_THROUGH, STORE = "cut-through", "store"
"""Values of forwarding."""
MOST_QPS = 64


def parse_model(text: str) -> Model:
    """The model from `buffer=800kB,ecn=80kB+320kB`. UsageError names the key and its valid
    values."""
    options = parse_options(text, "--model")
    options.check_known(MODEL_KEYS)
    values: dict[str, Any] = {
        name: options.size(key) for key, name in _SIZES.items() if key in options
    }
    if "drop" in options:
        values["drop"] = options["drop"]
    if "jitter" in options:
        values["jitter"] = options.share("jitter")
    if "ack-every" in options:
        values["ack_every"] = options.whole("ack-every")
    if "ecn" in options:
        low, *others = options["ecn"].split("+")
        if len(others) > 2:
            raise UsageError(
                f"--model: ecn={options['ecn']}: use Kmin, Kmin+Kmax or Kmin+Kmax+Pmax%"
            )
        values["ecn_low_bytes"] = parse_size(low, "--model: ecn")
        values["ecn_high_bytes"] = parse_size(others[0] if others else low, "--model: ecn")
        if len(others) == 2:
            values["ecn_most"] = parse_share(others[1], "--model: ecn")
    if "ecn-last-hop" in options:
        values["ecn_last_hop"] = options.switched_on("ecn-last-hop")
        if "ecn" not in options:
            raise UsageError("--model: ecn-last-hop needs ecn")
    values["cut_through"] = options.word("forwarding", STORE, CUT_THROUGH) == CUT_THROUGH
    try:
        model = Model(**values)
    except UsageError as error:
        raise UsageError(_with_keys(str(error))) from None
    if "drop" in options and model.buffer_bytes is None:
        raise UsageError("--model: drop needs buffer: unlimited queues do not drop")
    if model.buffer_bytes is not None and (model.ecn_low_bytes or 0) >= model.buffer_bytes:
        raise UsageError(
            f"--model: ecn: Kmin ({model.ecn_low_bytes:,} B) is not below buffer "
            f"({model.buffer_bytes:,} B): no packet would be marked"
        )
    if model.trim_bytes is not None:
        packet = model.payload_bytes + model.header_bytes
        if model.buffer_bytes is None:
            raise UsageError("--model: trim needs buffer: unlimited queues do not trim")
        if model.trim_bytes >= packet:
            raise UsageError(f"--model: trim must be less than a packet of {packet:,} B")
    return model


def _with_keys(text: str) -> str:
    """An error of the model with the keys of the option."""
    for key, attribute in {**_SIZES, "ack-every": "ack_every", "ecn: Pmax": "ecn_most"}.items():
        text = text.replace(attribute, key)
    return f"--model: {text}"


def parse_shape(text: str) -> Shape | None:
    """What `message-size=2x,qps=4,mtu=1024` changes; None: nothing. UsageError names the key."""
    options = parse_options(text, "--model")
    if not {"mtu", *SHAPE}.intersection(options):
        return None
    from ..packets.offers import Shape

    shape = Shape()
    if "mtu" in options:
        shape = shape._replace(mtu_bytes=parse_size(options["mtu"], "--model: mtu"))
    if "qps" in options:
        shape = shape._replace(queue_pairs=options.whole("qps", "", 1, MOST_QPS))
    size = options.get("message-size", "")
    if size.endswith("x"):
        shape = shape._replace(factor=_factor(size))
    elif size:
        shape = shape._replace(longest_bytes=parse_size(size, "--model: message-size"))
    return None if shape == Shape() else shape


def _factor(text: str) -> float:
    try:
        return parse_number(text.removesuffix("x"), "", 0.001, 1000)
    except UsageError:
        raise UsageError(
            f"--model: message-size={text}: use 0.001x to 1000x, or a size like 1MiB"
        ) from None


# --transport, --lossless and --priority

TRANSPORT_FIELDS: Final[Fields] = {
    "recovery": ("recovery", Options.__getitem__),
    "congestion": ("congestion", Options.__getitem__),
    "rto": (
        "rto_ps",
        Options.time_ps,
    ),
    "rate": ("rate_share", Options.share),
    "reordering": ("reordering_packets", Options.whole),
    "linear": ("linear_retries", Options.whole),
    "mpr": ("mpr_packets", Options.whole),
    "retries": ("retries", Options.whole),
}
RHO_MAX = "rho-max"
"""Value of rate: the highest rate at which the fabric carries all flows."""
LOSSLESS_FIELDS: Final[Fields] = {
    "buffer": ("shared_bytes", Options.size),
    "xoff": ("xoff_bytes", Options.size),
    "xon": ("xon_bytes", Options.size),
    "headroom": ("headroom_bytes", Options.size),
    "alpha": ("alpha", Options.ratio),
    "reaction": ("reaction_ps", Options.time_ps),
    "quanta": ("quanta", Options.whole),
    "storm": ("storm_ps", Options.time_ps),
}
_CLASS_FIELDS: Final[Fields] = {
    "weight": ("weight", Options.whole),
    "lossless": ("lossless", Options.switched_on),
    "alpha": ("alpha", Options.ratio),
    "xoff": ("xoff_bytes", Options.size),
    "dscp": (
        "dscps",
        lambda options, key: tuple(
            parse_whole(dscp, f"{options.where}: {key}") for dscp in options[key].split("+")
        ),
    ),
}


def parse_transport(text: str) -> Transport:
    """`recovery=sack,congestion=nscc,reordering=32,rto=70us,rate=95%`; UsageError names the key."""
    options = parse_options(text, "--transport")
    if options.get("rate") == RHO_MAX:
        del options["rate"]
    return options.make(Transport, TRANSPORT_FIELDS)


def parse_lossless(text: str) -> Pfc | None:
    """`infinite` (None), `pfc` or `pfc:buffer=32MB,alpha=1/8,headroom=100kB`; UsageError names the
    key."""
    kind, _, rest = text.partition(":")
    if kind == INFINITE and not rest:
        return None
    if kind != PFC:
        raise UsageError(f"--lossless {text}: use {INFINITE}, {PFC} or {PFC}:alpha=1/8,...")
    options = parse_options(rest, "--lossless", len(f"{PFC}:") + 1)
    if "alpha" in options and "xoff" in options:
        raise UsageError(
            "--lossless: alpha (dynamic threshold) cannot be combined with xoff (static threshold)"
        )
    return options.make(Pfc, LOSSLESS_FIELDS)


def parse_classes(texts: Sequence[str]) -> tuple[TrafficClass, ...]:
    """`data:weight=70,dscp=26+34` and `background:weight=30,lossless=no`; one class without any.
    UsageError names the class and the key."""
    if len(texts) > MOST_CLASSES:
        raise UsageError(f"--priority: give at most {MOST_CLASSES} classes, not {len(texts)}")
    specs = [parse_spec(text, "--priority") for text in texts]
    classes = tuple(
        options.make(partial(TrafficClass, name), _CLASS_FIELDS) for name, options in specs
    ) or (TrafficClass(),)
    names = [priority.name for priority in classes]
    for name in names:
        if names.count(name) > 1:
            raise UsageError(f"--priority: there are two classes {name}")
    dscps = [dscp for priority in classes for dscp in priority.dscps]
    for dscp in dscps:
        if dscps.count(dscp) > 1:
            raise UsageError(f"--priority: DSCP {dscp} is given twice")
    return classes


def check_classes(classes: Sequence[TrafficClass], captures: bool) -> None:
    """UsageError for classes that no traffic of captures could have, and for DSCPs without any."""
    if any(priority.dscps for priority in classes) and not captures:
        raise UsageError("--priority: dscp needs captures; generated traffic has no DSCP")
    for priority in classes[1:]:
        if captures and not priority.dscps:
            raise UsageError(
                f"--priority {priority.name}: no captured flow would have this class; give its "
                f"DSCPs, such as {priority.name}:dscp=26+34"
            )


# --fail and --converge

_FLAPPING = "flap:20us:20us@0..500us"


def parse_failures(texts: Sequence[str], converge: str, fabric: Fabric, seed: int) -> Failures:
    """`spine1@100us..250us`, `1%`, `leaf1-spine1=100G@50us`, `plane1`, ... with times from 0.

    UsageError names the value and its mistake.
    """
    events = tuple(event for text in texts for event in _named(text, fabric, seed))
    if converge == NEVER:
        return Failures(events, None)
    return Failures(events, _time_ps(converge, "--converge"))


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
        return random_cables(fabric, parse_share(where, f"--fail {text}:"), seed, begin_ps, end_ps)
    from ..flows.checks import links_of

    links = [int(link) for link in links_of(fabric, where)]
    if not equals:
        return outage(links, begin_ps, end_ps)
    if how.startswith("flap:"):
        down, _, up = how.removeprefix("flap:").partition(":")
        if end_ps is None:
            raise UsageError(f"flapping needs an end, for example {where}={_FLAPPING}")
        both = [_time_ps(time, f"--fail {text}") for time in (down, up)]
        if not all(both):
            raise UsageError(f"times of flapping must be above 0, for example {where}={_FLAPPING}")
        return flapping(links, begin_ps, end_ps, *both)
    if how.endswith("%"):
        kind, value = LOSSY, parse_share(how, f"--fail {text}:")
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
    failed = random_cables(fabric, parse_share(what, f"--fail {text}:"), seed)
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
    begin_ps = _time_ps(begin or "0", where)
    if drawn:
        latest_ps = _time_ps(latest, where)
        if dots or latest_ps <= begin_ps:
            raise UsageError(f"{where}: write EARLIEST~LATEST+LENGTH, for example 0~100us+40us")
        rng = generator(seed, number, *text.encode())
        begin_ps = int(rng.integers(begin_ps, latest_ps, endpoint=True))
    if plus:
        if dots or not _time_ps(length, where):
            raise UsageError(f"{where}: write FROM..TO or FROM+LENGTH, with a length above 0")
        return begin_ps, begin_ps + _time_ps(length, where)
    end_ps = _time_ps(end, where) if end else None
    if (dots and end_ps is None) or (end_ps is not None and end_ps <= begin_ps):
        raise UsageError(f"{where}: write FROM..TO, for example 100us..250us")
    return begin_ps, end_ps


def _time_ps(text: str, option: str) -> int:
    """`50us` or `0` in ps; UsageError names the option."""
    try:
        return parse_duration(text, option, zero=True) * PS
    except UsageError:
        raise UsageError(f"{option}: {text!r} is not a time; write it like 50us") from None


# Conditions of a packet replay: how hosts send, failures, convergence of routing.


@dataclass(frozen=True)
class Conditions:
    """The same for all strategies; random failures are drawn again in every run."""

    transport: Transport = field(default_factory=Transport)
    at_rho_max: bool = False
    """Hosts send at the rate that the fabric can carry after all failures."""
    failures: Callable[[int], Failures] | None = None
    """The failures in the run of this seed."""
    told: tuple[str, ...] = ()
    """The failures in words, for the report."""

    def of_run(
        self, workload: Workload, fabric: Fabric, seed: int
    ) -> tuple[Transport, Failures | None]:
        """The conditions of the run with this seed."""
        failures = None if self.failures is None else self.failures(seed)
        if not self.at_rho_max:
            return self.transport, failures
        events = failures.events if failures is not None else ()
        after = fabric.down([event.link for event in events if event.what == DOWN])
        share = rho_max(after, workload.src, workload.dst)
        return replace(self.transport, rate_share=max(0.01, share)), failures

    def described(self) -> dict[str, str]:
        """All conditions that were set, as option values, and always the recovery."""
        words = self.transport.described()
        if self.at_rho_max:
            words["rate"] = RHO_MAX
        if self.told:
            words["fail"] = " ".join(self.told)
        if self.failures is not None:
            g = self.failures(0).convergence_ps
            words["converge"] = NEVER if g is None else f"{g / 1e6:g}us" if g else "0"
        return words


def parse_conditions(
    transport: str, fail: Sequence[str], converge: str, fabric: Fabric
) -> Conditions:
    """The conditions of all runs, from the three options. UsageError names the option."""
    # Failures lose packets: without recovery no run would complete.
    sending = parse_transport(transport or ("recovery=ideal" if fail else ""))
    if not fail:
        if converge != NEVER:
            raise UsageError("--converge needs --fail")
        return Conditions(sending, f"rate={RHO_MAX}" in transport)

    def failures(seed: int) -> Failures:
        return parse_failures(fail, converge, fabric, seed)

    failures(0)  # report mistakes before captures are read
    return Conditions(sending, f"rate={RHO_MAX}" in transport, failures, tuple(fail))


# --pattern

_COUNTS = ("hosts", "qps", "messages", "spray", "flows", "fan-in", "seed")
PATTERN_KEYS = (*_COUNTS, "message-size", "acks")


def generated(spec: str, fabric: Fabric, window_ns: int | None) -> Traffic:
    """`permutation:qps=4,message-size=1MiB` on the hosts of the fabric."""
    pairs, acks = pairs_of(spec, fabric)
    traffic = offered_traffic(pairs, fabric.addresses, window_ns)
    # Flow 2i is the data of pair i, flow 2i+1 its ACKs.
    return traffic if acks else traffic.take(traffic.flow % 2 == 0)


def offered(spec: str, fabric: Fabric, model: Model, more_seed: int) -> tuple[Workload, QueuePairs]:
    """The same for the packet engine: one message per pair unless the pattern sets more."""
    pairs, _ = pairs_of(spec, fabric, more_seed, model.payload_bytes, messages=1)
    iterated = spec.partition(":")[0] in ITERATED
    return from_queue_pairs(pairs, fabric, model, iterated), pairs


def pairs_of(
    spec: str, fabric: Fabric, more_seed: int = 0, path_mtu: int = 4096, messages: int = 4
) -> tuple[QueuePairs, bool]:
    """(queue pairs, whether ACKs are generated); messages: per pair, unless the pattern says."""
    name, options = parse_spec(spec, "--pattern")
    options.check_known(PATTERN_KEYS, f"--pattern {name} has no option")
    hosts = options.whole("hosts", str(fabric.hosts))
    if hosts > fabric.hosts:
        raise UsageError(f"--pattern {name}: {hosts} hosts, but the fabric has {fabric.hosts}")
    rate = int(fabric.links.rate_bits_per_second.max())
    size = parse_size(options.get("message-size", "1MiB"), f"--pattern {name}: message-size")
    if path_mtu not in PATH_MTUS:
        allowed = ", ".join(map(str, PATH_MTUS))
        raise UsageError(f"--model: mtu={path_mtu}: a path MTU of RoCE is one of {allowed}")
    settings = Settings(
        hosts=hosts,
        message_bytes=size,
        messages=options.whole("messages", str(messages)),
        flows=options.whole("flows", "100"),
        fan_in=options.whole("fan-in", "0") or None,
        load=0.5,
        rate_bits_per_second=rate,
    )
    sending = Sending(
        qps=options.whole("qps", "1"),
        entropy_values=options.whole("spray", "1"),
        rate_bits_per_second=rate,
        path_mtu=path_mtu,
    )
    try:
        pairs = generate(
            name, settings, sending, options.whole("seed", "1", most=1 << 62) + more_seed
        )
    except UsageError as error:  # with the options of `rocescope generate`
        words = str(error).removeprefix(f"{name}: ").replace("--", "")
        raise UsageError(f"--pattern {name}: {words}") from None
    return pairs, options.switched_on("acks")
