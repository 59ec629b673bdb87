"""The integrity of a mirror that numbers its packets."""

from __future__ import annotations

from collections.abc import Sequence

from ..decode.mirrors.lumina import OTHER_EVENT, mirror_checks
from ..decode.mirrors.restore import Mirrors
from ..decode.mirrors.switch_counters import SwitchCounters, check_switch
from ..results.captures import MirrorChecks


def checks_of(
    mirrors: Sequence[Mirrors], addresses: list[str], switch_counters: SwitchCounters | None
) -> MirrorChecks | None:
    """The checks over all captures; None when no mirror numbers its packets.

    addresses: of the endpoints, by index. switch_counters: counters of the mirroring switch.
    """
    numbered = [mirror.lumina for mirror in mirrors if mirror.lumina is not None]
    if not numbered:
        return None
    switch = None
    if switch_counters is not None:
        switch = check_switch(switch_counters, sum(mirror.packets for mirror in numbered))
    return mirror_checks(numbered, addresses, switch)


def mirror_warnings(checks: MirrorChecks) -> list[str]:
    """Warnings about losses and disorder of the mirror, which affect the result."""
    lines = []
    if checks.lost_packets:
        lines.append(
            f"the mirror lost {checks.lost_packets} of {checks.packets + checks.lost_packets}"
            f" packets (gaps in its numbers: {checks.gaps}): losses below may be its own"
        )
    switch = checks.switch
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
            f"{unknown} packets have a TTL that Lumina does not write: is this a Lumina mirror?"
        )
    return lines
