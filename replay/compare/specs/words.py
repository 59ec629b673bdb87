"""Option values that several files use."""

from __future__ import annotations

NEVER = "never"
"""`--converge`: switches learn only of failures of their own links."""
INFINITE, PFC = "infinite", "pfc"
"""`--lossless`."""
JOBS = "jobs"
"""How jobs are offered: messages and computations after what they wait for."""
YES, NO = "yes", "no"
CAPTURED, ASAP = "captured", "asap"
"""`--model offer=`: packets at their captured times, or as fast as the links accept them."""
