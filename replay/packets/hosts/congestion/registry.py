"""Congestion controls by name."""

from __future__ import annotations

from collections.abc import Mapping

from .algorithm import Algorithm
from .dcqcn import DCQCN, DCQCN_CLAMP
from .nscc import NSCC
from .swift import SWIFT

NONE = "none"
"""Hosts send at line rate."""
ALGORITHMS: Mapping[str, Algorithm] = {
    NONE: Algorithm(),
    "nscc": NSCC,
    "dcqcn": DCQCN,
    "dcqcn-clamp": DCQCN_CLAMP,
    "swift": SWIFT,
}
