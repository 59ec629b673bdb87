"""What a run asks of an aggregation scheme."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from ...analyzer import spec
from ...kernels.kernel import Int, pointer_to
from .state import FIXED_WINDOW
from .switches import at_switch_signature

US = 1_000_000
"""Picoseconds of a microsecond."""


@dataclass(frozen=True)
class Conduct:
    """How hosts and switches of a scheme behave; times in ps."""

    at_switch: int
    """A pointer to the function for gradients at a switch."""
    params: tuple[int, ...] = ()
    """Parameters of the scheme from `state.OWN` on."""
    has_server: bool = True
    """False: the switch itself sends results."""
    aggregates: bool = True
    multicast: bool = True
    """Switches copy a result for the workers of a rack; else the PS sends one to each worker."""
    private_slots: bool = False
    """Every job has as many slots as it can use."""
    rto_ps: int = 200 * US
    first_rto_ps: int = 50_000 * US
    """Until the first result arrives."""
    trigger: int = 3
    """Later results until the first missing one is asked for, 0: timers only."""
    double_after: int = 0
    """A worker's timer doubles after as many retransmissions by it, 0: never."""
    overflows: bool = True
    """Sums of int32 can saturate, and hosts then repeat the fragment in floats."""
    slot_timeout_ps: int = 0
    """A result releases the slot that it finds in the hands of another fragment, unless that
    had a contribution within this time; 0: never."""
    rehash: int = 0
    """The PS gives a window position another slot after a gradient with one of these flags."""
    remind_ps: int = 0
    congestion: int = FIXED_WINDOW
    """FIXED_WINDOW, ONE_WINDOW or TWO_WINDOWS."""
    base_rtt_ps: int = 0
    aggregators: int = 0
    """Window of aggregators at the start, 0: all that may be in flight (A2TP)."""
    contention_percent: int = 0
    """See `state.CONTENTION`."""


class AllReduce(NamedTuple):
    """No scheme but a collective of the workers alone, to compare with: `ring` or `tree`."""

    name: str
    parameters: Mapping[str, str]


class Scheme(NamedTuple):
    """A scheme with its options."""

    name: str
    """Its name and the options that differ from the defaults."""
    parameters: Mapping[str, str]
    """All options with their values, for the report."""
    conduct: Conduct
    """The rules for a run."""


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
