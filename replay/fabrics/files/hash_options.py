"""How a switch hashes, as written in a file."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

from ....analyzer.errors import UsageError
from ...hashing.keys import packet_keys
from ...hashing.models import bind
from ...hashing.settings import HashSettings
from .yaml_source import Source

_NUMBERS = {"seed": (0, (1 << 64) - 1), "rotate": (0, 63), "offset": (0, 63)}
_NAMES = tuple(f.name for f in fields(HashSettings) if f.name != "extra")
_SAMPLE = packet_keys(["10.0.0.1"], ["10.0.0.2"], [49152])
"""Settings are checked when they are bound to keys."""


def hash_settings(source: Source) -> HashSettings:
    """The settings `{model: ..., seed: ..., field_set: ...}`; other keys are settings of the model.

    UsageError names file and line.
    """
    values: dict[str, Any] = {}
    extra: dict[str, str | int] = {}
    for key, place in source.mapping("model, seed, field_set, ...").items():
        if key in _NUMBERS:
            values[key] = place.integer(key, *_NUMBERS[key])
        elif key in ("symmetric", "seed_recovered"):
            values[key] = place.boolean(key)
        elif key in _NAMES:
            values[key] = place.text(key)
        else:
            text = place.text(key)
            extra[key] = int(text) if text.isdecimal() else text
    settings = HashSettings(**values, extra=extra)
    try:
        bind(_SAMPLE, settings)
    except UsageError as error:
        raise source.wrong(str(error)) from None
    return settings
