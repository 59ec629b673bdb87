"""Messages of real captures against the command lines of the tools that sent them."""

from __future__ import annotations

import json
import re

import pytest

from rocescope.analyzer.pipeline.captures import analyze
from rocescope.analyzer.pipeline.options import AnalyzeOptions

READ_OR_ATOMIC = ("c04_rc_read_q4_64k", "c05_rc_atomic_fetchadd")


@pytest.mark.parametrize(
    "name",
    [
        *READ_OR_ATOMIC,
        "c15_rc_write_ipv6_gid",
        "c16_rc_write_bidir",
        "i01_write_loss0.5_AtoB",
        "i03_write_reorder5_AtoB",
        "i04_write_duplicate1_AtoB",
        "i13_write_ecn_ce2_AtoB",
    ],
)
def test_every_message_perftest_sent_is_seen_once_and_completes(data, name):
    """Whatever was lost, doubled or reordered before this tap: perftest ran to its end."""
    (path,) = data.glob(f"{name}.atB.pcap*")
    run = json.loads((data / f"{name}.json").read_text())["flows"][0]
    options = dict(re.findall(r"-([a-z]) (\w+)", run["client_cmd"]))
    queue_pairs, count = int(options["q"]), int(options["n"])
    size = 8 if name == "c05_rc_atomic_fetchadd" else int(options["s"])
    both_ways = " -b" in run["client_cmd"]

    flows = [f for f in analyze([str(path)], AnalyzeOptions()).flows if f.request_packets]
    assert len(flows) == queue_pairs * (2 if both_ways else 1)
    for flow in flows:
        messages = flow.message_statistics
        assert (messages.count, messages.incomplete) == (count, 0)
        assert messages.size_bytes.min == messages.size_bytes.max == size
        assert messages.completion_ns.count == count
        if name in READ_OR_ATOMIC:
            assert messages.duration_ns is None
        else:
            assert messages.duration_ns.count == count
            assert messages.duration_ns.max < messages.completion_ns.max
        assert 1 <= messages.max_outstanding <= int(options.get("t", 128))
        reads = flow.latency.read_to_first_response_ns
        assert (reads and reads.count) == (count if name == "c04_rc_read_q4_64k" else None)
