"""What a pattern asks of hosts."""

from __future__ import annotations

import numpy as np
import pytest
from pattern_settings import SETTINGS

from rocescope.analyzer.errors import UsageError
from rocescope.replay.generate.patterns.demands import demands, need_hosts


def test_pairs_of_one_source_share_its_rate():
    pairs = demands(SETTINGS, np.array([0, 0, 3, 0]), np.array([1, 2, 0, 1]))
    assert pairs.sharing.tolist() == [3, 3, 1, 3]
    assert pairs.messages.tolist() == [3] * 4 and pairs.message_bytes.tolist() == [1 << 20] * 4
    assert pairs.start_ns.tolist() == [0] * 4 and not pairs.in_turn
    assert {column.dtype for column in pairs[:6]} == {np.dtype(np.int64)}


def test_too_few_hosts():
    need_hosts(SETTINGS._replace(hosts=2), "incast")
    with pytest.raises(UsageError, match="incast needs at least 2 hosts, not 1"):
        need_hosts(SETTINGS._replace(hosts=1), "incast")
