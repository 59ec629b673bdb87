"""Where queue pairs are whose log names the other end only."""

from hypothesis import given
from hypothesis import strategies as st

from rocescope.analyzer.logs.job import LoggedPair
from rocescope.analyzer.logs.lines import Speaker
from rocescope.analyzer.logs.locate import in_time, located
from rocescope.analyzer.track.pairing import NamedFlow

A, B, C = "10.0.0.1", "10.0.0.2", "10.0.0.3"
NODE_A, NODE_B = Speaker("a", 1, -1), Speaker("b", 2, -1)


def pair(qpn, remote, speaker=NODE_A, address=None, time_ns=100, device="rxe0"):
    return LoggedPair(
        qpn, speaker, address=address, time_ns=time_ns, device=device,
        remote_address=remote and remote[0], remote_qpn=remote and remote[1],
    )  # fmt: skip


def flow(src, dst, dest_qp, first_ns=100, last_ns=200):
    return NamedFlow(0, src, dst, dest_qp, -1, first_ns, last_ns)


def test_the_source_of_the_flow_to_the_other_end():
    one = pair(5, (B, 9))
    assert located([one], [flow(A, B, 9), flow(B, A, 5)]) == {id(one): A}
    assert located([one], [flow(A, B, 9)]) == {id(one): A}
    assert located([one], [flow(B, A, 5)]) == {}


def test_an_answer_to_another_queue_pair_is_another_connection():
    one = pair(5, (B, 9))
    assert located([one], [flow(C, B, 9), flow(B, C, 6)]) == {}
    assert located([one], [flow(C, B, 9), flow(B, C, 6), flow(A, B, 9)]) == {id(one): A}


def test_two_sources_leave_it_open():
    one = pair(5, (B, 9))
    assert located([one], [flow(A, B, 9), flow(C, B, 9)]) == {}


def test_a_flow_that_ended_before_does_not_count():
    hour = 3_600_000_000_000
    one = pair(5, (B, 9), time_ns=hour)
    assert located([one], [flow(A, B, 9)]) == {}
    assert not in_time(one, flow(A, B, 9))
    assert in_time(one, flow(A, B, 9, last_ns=hour))


def test_the_log_of_the_other_end():
    """Only packets to A are in the capture: B's log tells that A's queue pair 5 is at A."""
    one, other = pair(5, (B, 9)), pair(9, (A, 5), NODE_B, device="rxe1")
    assert located([one, other], [flow(B, A, 5)]) == {id(other): B, id(one): A}


def test_queue_pairs_of_the_same_device():
    one, datagrams = pair(5, (B, 9)), pair(7, None)
    elsewhere = pair(8, None, device="rxe1")
    found = located([one, datagrams, elsewhere], [flow(A, B, 9)])
    assert found == {id(one): A, id(datagrams): A}


def test_known_addresses_are_left_alone():
    assert located([pair(5, (B, 9), address=C)], [flow(A, B, 9)]) == {}


@given(
    st.lists(st.tuples(st.sampled_from([A, B, C]), st.sampled_from([A, B, C]), st.integers(1, 3)))
)
def test_a_located_queue_pair_sends_to_its_other_end_from_there(ends):
    flows = [flow(src, dst, qpn) for src, dst, qpn in ends]
    pairs = [pair(qpn, (B, far)) for qpn in (1, 2) for far in (1, 2, 3)]
    for one, address in ((one, located([one], flows).get(id(one))) for one in pairs):
        if address is not None:
            assert any((f.src, f.dst, f.dest_qp) == (address, *one.remote) for f in flows)
            assert not any(
                (f.src, f.dst, f.dest_qp) == (other, *one.remote)
                for f in flows
                for other in {A, B, C} - {address}
                if not any((g.src, g.dst) == (B, other) and g.dest_qp != one.qpn for g in flows)
            )
