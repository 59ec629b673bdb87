"""Words in options that several files know."""

from __future__ import annotations

NEVER = "never"
"""`--converge`: no switch learns of failures that are not its own."""
CAPTURED, ASAP = "captured", "asap"
"""`--model offer=`: packets at their times, or as fast as the links take them."""
