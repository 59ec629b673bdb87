"""Options of schemes: `atp:rto=200us,cc=yes`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from ....analyzer.errors import UsageError
from ....analyzer.key_values import only_known
from ....analyzer.units import parse_duration
from ....kernels.kernel import Int, pointer_to
from ..memory import at_switch_signature
from .base import Conduct, Scheme

NS = 1_000


class Options:
    """The options of one scheme; every one that is read has a default, and no other is allowed."""

    def __init__(self, scheme: str, given: Mapping[str, str], defaults: Mapping[str, str]) -> None:
        only_known(given, defaults, f"scheme {scheme} has no option")
        self.scheme = scheme
        self.values = {**defaults, **given}
        own = [f"{k}={v}" for k, v in given.items() if v != defaults[k]]
        self.name = f"{scheme}:{','.join(own)}" if own else scheme

    def built(self, at_switch: Callable[..., Int], **conduct: Any) -> Scheme:
        """The scheme with its function for gradients at a switch and other items of `Conduct`;
        with the timers of ATP if it has them as options."""
        if "first-rto" in self.values:
            conduct["rto_ps"], conduct["first_rto_ps"] = self.ps("rto"), self.ps("first-rto")
            conduct["trigger"] = self.number("trigger", 0, 1000)
        pointer = pointer_to(at_switch, at_switch_signature)
        return Scheme(self.name, self.values, Conduct(pointer, **conduct))

    def ps(self, key: str) -> int:
        """A duration in ps; `off` is 0."""
        text = self.values[key]
        if text in ("0", "off"):
            return 0
        return parse_duration(text, f"scheme {self.scheme}: {key}") * NS

    def on(self, key: str) -> bool:
        """yes or no."""
        text = self.values[key]
        if text not in ("yes", "no"):
            raise UsageError(f"scheme {self.scheme}: {key} is yes or no, not {text!r}")
        return text == "yes"

    def one_of(self, key: str, *words: str) -> str:
        """One of these words."""
        text = self.values[key]
        if text not in words:
            raise UsageError(f"scheme {self.scheme}: {key} is {' or '.join(words)}, not {text!r}")
        return text

    def number(self, key: str, least: int, most: int) -> int:
        """An integer."""
        text = self.values[key]
        value = int(text) if text.isascii() and text.isdecimal() and len(text) < 12 else -1
        if not least <= value <= most:
            raise UsageError(f"scheme {self.scheme}: {key} is {least:,} to {most:,}, not {text!r}")
        return value
