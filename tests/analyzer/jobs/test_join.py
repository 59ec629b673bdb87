"""Where queue pairs are whose log names the other end only."""

import time
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from job_logs import COMM, FORMS, ground_truth, nccl, ucx, ucx_dc, ucx_end, write_logs

from rocescope.analyzer.jobs.job import LoggedPair
from rocescope.analyzer.jobs.join import in_time, located
from rocescope.analyzer.jobs.lines import Speaker
from rocescope.analyzer.pipeline.captures import analyze, open_captures
from rocescope.analyzer.pipeline.options import AnalyzeOptions
from rocescope.analyzer.track.pairing import NamedFlow

# Where queue pairs are whose log names the other end only.

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


# Logs written in the documented forms for the queue pairs of real captures.

CLEAN, LOSSY = "c16_rc_write_bidir.atB.pcap.gz", "i01_write_loss0.5_AtoB.atB.pcap.gz"
FAILED = (
    "{stamp}nodea:100:109 [0] transport/net_ib.cc:1 NCCL WARN NET/IB: ncclIbTest: Got CQE with"
    " error (devIndex=0, req=0x1, comm=0x2 (send), wr_id=3, qp_num={qpn})"
)
STATUS = (
    "{stamp}nodea:100:109 [0] transport/net_ib.cc:1 NCCL WARN NET/IB: Got completion from peer"
    " 10.0.0.2<5> with status=IBV_WC_RETRY_EXC_ERR(12) opcode=IBV_WC_SEND(0) vendor_err=129"
    " localGid ::ffff:10.0.0.1 remoteGids::ffff:10.0.0.2 hca rxe0"
)


def stamp(time_s):
    return time.strftime("[%Y-%m-%d %H:%M:%S] ", time.localtime(time_s))


@pytest.fixture
def joined(data, tmp_path):
    """Analyses a capture with logs, each a list of lines."""

    def run(capture, *logs):
        paths = []
        for number, log in enumerate(logs):
            path = tmp_path / f"{number}.log"
            path.write_text("".join(f"{line}\n" for line in log))
            paths.append(str(path))
        return analyze([str(data / capture)], AnalyzeOptions(job_logs=tuple(paths)))

    return run


def qpns(data, capture, side):
    return [pair[side]["qpn"] for pair in ground_truth(data / capture)["qp_pairs"]]


@pytest.fixture
def sender(data):
    return qpns(data, LOSSY, "client")


def notes(analysis):
    return [warning for warning in analysis.warnings if warning.startswith("job logs")]


@pytest.mark.parametrize("form", FORMS)
def test_flows_to_and_from_a_sender_name_both_ranks(joined, sender, form):
    """Only senders name their queue pairs before 2.30: the data flows have them by their peers."""
    result = joined(
        LOSSY,
        nccl("nodea", 100, 11, 3, "10.0.0.1", sender, form),
        nccl("nodeb", 200, 3, 11, "10.0.0.2", []),
    )
    assert len(result.flows) == 2 * len(sender)
    for flow in result.flows:
        owner = flow.owner
        leaves = flow.src == "10.0.0.1"
        assert owner.ranks == ((11, 3) if leaves else (3, 11))
        assert owner.end == ("source" if leaves else "destination")
        assert (owner.host, owner.pid, owner.command) == ("nodea", 100, None)
        assert owner.comm == COMM
        assert owner.device == (None if form == "2.18" else "rxe0")
        if not leaves:
            assert owner.inferred_channel == sender.index(flow.dest_qp)
    at_a = {(one.a, one.a_rank, one.b_rank) for one in result.connections}
    assert at_a <= {("10.0.0.1", 11, 3), ("10.0.0.2", 3, 11)} and at_a


def test_both_ends_in_logs(joined, data):
    logs = [
        nccl("nodea", 100, 11, 3, "10.0.0.1", qpns(data, CLEAN, "client")),
        nccl("nodeb", 200, 3, 11, "10.0.0.2", qpns(data, CLEAN, "server")),
    ]
    result = joined(CLEAN, *logs)
    for flow in result.flows:
        leaves = flow.src == "10.0.0.1"
        assert flow.owner.end == "destination"
        assert flow.owner.ranks == ((11, 3) if leaves else (3, 11))
        assert flow.owner.host == ("nodeb" if leaves else "nodea")
    assert result.diagnosis.findings == []


def test_findings_name_the_ranks(joined, sender):
    result = joined(LOSSY, nccl("nodea", 100, 11, 3, "10.0.0.1", sender))
    (finding,) = [one for one in result.diagnosis.findings if one.kind == "loss"]
    assert finding.sentence.endswith("(rank 11 to rank 3)")
    assert {one.owner.ranks for one in finding.affected} == {(11, 3)}


def test_the_peer_stays_open_between_two_ranks_of_one_host(joined, sender):
    log = list(nccl("nodea", 100, 11, 3, "10.0.0.1", sender))
    log.insert(2, log[2].replace("-> 3[0]", "-> 4[0]"))
    result = joined(LOSSY, log)
    assert {flow.owner.peer_rank for flow in result.flows} == {None}
    assert {flow.owner.rank for flow in result.flows} == {11}
    # The host of the peer's address tells them apart.
    apart = [
        nccl("nodeb", 200, 3, 11, "10.0.0.2", [9999]),
        nccl("nodec", 300, 4, 11, "10.0.0.3", [9999]),
    ]
    assert {flow.owner.peer_rank for flow in joined(LOSSY, log, *apart).flows} == {3}


def test_perftest_names_both_ends(joined, data):
    output = ground_truth(data / LOSSY)["client_output"].splitlines()
    result = joined(LOSSY, output)
    assert all(flow.owner.command == "perftest" for flow in result.flows)
    assert {flow.owner.device for flow in result.flows} == {"rxe0"}
    assert all("host_probe" in connection.evidence for connection in result.connections)
    pairs = {(c.a_qp, c.b_qp) for c in result.connections}
    assert pairs == {(qpn, qpn) for qpn in qpns(data, LOSSY, "client")}


def test_two_processes_with_one_queue_pair_number(joined, sender, data):
    first = list(nccl("nodea", 100, 11, 3, "10.0.0.1", sender))
    second = list(nccl("nodea", 101, 12, 4, "10.0.0.1", sender))
    result = joined(LOSSY, first, second)
    assert all(flow.owner is None for flow in result.flows)
    assert any("fit several queue pairs" in note for note in notes(result))
    assert not any("none of the" in note for note in notes(result))
    # With times the later one has it, if it was there before the flow.
    began = min(flow.first_time_ns for flow in result.flows) / 1e9
    dated = [
        nccl("nodea", 100, 11, 3, "10.0.0.1", sender, stamp=stamp(began - 3600)),
        nccl("nodea", 101, 12, 4, "10.0.0.1", sender, stamp=stamp(began - 5)),
    ]
    result = joined(LOSSY, *dated)
    assert {flow.owner.rank for flow in result.flows} == {12}
    assert notes(result) == []


@pytest.mark.parametrize(("ended_s", "joins"), [(-86_400, False), (3600, True)])
@pytest.mark.parametrize("step", ["Destroy COMPLETE", "Abort COMPLETE"])
def test_queue_pairs_end_with_their_communicator(joined, sender, ended_s, joins, step):
    began = min(flow.first_time_ns for flow in joined(LOSSY).flows) / 1e9
    log = list(nccl("nodea", 100, 11, 3, "10.0.0.1", sender, stamp=stamp(began - 90_000)))
    end = nccl("nodea", 100, 11, 3, "10.0.0.1", sender, stamp=stamp(began + ended_s))
    log.append(list(end)[-1].replace("Init COMPLETE", step))
    result = joined(LOSSY, log)
    assert all((flow.owner is not None) == joins for flow in result.flows)
    assert any("its communicator was destroyed" in note for note in notes(result)) != joins


def test_a_log_of_a_later_job_is_not_joined(joined, sender):
    last = max(flow.last_time_ns for flow in joined(LOSSY).flows) / 1e9
    log = nccl("nodea", 100, 11, 3, "10.0.0.1", sender, stamp=stamp(last + 3600))
    result = joined(LOSSY, log)
    assert all(flow.owner is None for flow in result.flows)
    assert any("ended before their queue pair" in note for note in notes(result))


def test_logs_of_other_jobs_are_one_line(joined, sender):
    result = joined(LOSSY, nccl("nodex", 1, 1, 2, "10.9.9.9", sender))
    assert all(flow.owner is None for flow in result.flows)
    (note,) = notes(result)
    assert note.startswith(f"job logs: none of the {len(sender)} queue pairs in 1 file is in")


def test_a_log_without_queue_pairs_says_what_to_set(joined):
    (note,) = notes(joined(CLEAN, ["nodea:1:1 [0] NCCL INFO Bootstrap : Using eth0"]))
    assert "NCCL_DEBUG=INFO" in note


def test_unknown_lines_and_dropped_entries_are_said(joined, sender):
    log = [
        *nccl("nodea", 100, 11, 3, "10.0.0.1", sender),
        "nodea:1:1 [0] NCCL INFO NET/IB: NCCL Dev 0 Port 1 queuepair 4 mtu 3",
    ]
    assert any("1 lines have an unknown form" in note for note in notes(joined(LOSSY, log)))


@pytest.mark.parametrize(
    ("seconds", "told"),
    [(1, True), (3600, False), (-3600, False), (None, False)],
)
def test_errors_of_the_log_are_events_at_their_time(joined, sender, seconds, told):
    first = min(flow.first_time_ns for flow in joined(LOSSY).flows)
    when = "" if seconds is None else stamp(first / 1e9 + seconds)
    log = [
        *nccl("nodea", 100, 11, 3, "10.0.0.1", sender),
        FAILED.format(stamp=when, qpn=sender[1]),
        STATUS.format(stamp=when),
    ]
    result = joined(LOSSY, log)
    found = [event for event in result.events if event.kind == "job_error"]
    assert len(found) == told
    assert result.events == sorted(result.events, key=lambda event: event.time_ns)
    if not told:
        assert any("1 errors" in note for note in notes(result))
        return
    (event,) = found
    assert abs(event.time_ns - first - seconds * 10**9) <= 10**9
    flow = result.flows[event.flow]
    assert (flow.src, flow.owner.ranks) == ("10.0.0.1", (11, 3))
    assert event.text == (
        "rank 11 (nodea pid 100): completion with error 12 (retries exceeded),"
        f" QP 0x{sender[1]:06x} to 10.0.0.2"
    )


@pytest.mark.parametrize("with_time", [True, False])
def test_a_queue_pair_that_failed_in_the_log_is_not_said_to_live(joined, sender, with_time):
    """Others are; where the log names its host only, none of that host is."""
    first = min(flow.first_time_ns for flow in joined(CLEAN).flows)
    when = stamp(first / 1e9 + 1) if with_time else ""
    log = [
        *nccl("nodea", 100, 11, 3, "10.0.0.1", sender),
        FAILED.format(stamp=when, qpn=sender[1]),
        STATUS.format(stamp=when),
    ]

    def alive(result):
        claims = [claim for claim in result.diagnosis.healthy if "none stalled" in claim]
        return int(claims[0].split()[0]) if claims else 0

    assert alive(joined(CLEAN, log)) < alive(joined(CLEAN))


def errors(result):
    return [event for event in result.events if event.kind == "job_error"]


def test_errors_of_other_jobs_are_left_out(joined, sender):
    log = [
        *nccl("nodea", 100, 1, 2, "10.9.9.9", sender),
        FAILED.format(stamp="", qpn=sender[0]),
        FAILED.format(stamp="", qpn=9999),
        STATUS.format(stamp="").replace("10.0.0.", "10.9.9."),
    ]
    result = joined(LOSSY, log)
    assert errors(result) == []
    assert not any("errors" in note for note in notes(result))


def test_an_error_without_an_address_is_counted(joined, sender, begun_s):
    """Its number is that of a queue pair in the capture, but maybe of another host."""
    log = [FAILED.format(stamp=stamp(begun_s + 1), qpn=qpn) for qpn in (sender[0], 9999)]
    result = joined(LOSSY, log)
    assert [(event.flow, event.text) for event in errors(result)] == [
        (None, f"nodea pid 100: completion with error, QP 0x{sender[0]:06x}")
    ]
    assert any(
        note.startswith("job logs: 2 errors name no other end, and no line shows the address of")
        and f"(nodea pid 100: completion with error, QP 0x{sender[0]:06x})" in note
        for note in notes(result)
    )
    late = FAILED.format(stamp=stamp(begun_s - 3600), qpn=sender[0])
    undated = FAILED.format(stamp="", qpn=sender[0])
    assert errors(joined(LOSSY, [undated])) == errors(joined(LOSSY, [late])) == []
    assert any("1 errors name no other end" in note for note in notes(joined(LOSSY, [undated])))
    assert any("1 errors are not from the time" in note for note in notes(joined(LOSSY, [late])))


def test_an_error_of_a_process_in_the_capture_is_an_event_without_a_flow(joined, sender, begun_s):
    log = [
        *nccl("nodea", 100, 11, 3, "10.0.0.1", sender),
        FAILED.format(stamp=stamp(begun_s + 1), qpn=9999),
    ]
    result = joined(LOSSY, log)
    assert [event.flow for event in errors(result)] == [None]
    assert not any("errors" in note for note in notes(result))


def test_results_of_a_running_analysis_repeat(data, tmp_path, sender):
    path = tmp_path / "x.log"
    path.write_text("".join(f"{x}\n" for x in nccl("nodea", 100, 11, 3, "10.0.0.1", sender)))
    options = replace(AnalyzeOptions(), job_logs=(str(path),))
    with open_captures([str(data / LOSSY)], options) as run:
        run.read()
        assert run.conclude(True) == run.conclude(True)


def test_a_filter_by_rank_keeps_the_owners_of_the_whole_capture(data, tmp_path):
    """One direction alone does not tell the sender's queue pair: the first pass does."""
    options = AnalyzeOptions(job_logs=(write_logs(tmp_path, data),))
    whole = analyze([str(data / LOSSY)], options)
    one_way = analyze([str(data / LOSSY)], replace(options, filter="src_rank == 11"))
    leaving = [flow for flow in whole.flows if flow.src == "10.0.0.1"]
    assert {flow.src for flow in one_way.flows} == {"10.0.0.1"}
    assert [f.packets for f in one_way.flows] == [f.packets for f in leaving]
    assert [f.owner for f in one_way.flows] == [f.owner for f in leaving]
    assert {flow.owner.ranks for flow in one_way.flows} == {(11, 3)}


def ucx_ends(data, capture, begun_s, labels=("", "")):
    """Logs of UCX of both hosts of a capture."""
    ends = list(zip(qpns(data, capture, "client"), qpns(data, capture, "server"), strict=True))
    back = [(far, own) for own, far in ends]
    return (
        list(ucx("nodea", 100, ends, "10.0.0.2", labels[0], time_s=begun_s)),
        list(ucx("nodeb", 200, back, "10.0.0.1", labels[1], time_s=begun_s)),
    )


@pytest.fixture
def begun_s(data):
    flows = analyze([str(data / LOSSY)], AnalyzeOptions()).flows
    return min(flow.first_time_ns for flow in flows) / 1e9 - 0.5


def test_ucx_names_both_ends_with_the_ranks_of_labels(joined, data, begun_s):
    result = joined(LOSSY, *ucx_ends(data, LOSSY, begun_s, ("[1,4]<stdout>:", "[1,9]<stdout>:")))
    assert result.flows and notes(result) == []
    for flow in result.flows:
        leaves = flow.src == "10.0.0.1"
        assert flow.owner.end == "destination"
        assert (flow.owner.host, flow.owner.pid) == (("nodeb", 200) if leaves else ("nodea", 100))
        assert flow.owner.ranks == ((4, 9) if leaves else (9, 4))
        assert (flow.owner.device, flow.owner.comm) == ("rxe0", "MPI_COMM_WORLD")
    assert all("host_probe" in connection.evidence for connection in result.connections)
    assert {(pair.sender, pair.receiver) for pair in result.ranks.pairs} == {(4, 9)}


def test_ucx_of_one_host_names_the_processes_of_this_host(joined, data, begun_s):
    result = joined(LOSSY, ucx_ends(data, LOSSY, begun_s)[0])
    for flow in result.flows:
        assert flow.owner.end == ("source" if flow.src == "10.0.0.1" else "destination")
        assert (flow.owner.host, flow.owner.rank, flow.owner.comm) == ("nodea", None, None)


def test_ucx_of_other_connections_is_not_joined(joined, data, begun_s):
    own, far = qpns(data, LOSSY, "client")[0], qpns(data, LOSSY, "server")[0]
    later = list(ucx("nodea", 100, [(own, far)], "10.0.0.2", time_s=begun_s + 86_400))
    for log in (
        later,
        list(ucx("nodea", 100, [(own + 999, far)], "10.0.0.2", time_s=begun_s)),
        list(ucx("nodea", 100, [(own, far + 999)], "10.0.0.2", time_s=begun_s)),
        list(ucx("nodea", 100, [(own, far)], "10.0.0.3", time_s=begun_s)),
    ):
        result = joined(LOSSY, log)
        assert all(flow.owner is None for flow in result.flows)
        assert "none of the 1 queue pairs in 1 file is in this capture" in notes(result)[0]


def test_a_number_that_ucx_uses_again_is_another_queue_pair(joined, data, begun_s):
    """The process connects the same queue pair number to another host first."""
    own, far = qpns(data, LOSSY, "client")[0], qpns(data, LOSSY, "server")[0]
    log = [
        *ucx("nodea", 100, [(own, 77)], "10.0.0.3", time_s=begun_s - 60),
        *ucx("nodea", 100, [(own, far)], "10.0.0.2", time_s=begun_s),
    ]
    owners = {flow.dest_qp: flow.owner for flow in joined(LOSSY, log).flows}
    assert owners[own].host == owners[far].host == "nodea"


def test_labels_of_several_jobs_are_not_used(joined, data, begun_s):
    result = joined(LOSSY, *ucx_ends(data, LOSSY, begun_s, ("4: ", "4: ")))
    assert {flow.owner.rank for flow in result.flows} == {None}
    assert (
        "1 ranks that mpirun or srun wrote before lines of UCX belong to several"
        in notes(result)[0]
    )


def test_errors_of_ucx_are_events(joined, data, begun_s):
    log, other = ucx_ends(data, LOSSY, begun_s, ("[1,4]<stdout>:", "[1,9]<stdout>:"))
    own = qpns(data, LOSSY, "client")[0]
    head = f"[1,4]<stdout>:[{begun_s + 1:.6f}] [nodea:100:0]     ib_mlx5_log.c:179  UCX  ERROR "
    log.append(
        head + "Transport retry count exceeded on rxe0:1/RoCE (synd 0x15 vend 0x81 hw_synd 0/0)"
    )
    log.append(head + f"RC QP 0x{own:x} wqe[1]: SEND s-- [rqpn 0x9 dgid ::ffff:10.0.0.2]")
    (event,) = [one for one in joined(LOSSY, log, other).events if one.kind == "job_error"]
    assert event.text == (
        f"rank 4 (nodea pid 100): completion with error 12 (retries exceeded), QP 0x{own:06x}"
        " to 10.0.0.2"
    )
    assert abs(event.time_ns / 1e9 - begun_s - 1) < 1e-3


def test_an_error_in_a_capture_of_one_direction(data, tmp_path, begun_s):
    """No packet goes to the queue pair that reports it."""
    own, far = qpns(data, LOSSY, "client"), qpns(data, LOSSY, "server")
    path = tmp_path / "x.log"
    log = [
        *ucx_ends(data, LOSSY, begun_s)[0],
        *ucx_error(begun_s, f"{hex(own[1])} wqe[0]: SEND", "RC"),
    ]
    path.write_text("".join(f"{line}\n" for line in log))
    options = AnalyzeOptions(job_logs=(str(path),), filter="src == 10.0.0.1")
    result = analyze([str(data / LOSSY)], options)
    (event,) = errors(result)
    assert {flow.src for flow in result.flows} == {"10.0.0.1"}
    assert result.flows[event.flow].dest_qp == far[1]


def ucx_error(begun_s, text, kind="DCI", host="nodea", device="rxe0"):
    """Both lines of an error one second after the flows begin."""
    head = f"[{begun_s + 1:.6f}] [{host}:100:0]     ib_mlx5_log.c:179  UCX  ERROR "
    return [
        head
        + f"Transport retry count exceeded on {device}:1/RoCE (synd 0x15 vend 0x81 hw_synd 0/0)",
        head + f"{kind} QP {text}",
    ]


def test_an_error_that_names_the_other_end_is_of_the_flow_to_it(joined, data, begun_s):
    far = qpns(data, LOSSY, "server")[2]
    text = "0x77 wqe[0]: SEND s-e [rqpn {} rmac 50:6b:4b:cb:be:ce sgix 3 dgid ::ffff:{} tc 106]"
    result = joined(LOSSY, ucx_error(begun_s, text.format(hex(far), "10.0.0.2")))
    (event,) = errors(result)
    flow = result.flows[event.flow]
    assert (flow.src, flow.dst, flow.dest_qp) == ("10.0.0.1", "10.0.0.2", far)
    other_end = joined(LOSSY, ucx_error(begun_s, text.format("0x9999", "10.0.0.2")))
    assert [event.flow for event in errors(other_end)] == [None]
    elsewhere = joined(LOSSY, ucx_error(begun_s, text.format(hex(far), "10.9.9.9")))
    assert errors(elsewhere) == []


def test_an_error_of_another_host_is_not_of_the_flow_to_the_same_other_end(joined, data, begun_s):
    """Targets of DC have many initiators."""
    own, far = qpns(data, LOSSY, "client"), qpns(data, LOSSY, "server")
    text = f"0x77 wqe[0]: SEND s-e [rqpn {hex(far[0])} rmac 0:0 sgix 3 dgid ::ffff:10.0.0.2 tc 1]"
    known = list(ucx_dc("nodea", 100, own[0], own[1:], "10.0.0.1", time_s=begun_s))
    for host, flows in (("nodea", 1), ("nodex", 0)):
        found = errors(joined(LOSSY, known, ucx_error(begun_s, text, host=host)))
        assert sum(event.flow is not None for event in found) == flows


def test_an_error_without_a_peer_is_of_the_queue_pair_of_its_device(joined, data, begun_s):
    """The log names another queue pair of the device, and so its address."""
    own, far = qpns(data, LOSSY, "client"), qpns(data, LOSSY, "server")
    log = list(ucx("nodea", 100, [(own[0], far[0])], "10.0.0.2", time_s=begun_s))
    result = joined(LOSSY, log + ucx_error(begun_s, f"{hex(own[1])} wqe[0]: RDMA_READ s--", "RC"))
    (event,) = errors(result)
    flow = result.flows[event.flow]
    assert (flow.src, flow.dest_qp) == ("10.0.0.1", far[1])


@pytest.mark.parametrize(("hours", "told"), [(0.5, False), (27, True)])
def test_logs_long_before_the_capture_are_said(joined, sender, begun_s, hours, told):
    log = list(nccl("nodea", 100, 11, 3, "10.0.0.1", sender, stamp=stamp(begun_s - hours * 3600)))
    result = joined(LOSSY, log)
    assert {flow.owner.ranks for flow in result.flows} == {(11, 3), (3, 11)}
    assert [note for note in notes(result) if "27 hours before the flows begin" in note] == (
        notes(result) if told else []
    )
    assert bool(notes(result)) == told


def test_labels_of_several_ranks_before_one_process_are_not_used(joined, data, begun_s):
    """As of two hosts with one name, in containers, whose processes have the same number."""
    near, far = ucx_ends(data, LOSSY, begun_s, ("4: ", "9: "))
    other = list(ucx("nodea", 100, [(1, 2)], "10.0.0.3", "7: ", time_s=begun_s))
    result = joined(LOSSY, near, far, other)
    assert {flow.owner.rank for flow in result.flows if flow.owner.host == "nodea"} == {None}
    assert {flow.owner.rank for flow in result.flows if flow.owner.host == "nodeb"} == {9}
    assert (
        "2 ranks that mpirun or srun wrote before lines of UCX belong to several"
        in notes(result)[0]
    )


def test_queue_pairs_of_dc_name_their_processes(joined, data, begun_s):
    """Targets and initiators are found by the GID that their device uses, from one log alone."""
    own, far = qpns(data, LOSSY, "client"), qpns(data, LOSSY, "server")
    near = ucx_dc("nodea", 100, own[0], own[1:], "10.0.0.1", "4: ", time_s=begun_s)
    there = ucx_dc("nodeb", 200, far[0], far[1:], "10.0.0.2", "9: ", time_s=begun_s)
    result = joined(LOSSY, list(near), list(there))
    assert result.flows and notes(result) == []
    for flow in result.flows:
        leaves = flow.src == "10.0.0.1"
        assert (flow.owner.host, flow.owner.device) == ("nodeb" if leaves else "nodea", "mlx5_0")
        assert flow.owner.ranks == ((4, 9) if leaves else (9, 4))


@pytest.mark.parametrize(("ended_s", "joins"), [(-10, False), (0.1, True)])
def test_a_queue_pair_that_ucx_ended_before_the_flow_is_another(
    joined, data, begun_s, ended_s, joins
):
    own, far = qpns(data, LOSSY, "client")[0], qpns(data, LOSSY, "server")[0]
    log = list(ucx("nodea", 100, [(own, far)], "10.0.0.2", time_s=begun_s - 60))
    log.append(ucx_end("nodea", 100, own, begun_s + ended_s))
    result = joined(LOSSY, log)
    found = {flow.dest_qp for flow in result.flows if flow.owner is not None}
    assert found == ({own, far} if joins else set())
    assert [note for note in notes(result) if "none of the 1 queue pairs" in note] == (
        [] if joins else notes(result)
    )


def test_a_number_of_two_processes_is_joined_by_its_end(joined, data, begun_s):
    """The first ends before the second begins; both begin before the capture."""
    own, far = qpns(data, LOSSY, "client")[0], qpns(data, LOSSY, "server")[0]
    first = list(ucx("nodea", 100, [(own, far)], "10.0.0.2", time_s=begun_s - 7200))
    first.append(ucx_end("nodea", 100, own, begun_s - 7000))
    second = list(ucx("nodea", 101, [(own, far)], "10.0.0.2", time_s=begun_s - 3605))
    second.append(ucx_end("nodea", 101, own, begun_s + 3600))
    result = joined(LOSSY, first, second)
    assert {flow.owner.pid for flow in result.flows if flow.owner is not None} == {101}
    assert notes(result) == []  # its end is known: its age is no doubt


# Logs and captures of published forms.

RING = "c05_rc_atomic_fetchadd.atB.pcap"
"""Two queue pairs, 42 and 43, from 10.0.0.1 to 10.0.0.2."""
PERF = "cases/perf.pcap.gz"
"""Four queue pairs from 10.8.80.92 to 10.8.80.91, one with IPv6, one with link-local addresses."""


@pytest.fixture
def case(data, tmp_path, monkeypatch):
    """Analyses a capture with the log of a case, whose lines may be changed."""
    monkeypatch.setenv("TZ", "UTC")
    time.tzset()

    def run(capture, name, change=lambda line: line):
        path = tmp_path / name
        text = (data / "cases" / name).read_text()
        path.write_text("".join(f"{change(line)}\n" for line in text.splitlines()))
        return analyze([str(data / capture)], AnalyzeOptions(job_logs=(str(path),)))

    yield run
    monkeypatch.undo()
    time.tzset()


def owners(result):
    return {flow.dest_qp: flow.owner for flow in result.flows if flow.owner is not None}


@pytest.mark.parametrize("name", ["m2_split_2.27.log", "m2_with_space.log"])
def test_queue_pairs_of_a_communicator_that_is_split_off(case, name):
    found = owners(case(RING, name))
    assert {(one.rank, one.peer_rank, one.comm) for one in found.values()} == {
        (0, 1, "0x5500000002")
    }


@pytest.mark.parametrize("name", ["rccl_6.2.log", "ibp.log", "ansi2.log"])
def test_both_ends_have_host_rank_and_communicator(case, name):
    result = case(RING, name)
    assert [
        (flow.owner.host, flow.owner.rank, flow.owner.peer_rank, flow.owner.comm)
        for flow in result.flows
    ] == [("hostB", 1, 0, "0x" + "a" * 16)] * 2 + [("hostA", 0, 1, "0x" + "a" * 16)] * 2
    assert not any("form" in note for note in notes(result))


@pytest.mark.parametrize("name", ["m1_warn_2.30.4.log", "m1_warn_2.30.7.log"])
def test_warnings_with_and_without_their_function(case, name):
    (event,) = errors(case(RING, name))
    assert event.flow == 0 and "rank 0 (hostA pid 100): completion with error 12" in event.text


BEFORE = {
    "nothing": "{}",
    "pdsh": "node7: {}",
    "srun": "0: {}",
    "mpirun": "[1,0]<stdout>:{}",
    "kubectl": "[pod/trainer-0/pytorch] {}",
    "docker": "worker-1  | {}",
    "time": "2026-11-21T09:05:07.123456789Z {}",
    "colour": "\x1b[32m{}\x1b[0m",
    "both": "\x1b[36mworker-1  | \x1b[0m2026-11-21T09:05:07Z {}\r",
}


@pytest.mark.parametrize("before", BEFORE)
@pytest.mark.parametrize(
    ("name", "capture"),
    [("q4.txt", PERF), ("fe80.txt", PERF), ("cm6.txt", PERF), ("ibp.log", RING)],
)
def test_what_is_before_and_around_lines_changes_no_owner(case, name, capture, before):
    whole = case(capture, name)
    assert len(owners(whole)) == {"q4.txt": 8, "ibp.log": 2}.get(name, 2)
    result = case(capture, name, BEFORE[before].format)
    assert owners(result) == owners(whole)
    assert notes(result) == notes(whole)


@pytest.mark.parametrize("name", ["pdsh.txt", "ansi.txt"])
def test_perftest_with_a_prefix_or_a_colour(case, name):
    found = owners(case(PERF, name))
    assert {(qpn, one.device) for qpn, one in found.items()} == {
        (0x111, "mlx5_0"),
        (0x211, "mlx5_0"),
    }


def test_perftest_with_a_text_that_changes_is_told(case):
    numbers = iter(range(1000))
    result = case(PERF, "pdsh.txt", lambda line: f"{next(numbers)}: {line}")
    assert owners(result) == {}
    assert any("2 GIDs in lines of perftest follow no queue pair" in note for note in notes(result))
    assert not any("NCCL" in note for note in notes(result))


def test_two_programs_of_perftest_whose_lines_are_mixed(case):
    result = case(PERF, "two_blocks_interleaved.txt")
    assert {(qpn, one.device) for qpn, one in owners(result).items()} == {
        (qpn, None) for qpn in (0x111, 0x211, 0x112, 0x212)
    }
    assert any("2 queue pairs are of programs of perftest" in note for note in notes(result))


@pytest.mark.parametrize(
    ("name", "flow"), [("stamped_6673.log", None), ("stamped_dci.log", 0), ("debug_6673.log", 0)]
)
def test_errors_of_ucx_without_its_debug_output(case, name, flow):
    """The first names a queue pair, but no address; the second the other end."""
    result = case(PERF, name)
    (event,) = errors(result)
    assert event.flow == flow
    assert "completion with error 12 (retries exceeded), QP 0x000111" in event.text
    assert any("1 errors name no other end" in note for note in notes(result)) == (flow is None)
    assert len(owners(result)) == (2 if name == "debug_6673.log" else 0)


def test_flows_of_processes_with_several_ranks_are_told(joined, sender):
    log = list(nccl("nodea", 100, 11, 3, "10.0.0.1", sender))
    other = log[1].replace("rank 11", "rank 1").replace(COMM, "0xdef").replace("0x55d0", "0x66d0")
    begun = [line.replace("START", "COMPLETE") for line in (log[1], other)]
    result = joined(LOSSY, [log[0], log[1], other, *begun, *log[2:-1]])
    assert {(flow.owner.host, flow.owner.rank) for flow in result.flows} == {("nodea", None)}
    assert any(
        f"{len(result.flows)} flows belong to processes with several communicators" in note
        for note in notes(result)
    )
