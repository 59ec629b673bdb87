"""Parameters of a spec string, `name:key=value,key=value`, checked."""

from __future__ import annotations

from collections.abc import Mapping

from ...analyzer.errors import UsageError
from ...analyzer.spec import Options, parse_options
from ...analyzer.words import parse_duration, parse_rate, parse_whole
from ...kernels.kernel import NamedTuple

COUNT, RATE, DURATION, RATIO = "count", "rate", "duration", "ratio"


class Parameter(NamedTuple):
    """One parameter of a kind of fabric."""

    kind: str
    default: int | float | None
    """None: required, or derived from other parameters."""
    help: str
    least: int = 1
    most: int = 1 << 20


RATE_AND_DELAY: Mapping[str, Parameter] = {
    "rate": Parameter(RATE, 400_000_000_000, "rate of the hosts' links"),
    "delay": Parameter(DURATION, 500, "propagation delay of every link"),
}
UPLINKS: Mapping[str, Parameter] = {
    "uplinks": Parameter(
        COUNT, 1, "parallel links between a leaf and each of its spines", most=512
    ),
    "uplink_rate": Parameter(RATE, None, "rate of links between switches, default rate"),
    "oversubscription": Parameter(RATIO, None, "oversubscription of the leaves, sets uplink_rate"),
}
CHANGES = ("down", "slow")
"""Parameters of every description: links that are down, links with another rate."""


class Changes(NamedTuple):
    """Changes to the links of a fabric."""

    down: tuple[str | int, ...] = ()
    """Names or numbers of links."""
    slow: tuple[tuple[str, int], ...] = ()
    """(link, bits per second)."""


def split_options(text: str, where: str) -> tuple[Options, Changes]:
    """`key=value,...` as a mapping; `down` and `slow` (may be repeated, or joined by +) apart."""
    options = parse_options(text, where, len(where) + 2, repeated=CHANGES)
    down, slow = (
        [item.strip() for item in options.pop(key, "").split("+") if item.strip()]
        for key in CHANGES
    )
    return options, Changes(tuple(down), tuple(_slow(item, where) for item in slow))


def _slow(item: str, where: str) -> tuple[str, int]:
    link, colon, rate = item.rpartition(":")
    if not colon:
        raise UsageError(f"{where}: slow={item} has no rate; write slow=leaf1-spine2:100G")
    return link, parse_rate(rate, f"{where}: slow={link}")


class Values(NamedTuple):
    """Checked parameters."""

    where: str
    numbers: Mapping[str, int | float | None]

    def count(self, key: str) -> int:
        """The value of a count, rate (bits per second) or duration (ns)."""
        value = self.numbers[key]
        assert value is not None
        return int(value)

    def uplink_rate(self, downlink_bits_per_second: int, uplinks: int) -> int:
        """Rate of one of N uplinks of a leaf with this total rate of host links."""
        given, ratio = self.numbers["uplink_rate"], self.numbers["oversubscription"]
        if given is not None and ratio is not None:
            raise UsageError(f"{self.where}: uplink_rate cannot be combined with oversubscription")
        if ratio is not None:
            rate = round(downlink_bits_per_second / (ratio * uplinks))
            if rate < 1:
                raise UsageError(f"{self.where}: oversubscription={ratio:g} leaves no uplink rate")
            return rate
        return int(given) if given is not None else self.count("rate")


def checked(kind: str, options: Mapping[str, str], parameters: Mapping[str, Parameter]) -> Values:
    """All parameters with their values; UsageError names the parameter and its valid values."""
    Options(options, kind).check_known((*parameters, *CHANGES), f"{kind} has no parameter")
    numbers: dict[str, int | float | None] = {}
    for key, parameter in parameters.items():
        text = options.get(key)
        numbers[key] = parameter.default if text is None else _number(kind, key, text, parameter)
    return Values(kind, numbers)


def _number(kind: str, key: str, text: str, parameter: Parameter) -> int | float:
    where = f"{kind}: {key}"
    try:
        if parameter.kind == RATE:
            return parse_rate(text, key)
        if parameter.kind == DURATION:
            return parse_duration(text, key, zero=True)
    except UsageError as error:
        raise UsageError(f"{kind}: {error}") from None
    if parameter.kind == RATIO:
        try:
            ratio = float(text.removesuffix(":1"))
        except ValueError:
            ratio = 0.0
        if not 0 < ratio < 1e6:
            raise UsageError(f"{where} {text!r} is not a ratio above 0, such as 2 or 1.5")
        return ratio
    return parse_whole(text, where, parameter.least, parameter.most)


def rate_text(bits_per_second: int) -> str:
    """A rate as `parse_rate` reads it: `400G`."""
    for unit, scale in (("T", 10**12), ("G", 10**9), ("M", 10**6), ("k", 10**3)):
        if bits_per_second % scale == 0:
            return f"{bits_per_second // scale}{unit}"
    return f"{bits_per_second}bps"
