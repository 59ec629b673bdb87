"""The integrity of a mirror that numbers its packets, beside the results of its packets."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import structs

from ..decode.mirrors.lumina import OTHER_EVENT, mirror_checks
from ..decode.mirrors.restore import MirrorOptions, Mirrors
from ..decode.mirrors.switch_counters import check_switch
from ..measures.conformance.counters.names import DAMAGED_COUNTERS
from ..results.analysis import Analysis
from ..results.conformance import Conformance
from ..results.taps import MirrorChecks


def with_checks(
    analysis: Analysis,
    mirrors: Sequence[Mirrors | None],
    addresses: list[str],
    options: MirrorOptions | None,
) -> Analysis:
    """The result with the integrity of a numbering mirror, whose losses are told first.

    addresses: of the endpoints, by index.
    """
    numbered = [m.lumina for m in mirrors if m is not None and m.lumina is not None]
    if not numbered:
        return analysis
    switch = None
    if options is not None and options.switch_counters is not None:
        captured = sum(mirror.packets for mirror in numbered)
        switch = check_switch(options.switch_counters, captured)
    checks = mirror_checks(numbered, addresses, switch)
    lines = []
    if checks.lost_packets:
        lines.append(
            f"the mirror lost {checks.lost_packets} of {checks.packets + checks.lost_packets}"
            f" packets (gaps in its numbers: {checks.gaps}): losses below may be its own"
        )
    if switch is not None and not switch.agrees:
        lines.append(
            f"the switch received {switch.received_packets} packets, mirrored"
            f" {switch.mirrored_packets}, and {switch.captured_packets} were captured"
        )
    if checks.times_backwards:
        lines.append(f"the mirror's clock goes back {checks.times_backwards} times by over 50 ns")
    if checks.direction_times_backwards:
        lines.append(
            f"the mirror's clock goes back {checks.direction_times_backwards} times between packets"
            " of one sender"
        )
    unknown = checks.injected.get(OTHER_EVENT, 0)
    if unknown:
        lines.append(
            f"{unknown} packets have a TTL that Lumina does not write: is this one of its mirrors?"
        )
    found = structs.replace(analysis, mirror_checks=checks, warnings=[*lines, *analysis.warnings])
    if isinstance(found.conformance, Conformance):
        found = structs.replace(found, conformance=_with_damaged(found.conformance, checks))
    return found


def _with_damaged(conformance: Conformance, checks: MirrorChecks) -> Conformance:
    """The counters of packets with a wrong ICRC beside those that the switch damaged."""
    counters = []
    for one in conformance.counters:
        if one.counter in DAMAGED_COUNTERS:
            damaged = sum(u.bit_errors for u in checks.undelivered if u.dst == one.host)
            one = structs.replace(one, captured=damaged, agrees=damaged == one.grew_by, text="")
        counters.append(one)
    return structs.replace(conformance, counters=counters)
