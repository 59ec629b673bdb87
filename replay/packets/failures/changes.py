"""Changes of links and routing during a run, as the event-driven driver takes them.

Rows of (time in ps, what, which, value), by time.
"""

from __future__ import annotations

LINK_DOWN, LINK_UP, LINK_RATE, LINK_LOSS, ROUTES, PEER_PORTS = range(6)
"""LINK_RATE: value is ps per byte, scaled by 2^20. LINK_LOSS: chance in 2^-32. ROUTES: which of the
routing states holds. PEER_PORTS: everyone learns by which ports (mask) a host can be reached."""
