"""CNPs against CE marks, beside a count in plain Python."""

from __future__ import annotations

from collections import defaultdict

import numpy as np
from examples import examples
from hypothesis import given
from hypothesis import strategies as st
from tracked_batches import START_NS, tracked

from rocescope.analyzer.measures.conformance import rules
from rocescope.analyzer.measures.conformance.cnp import SCOPE_NAMES
from rocescope.analyzer.measures.conformance.options import ConformanceOptions
from rocescope.analyzer.measures.conformance.taps import TapConformance
from rocescope.analyzer.summary.conformance import cnp_conformance
from rocescope.analyzer.track.state import FLOW

CNP, CE = 0x81, 3
INTERVAL_NS = 4_000
# Flows 0, 1, 2 carry data, flow f + 3 the answers to it: hosts 0 and 1 send to host 2.
HOSTS = [(0, 2), (0, 2), (1, 2), (2, 0), (2, 0), (2, 1)]
FLOWS = np.zeros(len(HOSTS), FLOW)
FLOWS["src"], FLOWS["dst"] = np.array(HOSTS).T
PEERS = np.array([3, 4, 5, 0, 1, 2], np.int32)
KEYS = {
    "port": lambda f: 2,
    "ip_pair": lambda f: HOSTS[f % 3],
    "destination": lambda f: HOSTS[f % 3][0],
    "queue_pair": lambda f: f % 3,
}
NAK, SEQUENCE_ERROR = 0x11, 0x60


def paced(rows, **options):
    """A TapConformance that saw rows of (flow, time in ns, CE, CNP or NAK)."""
    columns = [
        {
            "flow": flow + 3 if what in (CNP, NAK) else flow,
            "time_ns": START_NS + time,
            "opcode": what if what in (CNP, NAK) else 7,
            "aeth": SEQUENCE_ERROR << 24 if what == NAK else 0,
            "traffic_class": what if what == CE else 0,
            "frame_number": number + 1,
        }
        for number, (flow, time, what) in enumerate(rows)
    ]
    batch = tracked(columns, len(HOSTS))
    batch.peer[:] = PEERS
    one = TapConformance(ConformanceOptions(cnp_interval_ns=INTERVAL_NS, **options))
    one.update(batch, FLOWS)
    return one


def twin(rows, scope, causes=(CE,)):
    """(expected, differing, too close) CNPs of one scope, counted as the definition says."""
    due, expected, last, seen, close = {}, defaultdict(int), {}, defaultdict(int), 0
    for flow, time, what in rows:
        key = KEYS[scope](flow)
        if what in causes and (key not in due or time - due[key] >= INTERVAL_NS):
            due[key] = time
            expected[key] += 1
        if what == CNP:
            close += key in last and time - last[key] < INTERVAL_NS
            last[key] = time
            seen[key] += 1
    keys = set(expected) | set(seen)
    return sum(expected.values()), sum(abs(expected[k] - seen[k]) for k in keys), close


EVENTS = st.lists(
    st.tuples(st.integers(0, 2), st.integers(0, 6_000), st.sampled_from([CE, CE, CNP, NAK])),
    max_size=30,
)


@examples(50)
@given(EVENTS, st.booleans())
def test_counts_equal_those_of_the_definition(events, for_nak) -> None:
    rows, now = [], 0
    for flow, step, what in events:
        now += step
        rows.append((flow, now, what))
    found = cnp_conformance(paced(rows, cnp_for_nak=for_nak).cnp, "tap") if rows else None
    causes = (CE, NAK) if for_nak else (CE,)
    for number, scope in enumerate(SCOPE_NAMES):
        if found is not None:
            record = found.scopes[number]
            counts = (record.expected_cnps, record.difference, record.too_close)
            assert counts == twin(rows, scope, causes)


def test_the_scope_that_explains() -> None:
    marks = [(0, 0, CE), (1, 100, CE), (2, 200, CE)]
    per_queue_pair = [(0, 300, CNP), (1, 400, CNP), (2, 500, CNP)]
    assert cnp_conformance(paced(marks + per_queue_pair).cnp, "t").explained_by == ["queue_pair"]
    per_pair = [(0, 300, CNP), (2, 400, CNP)]
    explained = cnp_conformance(paced(marks + per_pair).cnp, "t").explained_by
    assert explained == ["ip_pair", "destination"]  # the same with one address per port
    assert cnp_conformance(paced([*marks, (0, 300, CNP)]).cnp, "t").explained_by == ["port"]
    assert cnp_conformance(paced(marks).cnp, "t").explained_by == []


def test_an_adapter_with_two_addresses() -> None:
    """Host 0 notifies hosts 2 and, from another address of its port, 2 again: once per interval."""
    flows = np.zeros(4, FLOW)
    flows["src"], flows["dst"] = [2, 2, 0, 1], [0, 1, 2, 2]  # 0 and 1 receive from 2
    rows = [(0, 0, CE), (1, 100, CE), (2, 200, CNP)]
    columns = [
        {
            "flow": flow, "time_ns": START_NS + time, "opcode": what if what == CNP else 7,
            "traffic_class": CE if what == CE else 0, "frame_number": number + 1,
        }
        for number, (flow, time, what) in enumerate(rows)
    ]  # fmt: skip
    batch = tracked(columns, 4)
    batch.peer[:] = [2, 3, 0, 1]
    one = TapConformance(ConformanceOptions(same_port=(("0", "1"),)))
    one.update(batch, flows)
    found = {scope.scope: scope for scope in cnp_conformance(one.cnp, "t").scopes}
    assert found["port"].difference == found["destination"].difference == 0
    assert found["ip_pair"].difference == found["queue_pair"].difference == 1


def test_a_cnp_for_a_nak() -> None:
    rows = [(0, 0, NAK), (0, 100, CNP)]
    assert broken(paced(rows), rules.CNP_UNCAUSED) == 0  # before the switch that marks, maybe
    assert cnp_conformance(paced(rows).cnp, "t").explained_by == []
    found = cnp_conformance(paced(rows, cnp_for_nak=True).cnp, "t")
    assert set(found.explained_by) == set(SCOPE_NAMES)


def broken(one, kind):
    return int(one.keeper.book.broken[:, kind].sum())


def test_interval_and_cause() -> None:
    close = paced([(0, 0, CE), (0, 10, CNP), (0, 3_000, CNP)])
    assert broken(close, rules.CNP_CLOSE) == 1
    far = paced([(0, 0, CE), (0, 10, CNP), (0, 4_010, CNP)])
    assert broken(far, rules.CNP_CLOSE) == 0
    assert broken(paced([(0, 0, CE), (1, 10, CNP)]), rules.CNP_UNCAUSED) == 1
    before_the_marks = paced([(0, 0, CNP)])
    assert broken(before_the_marks, rules.CNP_UNCAUSED) == 0
    assert before_the_marks.keeper.book.undecided[3, rules.CNP_CAUSE, rules.NO_MARKS] == 1
