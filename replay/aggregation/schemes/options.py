"""Options of schemes: `atp:rto=200us,cc=yes`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from ....analyzer import spec
from ....kernels.kernel import Int, pointer_to
from ..memory import at_switch_signature
from .base import Conduct, Scheme


class Options:
    """The options of a scheme; every option that is read has a default, and no other is allowed."""

    def __init__(self, scheme: str, given: Mapping[str, str], defaults: Mapping[str, str]) -> None:
        options = spec.Options(given, f"scheme {scheme}")
        options.check_known(defaults, f"scheme {scheme} has no option")
        self.values = options.with_defaults(defaults)
        changes = [f"{k}={v}" for k, v in given.items() if v != defaults[k]]
        self.name = f"{scheme}:{','.join(changes)}" if changes else scheme

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
        return 0 if self.values[key] == "off" else self.values.time_ps(key)

    def on(self, key: str) -> bool:
        """yes or no."""
        return self.values.switched_on(key)

    def one_of(self, key: str, *words: str) -> str:
        """One of these words."""
        return self.values.word(key, *words)

    def number(self, key: str, least: int, most: int) -> int:
        """An integer."""
        return self.values.whole(key, "", least, most)
