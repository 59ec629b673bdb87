"""The report's sentences on mirrors, tunnels and samples."""

from __future__ import annotations

from msgspec import UnsetType

from ...analyzer.results.analysis import Analysis
from ...analyzer.results.captures import TapSummary
from ..words import human

_TAPS = 4
"""Most taps named in the sentence; JSON has all of them."""


def mirrors(analysis: Analysis) -> list[str]:
    """Encapsulations of packets, estimates from samples, and checks of mirrors."""
    lines = []
    kinds: dict[str, int] = {}
    for capture in analysis.captures:
        if not isinstance(capture.encapsulations, UnsetType):
            for kind, frames in capture.encapsulations.items():
                kinds[kind] = kinds.get(kind, 0) + frames
    if kinds:
        counts = ", ".join(f"{kind} {human.count(n)}" for kind, n in kinds.items())
        lines.append(f"Encapsulated frames (mirrors and tunnels): {counts}. {_taps(analysis)}")
    for tap in _seen(analysis):
        if not isinstance(tap.sampling, UnsetType):
            sampling = tap.sampling
            lines.append(
                f"{tap.name}: estimated"
                f" {human.count(sampling.estimated_packets)} packets,"
                f" {human.size(sampling.estimated_wire_bytes)} (standard error"
                f" {sampling.error_percent:.1f} %)"
            )
    for capture in analysis.captures:
        uet = capture.ultra_ethernet
        if not isinstance(uet, UnsetType):
            types = ", ".join(f"{human.count(n)} {name}" for name, n in uet.by_type.items())
            psns = "" if uet.lowest_psn is None else f", PSN {uet.lowest_psn} to {uet.highest_psn}"
            values = human.counted(uet.entropy_values, "entropy value")
            lines.append(
                f"Ultra Ethernet, counted but not tracked: {types}; {human.size(uet.wire_bytes)},"
                f" {values}{psns}"
            )
    checks = analysis.mirror_checks
    if not isinstance(checks, UnsetType):
        events = ", ".join(f"{human.count(n)} {name}" for name, n in checks.injected.items())
        lines.append(
            f"Lumina mirror numbers: {human.count(checks.packets)} packets,"
            f" {checks.lost_packets} lost by the mirror; injected: {events or 'nothing'}"
        )
        if checks.switch is not None and checks.switch.agrees:
            lines[-1] += "; the switch counters agree"
    return lines


def _seen(analysis: Analysis) -> list[TapSummary]:
    taps = [tap for capture in analysis.captures for tap in capture.taps if tap.roce_packets]
    return sorted(taps, key=lambda tap: -tap.roce_packets)


def _taps(analysis: Analysis) -> str:
    taps = _seen(analysis)
    named = ", ".join(f"{tap.name} ({human.count(tap.roce_packets)})" for tap in taps[:_TAPS])
    more = f" and {len(taps) - _TAPS} more" if len(taps) > _TAPS else ""
    return f"Taps: {named}{more}."
