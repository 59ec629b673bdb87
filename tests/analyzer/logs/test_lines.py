"""Lines of every documented form, and lines that are not whole."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from job_logs import FORMS, gid, nccl

from rocescope.analyzer.logs.lines import (
    INTERESTING,
    ChannelLine,
    CommunicatorLine,
    DevicesLine,
    ErrorLine,
    PerftestLine,
    QueuePairLine,
    Speaker,
    perftest,
    said,
    suspect,
)

HEAD = "node-1.rack:984:1257 [4] NCCL INFO "
WARN = "node-1.rack:984:1257 [4] transport/net_ib.cc:1295 NCCL WARN "
SPEAKER = Speaker("node-1.rack", 984, 4)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("ahead", ["", "[1,0]<stdout>:", "[rank0]: ", "[2026-11-21 09:05:07] "])
def test_the_queue_pair_line_of_each_version(form, ahead):
    line = ahead + HEAD + FORMS[form].format(qpn=576, gid=gid("192.168.100.16"), ece="")
    assert INTERESTING.search(line.encode())
    speaker, _, what = said(line)
    assert speaker == SPEAKER
    number = None if form == "2.18" else 0
    assert what == QueuePairLine(576, 1, number, None, "192.168.100.16", True)


def test_a_gid_as_a_real_host_printed_it():
    line = HEAD + FORMS["2.20"].format(qpn=34, gid="0/19001EACFFFF0000", ece="")
    assert said(line)[2].address == "172.30.0.25"
    link_local = HEAD + FORMS["2.20"].format(qpn=34, gid="80FE/46442FFEFF47BB4E", ece="")
    assert said(link_local)[2].address == "fe80::4ebb:47ff:fe2f:4446"


def test_queue_pairs_without_an_address():
    created = (
        "NET/IB: {}: QP created: port=1 dev=2 devName=mlx5_2 ndevs=8 nmdevs=8 qp_num=1200"
        " pkey=0 pd=0x7f oooRq=0"
    )
    sends = HEAD + created.format("ncclIbSenderQpsCreate")
    assert said(sends)[2] == QueuePairLine(1200, 1, 2, "mlx5_2", None, True)
    receives = HEAD + created.format("ncclIbReceiverQpsCreateToRts")
    assert not said(receives)[2].sends


def test_other_queue_pairs_in_ece_lines_are_not_taken():
    """Versions differ in whose number this is."""
    line = HEAD + "NET/IB: IbDev 0 Port 1 qpn 35 set_ece={supported=0, vendor_id=0x76ce}"
    assert said(line) is None and not suspect(line)


@pytest.mark.parametrize(
    ("text", "what"),
    [
        (
            "ncclCommInitRank comm 0x5a rank 3 nranks 8 cudaDev 1 nvmlDev 1 busId 4b000"
            " commId 0x62a8 - Init START",
            CommunicatorLine("0x5a", "0x62a8", 3, 1, "Init START"),
        ),
        (
            "[Rank 3] ncclCommInitRank comm 0x5a rank 3 nranks 8 cudaDev 1 nvmlDev 1 busId 4b000"
            " commId 0x0 - Init COMPLETE",
            CommunicatorLine("0x5a", "0x5a", 3, 1, "Init COMPLETE"),
        ),
        (
            "comm 0x5a rank 3 nranks 8 cudaDev 1 busId 4b000 - Destroy COMPLETE",
            CommunicatorLine("0x5a", "0x5a", 3, 1, "Destroy COMPLETE"),
        ),
        (
            "ncclCommSplit comm 0x5a rank 3 nranks 8 cudaDev 1 nvmlDev 1 busId 4b000 parent 0x6b"
            " splitCount 1 color 7 key 3- Init START",
            None,
        ),
        ("Channel 06/0 : 36[4] -> 20[4] [send] via NET/IBext_v8/3", ChannelLine(6, 36, 20, True)),
        (
            "Channel 00/0 : 51[3] -> 35[3] [receive] via NET/IB/5/GDRDMA",
            ChannelLine(0, 51, 35, False),
        ),
        (
            "NET/IB : Using [0]mlx5_0:1/RoCE [1]mlx5_1:1/RoCE [RO]; OOB eth0:10.0.0.1<0>",
            DevicesLine([(0, "mlx5_0", 1), (1, "mlx5_1", 1)]),
        ),
        ("Connected all rings", None),
    ],
)
def test_communicators_channels_and_devices(text, what):
    spoken = said(HEAD + text)
    assert (None if spoken is None else spoken[2]) == what


@pytest.mark.parametrize(
    ("text", "what"),
    [
        (
            "NET/IB : Got completion from peer 10.1.1.2<55921> with error 12, opcode 1, len 0,"
            " vendor err 129",
            ErrorLine(None, 12, None, None),
        ),
        (
            "NET/IB : Got completion from peer 10.1.1.2<55921> with status=12 opcode=1 len=0"
            " vendor err 129 (Send) localGid ::ffff:29.87.4.221 remoteGids::ffff:29.87.88.182",
            ErrorLine(None, 12, "29.87.4.221", "29.87.88.182"),
        ),
        (
            "NET/IB: Got completion from peer 10.1.1.2<55921> with status=IBV_WC_RETRY_EXC_ERR(12)"
            " opcode=IBV_WC_SEND(0) vendor_err=129 localGid ::ffff:10.0.0.1 remoteGids"
            "::ffff:10.0.0.2 hca mlx5_0",
            ErrorLine(None, 12, "10.0.0.1", "10.0.0.2"),
        ),
        (
            "NET/IB: ncclIbTest: Got CQE with error (devIndex=0, req=0x1, comm=0x2 (send),"
            " wr_id=3, qp_num=1200)",
            ErrorLine(1200, None, None, None),
        ),
    ],
)
def test_errors(text, what):
    assert said(WARN + text)[2] == what


def test_the_time_of_a_line_is_local_time(monkeypatch):
    import time

    line = "[2026-11-21 09:05:07] " + HEAD + "Channel 0/0 : 1[0] -> 2[0] [send] via NET/IB/0"
    moments = []
    for zone in ("UTC", "Etc/GMT-2"):
        monkeypatch.setenv("TZ", zone)
        time.tzset()
        moments.append(said(line)[1])
    monkeypatch.delenv("TZ")
    time.tzset()
    assert moments == [1795251907 * 10**9, (1795251907 - 7200) * 10**9]


def test_perftest():
    assert perftest(" local address: LID 0000 QPN 0x002d PSN 0x3490f6") == PerftestLine(True, 0x2D)
    assert perftest(" GID: 00:00:00:00:00:00:00:00:00:00:255:255:10:00:00:01") == PerftestLine(
        address="10.0.0.1"
    )
    assert perftest(" Dual-port       : OFF\t\tDevice         : rxe0").device == "rxe0"
    assert perftest(" GID: 00:00:00:00:00:00:00:00:00:00:255:999:10:00:00:01") is None


def test_lines_of_an_unknown_version_are_told_from_others():
    new = HEAD + "NET/IB: NCCL Dev 0 Port 1 queuepair 4 mtu 3"
    assert said(new) is None and suspect(new)
    assert not suspect(HEAD + "NET/IB : GPU Direct RDMA Disabled for HCA 0 'mlx5_0'")


@given(st.data())
def test_a_line_that_is_cut_or_damaged_says_nothing_wrong(data):
    """What a damaged line says, if anything, has numbers and names that it contains."""
    line = data.draw(st.sampled_from(list(nccl("nodea", 7, 11, 3, "10.0.0.1", [4321, 87]))))
    start = data.draw(st.integers(0, len(line)))
    stop = data.draw(st.integers(0, len(line)))
    junk = data.draw(st.text(max_size=8))
    damaged = line[:start] + junk + line[max(start, stop) :]
    spoken = said(damaged)
    perftest(damaged), suspect(damaged)
    if spoken is None:
        return
    speaker, _, what = spoken
    assert f"{speaker.host}:{speaker.pid}:" in damaged
    if isinstance(what, QueuePairLine):
        assert f" qpn {what.qpn} " in damaged
    if isinstance(what, CommunicatorLine):
        assert f"rank {what.rank} " in damaged
