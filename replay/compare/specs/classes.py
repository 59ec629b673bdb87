"""`--priority`: classes of data, their share of the links and their thresholds."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ....analyzer.errors import UsageError
from ....analyzer.key_values import parse_options
from ....analyzer.units import parse_size
from ...packets.model.classes import MOST_CLASSES, TrafficClass
from .values import ratio, whole
from .words import NO, YES

KEYS = ("weight", "lossless", "alpha", "xoff", "dscp")


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
    values: dict[str, Any] = {"name": name}
    for key, value in parse_options(rest, f"--priority {name}").items():
        where = f"--priority {name}: {key}"
        if key == "weight":
            values[key] = whole(value, where)
        elif key == "lossless":
            if value not in (YES, NO):
                raise UsageError(f"{where}={value}: use {YES} or {NO}")
            values[key] = value == YES
        elif key == "alpha":
            values[key] = ratio(value, where)
        elif key == "xoff":
            values["xoff_bytes"] = 0 if value == "0" else parse_size(value, where)
        elif key == "dscp":
            values["dscps"] = tuple(whole(one, where) for one in value.split("+"))
        else:
            raise UsageError(f"--priority has no {key!r}; it has {', '.join(KEYS)}")
    try:
        return TrafficClass(**values)
    except UsageError as error:
        raise UsageError(f"--priority: {str(error).replace('xoff_bytes', 'xoff')}") from None
