"""`--transport`: how hosts send."""

from __future__ import annotations

from typing import Final

from ....analyzer.key_values import parse_options
from ....analyzer.units import parse_duration
from ...packets.hosts.transport import Transport
from ...packets.model.model import PS
from .values import Fields, made, share, whole, word

FIELDS: Final[Fields] = {
    "recovery": ("recovery", word),
    "congestion": ("congestion", word),
    "rto": ("rto_ps", lambda text, where: parse_duration(text, where) * PS),
    "rate": ("rate_share", share),
    "reordering": ("reordering_packets", whole),
    "linear": ("linear_retries", whole),
    "mpr": ("mpr_packets", whole),
    "retries": ("retries", whole),
}
RHO_MAX = "rho-max"
"""Value of rate: the highest rate at which the fabric carries all flows."""


def parse_transport(text: str) -> Transport:
    """`recovery=sack,congestion=nscc,reordering=32,rto=70us,rate=95%`; UsageError names the key."""
    options = parse_options(text, "--transport")
    given = {key: value for key, value in options.items() if (key, value) != ("rate", RHO_MAX)}
    return made(Transport, FIELDS, given, "--transport")
