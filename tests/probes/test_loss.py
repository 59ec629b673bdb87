"""Counts of frames at the probes."""

from __future__ import annotations

import re
from dataclasses import astuple, fields
from pathlib import Path

import numpy as np

from rocescope.probes import loss as module
from rocescope.probes.loss import LOSS, Loss, total


def test_the_layout_is_that_of_the_c_struct():
    source = (Path(module.__file__).parent / "program" / "ring.bpf.h").read_text()
    members = re.search(r"struct loss \{(.*?)\};", source, re.DOTALL)[1]
    assert tuple(re.findall(r"rs_u64 (\w+);", members)) == LOSS.names
    assert LOSS.itemsize == 8 * len(LOSS.names)


def test_sums_and_differences():
    counters = np.zeros((2, 3), LOSS)
    for number, name in enumerate(LOSS.names, 1):
        counters[name] = number
    found = total(counters)
    assert astuple(found) == tuple(6 * number for number in range(1, len(fields(Loss)) + 1))
    assert found - found == Loss() and found + Loss() == found
    assert total(counters[0]) + total(counters[1]) == found


def test_every_matched_packet_has_one_fate():
    assert Loss(exported=1, ring_full=10, filtered=100, sampled_out=1000, merged=7).matched == 1111
