"""A real queue: what a rate-limited port of a Linux router did, and what the engine makes of it.

    python benchmarks/reproductions/slow_spine.py

In the run `tests/data/whole_leafspine/r09_packet_spray_h1` the port of spine2 to leaf2 was limited
to 25 Mb/s by a token bucket filter (`tbf rate 25Mbit burst 4Kb latency 127ms`), whose queue holds
rate * latency + burst bytes (tc-tbf(8)). H1 sprays over all spines, H2 uses ECMP, and both share
this port. Every frame that was captured on its way into spine2 is offered at its time, those that
hosts retransmitted too, and beside the captures before and after spine2 stand the engine's times
and drops.
"""

from __future__ import annotations

from bands import Bands
from limited_port import DATA, compared, frames, replayed, table

RUN = DATA / "whole_leafspine/r09_packet_spray_h1"
RATE_BITS, LATENCY_S, BURST = 25_000_000, 0.127, 4096
LIMIT = int(RATE_BITS / 8 * LATENCY_S) + BURST
COUNTED = 609
"""Frames that the router dropped by its own counter (tests/data/README.md)."""


def main() -> None:
    before, after = (table(RUN / f"{leaf}-spine2.pcap.xz", "10.2.") for leaf in ("leaf1", "leaf2"))
    entering, bands = frames([before], after), Bands()
    compared(entering, replayed(entering, RATE_BITS, LIMIT), LIMIT, COUNTED, bands, 0.05)
    bands.end()


if __name__ == "__main__":
    main()
