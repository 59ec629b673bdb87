"""Pauses of PFC on a terminal."""

from __future__ import annotations

from io import StringIO

from msgspec.structs import replace

from rocescope.replay.results.packets import PausedPort, PausedPriority, PauseSummary
from rocescope.report.terminal.page import Page, console_for
from rocescope.report.terminal.replay_pauses import print_pauses


def _printed(summary: PauseSummary) -> str:
    out = StringIO()
    print_pauses(Page(console_for(out, "never")), summary)
    return " ".join(out.getvalue().split())


def _summary(victims: int | None = 2, lost: int = 0, ports: int = 2) -> PauseSummary:
    found = [
        PausedPort(
            port=f"leaf{i}>spine1", layer="leaf-spine", pauses=10 * i, paused_ns=9_000 // i,
            longest_ns=1_000 * i, victims=victims,
        )
        for i in range(1, ports + 1)
    ]  # fmt: skip
    return PauseSummary(
        pauses=30, paused_ns=13_500, lost_without_headroom=lost, victim_flows=victims,
        causes=[f"leaf9>host{i}" for i in range(1, 6)], ports=found, deadlocked_runs=0, deadlock=[],
        settings={"alpha": "0.125", "xon": "4160"},
    )  # fmt: skip


def test_a_row_per_layer() -> None:
    text = _printed(_summary())
    assert "leaf-spine 2 30 2.00 us leaf1>spine1 9.00 us 2" in text
    assert "leaf9>host1, leaf9>host2, leaf9>host3 and 2 more." in text
    assert "none of these links: 2." in text and "dropped" not in text


def test_what_is_not_known_is_said() -> None:
    assert "Too many flows and links to count victims." in _printed(_summary(None))
    assert "7 packets dropped because the headroom of a port was full." in _printed(
        _summary(lost=7)
    )
    assert _printed(_summary(ports=0)) == (
        "PFC paused no port in the first run. "
        "PFC, in bytes of a switch or port: alpha 0.125, xon 4160."
    )


def test_priorities_and_storms() -> None:
    ports = [
        PausedPort(
            port=f"host{i}>leaf1", layer="host-leaf", priority=name, pauses=1, paused_ns=300_000,
            longest_ns=300_000, victims=0, storm_ns=storm,
        )
        for i, name, storm in ((1, "data", 210_000), (2, "background", None))
    ]  # fmt: skip
    by_class = [
        PausedPriority(
            priority=name, pauses=1, paused_ns=300_000, frames=1, lost_without_headroom=0
        )
        for name in ("data", "background")
    ]
    text = _printed(
        replace(
            _summary(), ports=ports, priorities=by_class, storms=ports[:1], storm_after_ns=200_000
        )
    )
    assert "host-leaf data 1 1 300 us host1>leaf1 300 us 0" in text
    assert "host-leaf background 1 1 300 us host2>leaf1 300 us 0" in text
    assert "Pause storm, first run: paused for 200 us or longer without a break" in text
    assert "host1>leaf1 (data, after 210 us, 300 us long)." in text
    assert "storm" not in _printed(_summary())
    stuck = [replace(ports[0], endless=True)]
    text = _printed(replace(_summary(), ports=stuck, storms=stuck, storm_after_ns=200_000))
    assert "host-leaf 1 1 endless host1>leaf1 300 us 0" in text
    assert "host1>leaf1 (data, after 210 us, endless)." in text
