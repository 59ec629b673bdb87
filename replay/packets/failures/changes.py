"""Changes of links and routing during a run, the input of the event-driven driver.

Rows of (time in ps, what, which, value), sorted by time.
"""

from __future__ import annotations

LINK_DOWN, LINK_UP, LINK_RATE, LINK_LOSS, ROUTES, PEER_PORTS = range(6)
"""LINK_RATE: value is ps per byte, scaled by 2^20. LINK_LOSS: chance in 2^-32. ROUTES: `which` is
the new routing state. PEER_PORTS: all hosts learn the usable ports (mask) of a host."""
