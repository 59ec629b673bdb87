"""`--priority`: classes of data, their share of the links and their thresholds."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Final

from ....analyzer.errors import UsageError
from ....analyzer.key_values import parse_options
from ...packets.model.queueing import MOST_CLASSES, TrafficClass
from .values import Fields, made, ratio, size, whole
from .words import NO, YES


def _lossless(text: str, where: str) -> bool:
    if text not in (YES, NO):
        raise UsageError(f"{where}={text}: use {YES} or {NO}")
    return text == YES


FIELDS: Final[Fields] = {
    "weight": ("weight", whole),
    "lossless": ("lossless", _lossless),
    "alpha": ("alpha", ratio),
    "xoff": ("xoff_bytes", size),
    "dscp": ("dscps", lambda text, where: tuple(whole(one, where) for one in text.split("+"))),
}


def parse_classes(texts: Sequence[str]) -> tuple[TrafficClass, ...]:
    """`data:weight=70,dscp=26+34` and `background:weight=30,lossless=no`; one class without any.
    UsageError names the class and the key."""
    if len(texts) > MOST_CLASSES:
        raise UsageError(f"--priority: give at most {MOST_CLASSES} classes, not {len(texts)}")
    classes = tuple(map(_class, texts)) or (TrafficClass(),)
    names = [one.name for one in classes]
    for name in names:
        if names.count(name) > 1:
            raise UsageError(f"--priority: there are two classes {name}")
    dscps = [dscp for one in classes for dscp in one.dscps]
    for dscp in dscps:
        if dscps.count(dscp) > 1:
            raise UsageError(f"--priority: DSCP {dscp} is given twice")
    return classes


def check_classes(classes: Sequence[TrafficClass], captures: bool) -> None:
    """UsageError for classes that no traffic of captures could have, and for DSCPs without any."""
    if any(one.dscps for one in classes) and not captures:
        raise UsageError("--priority: dscp needs captures; generated traffic has no DSCP")
    for one in classes[1:]:
        if captures and not one.dscps:
            raise UsageError(
                f"--priority {one.name}: no captured flow would have this class; give its DSCPs, "
                f"such as {one.name}:dscp=26+34"
            )


def _class(text: str) -> TrafficClass:
    name, _, rest = text.partition(":")
    given = parse_options(rest, f"--priority {name}")
    kind = partial(TrafficClass, name)
    return made(kind, FIELDS, given, "--priority", f"--priority {name}")
