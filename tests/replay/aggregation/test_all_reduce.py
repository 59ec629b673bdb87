"""Ring and tree all-reduces: their bytes, the time of a ring by hand, what a message waits for."""

from __future__ import annotations

import numpy as np
import pytest
from aggregating import small_jobs

from rocescope.replay.aggregation.all_reduce import PIECE_BYTES, _ring, _tree, run_all_reduce
from rocescope.replay.aggregation.jobs import PAYLOAD_BYTES

HEADER = ACK = 64


def test_a_ring_takes_its_steps_and_carries_its_bytes():
    jobs, fabric = small_jobs("workers=4,fragments=1000,iterations=2")
    found = run_all_reduce("ring", jobs, fabric, 0, 0.0)
    chunk = 1000 * PAYLOAD_BYTES // 4
    full, last = divmod(chunk, 4096)
    wire = [4096 + HEADER] * full + [last + HEADER] * (last > 0)
    byte_ps = 80  # 100 Gb/s
    # Through the switch a message takes its bytes, the packet before its short last one once
    # more, and the delays; ACKs of 64 B come between.
    step = (sum(wire) + wire[0]) * byte_ps + 2 * 500_000
    computing = jobs[0].steps[0].computed_ps[-1]
    least = 2 * (computing + 6 * step)
    done = found.completion_ps[0]
    assert done is not None and least <= done <= least + 2 * 6 * len(wire) * ACK * byte_ps * 2
    sent = int(fabric.attachments.access_link[jobs[0].workers[0], 0])
    acks = 2 * 6 * len(wire) * ACK
    assert found.link_bytes[sent] == 2 * 6 * sum(wire) + acks
    assert found.packets == [2 * 4 * 6 * len(wire)]


def test_the_trees_carry_every_byte_once_up_and_once_down_each_edge():
    size = 5 * PIECE_BYTES + 7
    for n in (2, 3, 5, 8):
        plan = _tree(tuple(range(n)), size)
        assert sum(plan.messages) == len(plan.sizes) == len(plan.after)
        assert 0 <= sum(plan.sizes) - 2 * (n - 1) * size <= 2 * (n - 1)
        flow = np.repeat(np.arange(len(plan.src)), plan.messages)
        for message, before in enumerate(plan.after):
            if before >= 0:  # arrived at the host that then sends
                assert plan.dst[flow[before]] == plan.src[flow[message]]
                assert plan.sizes[before] == plan.sizes[message]
        # Every host gets the whole result: half over each tree, unless it is the tree's root.
        assert sum(before < 0 for before in plan.after) >= plan.messages[0] * 2


@pytest.mark.parametrize("kind", ["ring", "tree"])
def test_no_message_waits_for_itself(kind):
    plan = (_ring if kind == "ring" else _tree)(tuple(range(6)), 1_000_000)
    done: set[int] = set()
    for _ in plan.after:
        ready = {m for m, before in enumerate(plan.after) if before < 0 or before in done}
        if ready == done:
            break
        done = ready
    assert len(done) == len(plan.after)


def test_stragglers_and_jobs_of_one_worker():
    jobs, fabric = small_jobs(
        "workers=3,fragments=500,iterations=2", "workers=1,fragments=500,iterations=3"
    )
    slow, _ = small_jobs(
        "workers=3,fragments=500,iterations=2,stragglers=1,slowdown=4",
        "workers=1,fragments=500,iterations=3",
    )
    even, late = (run_all_reduce("tree", both, fabric, 0, 0.0) for both in (jobs, slow))
    computing = jobs[0].steps[0].computed_ps[-1]
    assert late.completion_ps[0] - even.completion_ps[0] == 2 * 3 * computing
    assert even.completion_ps[1] == 3 * jobs[1].steps[0].computed_ps[-1] and even.packets[1] == 0
