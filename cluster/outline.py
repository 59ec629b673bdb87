"""What stage merge needs of all partitions before it reads their states one by one."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

KEY = np.dtype([("chunk", np.int64), ("time", np.int64), ("front", np.int64), ("row", np.int64)])
"""Place of a row in the order of one process: lexicographic. A front are the rows of one capture in
one cut of the merge."""


@dataclass(slots=True)
class Outline:
    """What stage merge needs of all partitions at once."""

    flow_keys: Any = field(default_factory=lambda: np.zeros(0, KEY))
    """KEY[flows]: place of the first row of each flow."""
    event_keys: Any = field(default_factory=lambda: np.zeros(0, KEY))
    """KEY[events]: place of the row of each event of the tracker."""
    flows: Any = None
    """FLOW[flows]."""
    events: Any = None
    """EVENT[events]."""
    used: Any = None
    """Counts of the tracker, see `track.state`."""
    packets: int = 0
    late_rows: int = 0
