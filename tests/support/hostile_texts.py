"""Results in which every name and sentence is markup."""

from __future__ import annotations

from typing import Any, TypeVar

import msgspec

MARKUP = "\"'></td></svg></title><script>alert(1)</script><img src=x onerror=alert(2)>\u202e\x1b[2J"
"""Ends attributes, elements and titles; runs by two ways; steers a terminal."""
_KEPT = (
    "kind", "severity", "confidence", "transport", "change", "schema_version", "path_by", "worse",
    "better",
)  # fmt: skip

T = TypeVar("T", bound=msgspec.Struct)


def hostile(result: T, markup: str = MARKUP) -> T:
    """The result with `markup` before every text but fixed words; keys stay."""
    return msgspec.convert(
        _changed(msgspec.to_builtins(result), markup), type(result), strict=False
    )


def _changed(value: Any, markup: str, name: str = "") -> Any:
    if isinstance(value, dict):
        return {key: _changed(one, markup, str(key)) for key, one in value.items()}
    if isinstance(value, list):
        return [_changed(one, markup, name) for one in value]
    return f"{markup}{value}" if isinstance(value, str) and name not in _KEPT else value
