"""Every ordered pair of hosts once."""

from __future__ import annotations

from collections import Counter

import pytest
from pattern_settings import made

from rocescope.analyzer.errors import UsageError
from rocescope.replay.generate.patterns.all_to_all import all_to_all


def test_all_to_all_has_every_ordered_pair_once():
    demand = made(all_to_all, hosts=5)
    pairs = Counter(zip(demand.src.tolist(), demand.dst.tolist(), strict=True))
    assert pairs == {(a, b): 1 for a in range(5) for b in range(5) if a != b}
    assert set(demand.sharing.tolist()) == {4}


def test_too_many_pairs():
    with pytest.raises(UsageError, match="all-to-all of 4,097 hosts has 16,785,409 pairs"):
        made(all_to_all, hosts=4097)
