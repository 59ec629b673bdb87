"""Requests: mistakes are told before anything runs; jobs of captures are read once."""

from __future__ import annotations

from threading import Event

import pytest
from aggregating import ONE_RACK
from captures import DATA

from rocescope.analyzer.errors import UsageError
from rocescope.replay.aggregation.request import AggregationRequest, PreparedAggregation

JOBS = ("count=2,workers=3,fragments=100,window=32",)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"jobs": ()}, "give captures, or jobs with --jobs"),
        ({"runs": 0}, "--runs must be 1 to 1,000"),
        ({"window": 1 << 20}, "--window must be 1 to 8,192"),
        ({"memory": ()}, "--memory needs"),
        ({"jitter": 11}, "--jitter must be 0 to 10"),
        ({"reorder": 0.4, "duplicate": 0.2}, "must be at most 0.5"),
        (
            {"schemes": ("ring:steps=3",)},
            "scheme ring has no option 'steps' at column 6; it has no options",
        ),
        ({"silence": "soon"}, "--silence"),
        ({"filter": "ip.addr == 10.0.0.1"}, "need captures"),
        ({"window": 100}, "--window and --silence need captures"),
        ({"silence": "2ms"}, "--window and --silence need captures"),
        ({"jobs": ("",)}, "--jobs is empty"),
        ({"jobs": ("workers=20",)}, "do not fit the free hosts"),
    ],
)
def test_mistakes(changes, said):
    with pytest.raises(UsageError, match=said):
        PreparedAggregation(AggregationRequest(**{"fabric": ONE_RACK, "jobs": JOBS, **changes}))


def test_a_capture_with_both_directions_is_a_ring_of_two_and_is_read_once():
    capture = str(DATA / "c16_rc_write_bidir.atB.pcap.gz")
    request = AggregationRequest(ONE_RACK, (capture,), JOBS, map="order", schemes=("switchml",))
    prepared, read = PreparedAggregation(request), []
    jobs = prepared.read(lambda done, size: read.append(done))
    assert [job.name for job in jobs] == ["job1 captured ring", "job2 comm", "job3 comm"]
    sent = 2 * 60 * 65536  # queue pairs, messages, bytes; two workers send all their gradients
    assert abs(jobs[0].total * 248 - sent) <= sent // 100
    before = len(read)
    result = prepared.run()
    assert len(read) == before and result.jobs[0].captured_ns == jobs[0].took_ns
    assert result.schemes[0].mean_completion_ns > 0


def test_a_stopped_run_ends():
    stop = Event()
    stop.set()
    with pytest.raises(KeyboardInterrupt):
        PreparedAggregation(AggregationRequest(ONE_RACK, jobs=JOBS)).run(stop=stop)
