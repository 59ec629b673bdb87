"""`--transport`: how hosts send."""

from __future__ import annotations

from typing import Any

from ....analyzer.errors import UsageError
from ....analyzer.key_values import parse_options
from ....analyzer.units import parse_duration
from ...packets.hosts.parameters import Transport
from ...packets.model.model import PS
from .values import share

_COUNTS = {
    "reordering": "reordering_packets",
    "linear": "linear_retries",
    "mpr": "mpr_packets",
    "retries": "retries",
}
TRANSPORT = ("recovery", "congestion", "rto", "rate", *_COUNTS)
RHO_MAX = "rho-max"
"""Value of rate: the highest rate at which the fabric carries all flows."""


def parse_transport(text: str) -> Transport:
    """`recovery=sack,congestion=nscc,reordering=32,rto=70us,rate=95%`; UsageError names the key."""
    options = parse_options(text, "--transport")
    values: dict[str, Any] = {}
    for key, value in options.items():
        if key not in TRANSPORT:
            raise UsageError(f"--transport has no {key!r}; it has {', '.join(TRANSPORT)}")
        if key in ("recovery", "congestion"):
            values[key] = value
        elif key in _COUNTS:
            if not value.isascii() or not value.isdecimal() or len(value) > 9:
                raise UsageError(f"--transport: {key}={value} is not a whole number")
            values[_COUNTS[key]] = int(value)
        elif key == "rto":
            values["rto_ps"] = parse_duration(value, "--transport: rto") * PS
        elif value != RHO_MAX:
            values["rate_share"] = share(value, "--transport: rate")
    try:
        return Transport(**values)
    except UsageError as error:
        words = str(error).replace("rto_ps", "rto").replace("rate_share", "rate")
        for key, name in _COUNTS.items():
            words = words.replace(name, key)
        raise UsageError(f"--transport: {words}") from None
