"""Communication patterns by name."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TypeAlias

import numpy as np

from ....analyzer.errors import UsageError
from ....analyzer.words import choices
from .all_to_all import all_to_all
from .demands import Demands, Settings
from .incast import incast
from .permutation import permutation
from .random_pairs import random_pairs
from .ring_allreduce import ring_allreduce
from .trace_like import trace_like

Pattern: TypeAlias = Callable[[Settings, np.random.Generator], Demands]

PATTERNS: Mapping[str, Pattern] = {
    "permutation": permutation,
    "all-to-all": all_to_all,
    "ring-allreduce": ring_allreduce,
    "incast": incast,
    "random": random_pairs,
    "trace-like": trace_like,
}


def pattern(name: str) -> Pattern:
    """The pattern of a name; UsageError if there is none."""
    if name not in PATTERNS:
        raise UsageError(f"there is no pattern {name!r}; {choices(name, PATTERNS)}")
    return PATTERNS[name]
