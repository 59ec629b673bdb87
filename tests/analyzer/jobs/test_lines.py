"""Lines of every documented form, and lines that are not whole."""

import re
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st
from job_logs import FORMS, gid, nccl, ucx, ucx_dc, ucx_end

from rocescope.analyzer.jobs.lines import (
    INTERESTING,
    UCX_INTERESTING,
    ChannelLine,
    CommunicatorLine,
    DevicesLine,
    EndLine,
    ErrorLine,
    GidLine,
    QueuePairLine,
    Speaker,
    UcxLog,
    decoded,
    readable,
    said,
    suspect,
    suspect_ucx,
)

# Lines of every documented form, and lines that are not whole.

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
            CommunicatorLine("0x5a", None, 3, 1, "Init COMPLETE"),
        ),
        (
            "comm 0x5a rank 3 nranks 8 cudaDev 1 busId 4b000 - Destroy COMPLETE",
            CommunicatorLine("0x5a", None, 3, 1, "Destroy COMPLETE"),
        ),
        (
            "ncclCommSplit comm 0x5a rank 3 nranks 8 cudaDev 1 nvmlDev 1 busId 4b000 parent 0x6b"
            " splitCount 1 color 7 key 3- Init START",
            CommunicatorLine("0x5a", None, 3, 1, "Init START", ("0x6b", 1, 7)),
        ),
        (
            "ncclCommShrink comm 0x5a rank 3 nranks 8 cudaDev 1 nvmlDev 1 busId 4b000 parent 0x6b"
            " childCount 2 color 0 key -3 - Init COMPLETE",
            CommunicatorLine("0x5a", None, 3, 1, "Init COMPLETE", ("0x6b", 2, 0)),
        ),
        (
            "ncclCommSplit comm 0x5a rank 3 nranks 8 cudaDev 1 nvmlDev 1 busId 4b000 parent 0x6b"
            " color 1 key 3 commId 0x62a8 localSize 296 used 39489536 bytes on core 17"
            " - Init COMPLETE",
            CommunicatorLine("0x5a", "0x62a8", 3, 1, "Init COMPLETE"),
        ),
        (
            "Channel 00/0 : 0[3] -> 1[3] [send] via NET/IBP/0/GDRDMA comm 0x5a nRanks 02",
            ChannelLine(0, 0, 1, True, "0x5a"),
        ),
        ("NET/IBP : Using [0]mlx5_0:1/RoCE [RO]; OOB eth0:1<0>", DevicesLine([(0, "mlx5_0", 1)])),
        ("NET/Socket : Using [0]eth0:10.0.0.1<0>", None),
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
    line = "[2026-11-21 09:05:07] " + HEAD + "Channel 0/0 : 1[0] -> 2[0] [send] via NET/IB/0"
    moments = []
    for zone in ("UTC", "Etc/GMT-2"):
        monkeypatch.setenv("TZ", zone)
        time.tzset()
        moments.append(said(line)[1])
    monkeypatch.delenv("TZ")
    time.tzset()
    assert moments == [1795251907 * 10**9, (1795251907 - 7200) * 10**9]


@pytest.mark.parametrize(
    ("stamp", "time_s"),
    [
        ("[2026-11-21T09:05:07Z] ", 1795251907),
        ("[2026-11-21 09:05:07.250 UTC] ", 1795251907.25),
        ("[2026-11-21 09:05:07,5+02:00] ", 1795251907.5 - 7200),
        ("[2026-11-21T09:05:07-0330] ", 1795251907 + 12600),
    ],
)
def test_a_time_with_its_zone_is_read_in_this_zone(monkeypatch, stamp, time_s):
    monkeypatch.setenv("TZ", "Etc/GMT-5")
    time.tzset()
    moment = said(stamp + HEAD + "Channel 0/0 : 1[0] -> 2[0] [send] via NET/IB/0")[1]
    monkeypatch.delenv("TZ")
    time.tzset()
    assert moment == int(time_s * 4) * 10**9 // 4


@pytest.mark.parametrize("net", ["IB", "IBP", "IBext_v8", "IB/GIN", "IB_CAST"])
def test_plugins_write_the_lines_of_the_built_in_transport(net):
    for form in FORMS.values():
        line = HEAD + form.format(qpn=576, gid=gid("10.0.0.1"), ece="")
        assert said(line.replace("NET/IB", f"NET/{net}")) == said(line) is not None
    failed = WARN + "NET/IB: ncclIbTest: Got CQE with error (req=0x1, qp_num=1200)"
    assert said(failed.replace("NET/IB", f"NET/{net}"))[2] == ErrorLine(1200, None, None, None)


def test_a_warning_may_name_its_function():
    line = WARN.replace("NCCL WARN", "(ncclIbTest) NCCL WARN") + (
        "NET/IB: Got CQE with error (devIndex=0, wr_id=3, qp_num=42)"
    )
    assert said(line) == (SPEAKER, None, ErrorLine(42, None, None, None))


BEFORE = [
    "node7: ",
    "0: ",
    "12:",
    "[1,0]<stdout>:",
    "[prterun-node7-5@1,7][node7:31]<stdout>: ",
    "Tue Mar  5 10:18:50 2019[1,2]<stdout>:",
    "[pod/trainer-0/pytorch] ",
    "trainer-0 pytorch ",
    "worker-1   | ",
    "2026-11-21T09:05:07.123456789Z ",
    "2026-11-21T09:05:07.123456789Z stdout F ",
    "[pod/trainer-0/pytorch] 2026-11-21T09:05:07.123Z ",
    "Nov 21 09:05:07 node7 trainer[31]: ",
    "[09:05:07] ",
    "[2] ",
    '{"log":"',
]
"""What launchers and collectors write before a line."""
RED = "\x1b[01;31m\x1b[K{}\x1b[m\x1b[K"
COLOURS = [
    RED,
    "\x1b[33m{}\x1b[0m",
    "^[[33m{}^[[0m",
    "#033[33m{}#033[0m",
    "[33m{}[0m",
    "\x1b(B{}\r",
]


def plain(text):
    return decoded(readable(text.encode()))


@pytest.mark.parametrize("before", BEFORE)
@pytest.mark.parametrize("colour", ["{}", *COLOURS])
def test_what_is_before_and_around_a_line_is_not_part_of_it(before, colour):
    channel = HEAD + "Channel 0/0 : 1[0] -> 2[0] [send] via NET/IB/0"
    assert said(plain(colour.format(before + channel))) == said(channel)
    assert said(plain(before + colour.format(channel))) == said(channel)
    lines = UCX_HEAD + ROUTE.format(flow=""), UCX_HEAD + CONNECTED.format(devx="")
    expected = heard(*lines)
    assert [found.what for found in heard(*(plain(colour.format(before + x)) for x in lines))] == [
        found.what for found in expected
    ]
    found = heard(*(plain(before + colour.format(x)) for x in lines))
    assert [(one.speaker, one.time_ns, one.what) for one in found] == [
        (one.speaker, one.time_ns, one.what) for one in expected
    ]


def test_a_line_within_a_line_says_nothing():
    """As of two processes that write to one file at once: whose is it?"""
    whole = HEAD + "ncclCommInitRank comm 0x5a rank 3 nranks 8 cudaDev 1 busId 4b000 - Init START"
    torn = HEAD.replace("984", "985") + whole
    assert said(torn) is None and suspect(torn)


def test_colours_within_a_line():
    """As of grep --color."""
    line = HEAD + "ncclCommInitRank comm 0x5a rank 3 nranks 8 cudaDev 1 busId 4b000 - Init START"
    coloured = line.replace("Init", RED.format("Init")).replace("comm ", RED.format("comm") + " ")
    raw = readable(coloured.encode())
    assert INTERESTING.search(raw) and said(decoded(raw)) == said(line) is not None


def test_a_host_that_looks_like_a_colour():
    line = UCX_HEAD.replace("hpc118", "1m2") + CONNECTED.format(devx="")
    assert UcxLog().said(plain(line)).speaker.host == "1m2"
    assert said(plain("[33m" + HEAD + "Channel 0/0 : 1[0] -> 2[0] [send] via NET/IB/0"))[
        0
    ].host == ("node-1.rack")


def test_a_host_is_a_whole_word():
    assert said("x" * 80 + HEAD + "Channel 0/0 : 1[0] -> 2[0] [send] via NET/IB/0") is None


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
    suspect(damaged)
    if spoken is None:
        return
    speaker, _, what = spoken
    assert f"{speaker.host}:{speaker.pid}:" in damaged
    if isinstance(what, QueuePairLine):
        assert f" qpn {what.qpn} " in damaged
    if isinstance(what, CommunicatorLine):
        assert f"rank {what.rank} " in damaged


# Lines of UCX as published logs and the sources of UCX have them.

UCX_HEAD = "[1747555645.312146] [hpc118:46155:0]        rc_iface.c:923  UCX  DEBUG "
ROUTE = (
    "iface 0x55da7b573290: ah_attr dlid=49152 sl=0 port=1 src_path_bits=0"
    " dgid=::ffff:192.168.1.117 {flow}sgid_index=3 traffic_class=106"
)
CONNECTED = (
    "connected rc {devx}qp 0x1ac on mlx5_1:1/RoCE to lid 49152(+0) sl 0 remote_qp 0xa9 mtu 1024"
    " timer 18x7 rnr 13x7 rd_atom 16"
)
FATAL = "[mgmt:24113:0:24113] ib_mlx5_log.c:143  "
"""As openucx/ucx#6000 has it: without a time and a level."""


def heard(*lines):
    log = UcxLog()
    found = [log.said(line) for line in lines]
    assert all(re.search(UCX_INTERESTING, line.encode()) for line in lines)
    return found


@pytest.mark.parametrize("devx", ["", "devx "])
@pytest.mark.parametrize("flow", ["", "flow_label=0xffffffff "])
@pytest.mark.parametrize("indent", ["", "  "])
def test_a_connection_takes_two_lines(devx, flow, indent):
    first, second = heard(
        UCX_HEAD + indent + ROUTE.format(flow=flow), UCX_HEAD + indent + CONNECTED.format(devx=devx)
    )
    assert first.what is None
    assert second.speaker == Speaker("hpc118", 46155, -1)
    assert second.time_ns == 1_747_555_645_312_146_000
    assert second.what == QueuePairLine(
        0x1AC, 1, None, "mlx5_1", None, True, ("192.168.1.117", 0xA9)
    )
    assert second.label is None


def test_the_pid_may_have_spaces_after_it():
    line = "[1710151844.459966] [m201:4904 :0]     rc_iface.c:755  UCX  DEBUG   " + CONNECTED
    assert heard(line.format(devx=""))[0].speaker == Speaker("m201", 4904, -1)


def test_the_peer_of_another_thread_is_not_taken():
    other = UCX_HEAD.replace("46155:0", "46155:a")
    _, found = heard(other + ROUTE.format(flow=""), UCX_HEAD + CONNECTED.format(devx=""))
    assert found.what.remote is None


def test_a_peer_is_taken_once():
    *_, again = heard(
        UCX_HEAD + ROUTE.format(flow=""),
        UCX_HEAD + CONNECTED.format(devx=""),
        UCX_HEAD + CONNECTED.format(devx=""),
    )
    assert again.what.remote is None


def test_a_ud_queue_pair():
    line = UCX_HEAD + (
        "{}created UD QP 0x922 on mlx5_1:1 TX wr:256 sge:3 inl:124 resp:0 RX wr:4096 sge:1 resp:0"
    )
    for form in ("mlx5_1: iface 0x55da7b573290 ", "iface=0x55da7b573290: "):
        (found,) = heard(line.format(form))
        assert found.what == QueuePairLine(0x922, 1, None, "mlx5_1", None, True)


def whats(*lines):
    return [one.what for one in heard(*lines) if one.what is not None]


def of(found, kind):
    return [one for one in found if isinstance(one, kind)]


def test_queue_pairs_of_dc_are_on_the_device_of_the_interface_that_is_made():
    found = whats(*ucx_dc("nodea", 7, 0x1A3, [0x1A4, 0x1A5], "10.0.0.1"))
    assert of(found, QueuePairLine) == [
        QueuePairLine(0x1A4, 1, None, "mlx5_0", None, True),
        QueuePairLine(0x1A5, 1, None, "mlx5_0", None, True),
        QueuePairLine(0x1A3, 1, None, "mlx5_0", None, False),
    ]
    assert of(found, GidLine) == [
        GidLine("mlx5_0", 3),
        GidLine("mlx5_0", 1, "fe80::ba59:9fff:fe0a:1"),
        GidLine("mlx5_0", 2, "fe80::"),
        GidLine("mlx5_0", 3, "10.0.0.1"),
    ]


def test_dc_without_roce_or_with_tag_matching_names_no_queue_pair():
    log = [line.replace("/RoCE", "/IB") for line in ucx_dc("a", 7, 0x1A3, [0x1A4], "10.0.0.1")]
    assert of(whats(*log), QueuePairLine) == []
    assert of(whats(*ucx_dc("a", 7, 0, [], "10.0.0.1")), QueuePairLine) == []


def test_an_initiator_that_is_made_later_is_on_the_only_device_with_dc():
    one, other = (list(ucx_dc("a", 7, 0x1A3, [0x1A4], "10.0.0.1", device=d)) for d in "xy")
    late = one[3].replace("0x1a4,", "0x1a9,")
    assert of(whats(*one, late), QueuePairLine)[-1].device == "x"
    assert 0x1A9 not in [pair.qpn for pair in of(whats(*one, *other, late), QueuePairLine)]
    elsewhere = late.replace("a:7:0", "a:8:0")
    assert 0x1A9 not in [pair.qpn for pair in of(whats(*one, elsewhere), QueuePairLine)]


def test_the_end_of_a_queue_pair_is_said_by_another_thread():
    line = ucx_end("hpc118", 46155, 0x1AC, 1_747_555_645.313544, "mlx5_1")
    assert heard(line)[0].speaker == Speaker("hpc118", 46155, -1)
    assert whats(line, line.replace("DEBUG", "WARN ")) == [EndLine(0x1AC), EndLine(0x1AC)]


def test_queue_pairs_end_when_a_process_closes_their_device_for_the_last_time():
    opened = next(ucx_dc("a", 7, 1, [], "10.0.0.1"))
    closed = opened.partition("init")[0] + "destroying ib device mlx5_0"
    assert whats(opened, closed) == [EndLine(None, "mlx5_0")]
    assert whats(opened, opened, closed) == []
    assert whats(closed, opened, opened, closed, closed) == [EndLine(None, "mlx5_0")]
    assert whats(opened.replace(":7:", ":8:"), closed) == []


@pytest.mark.parametrize(
    ("ahead", "label"),
    [
        ("[1,2]<stdout>:", 2),
        ("[1,12]<stderr>: ", 12),
        ("Tue Mar  5 10:18:50 2019[1,2]<stdout>:", 2),
        ("[prterun-node1-5@1,7]<stdout>: ", 7),
        ("[prterun-node1-5@1,7][node1:31]<stdout>: ", 7),
        ("2026-11-21T09:05:07.123Z 3: ", 3),
        ("3: ", 3),
        (" 14: ", 14),
        ("took 3: ", None),
        ("[1,2]", None),
    ],
)
def test_labels_of_mpirun_and_srun(ahead, label):
    (found,) = heard(ahead + UCX_HEAD + CONNECTED.format(devx=""))
    assert found.label == label


SYNDROME = "Transport retry count exceeded on mlx5_0:1/RoCE (synd 0x15 vend 0x81 hw_synd 0/0)"


@pytest.mark.parametrize(
    ("lines", "what"),
    [
        (
            [
                FATAL + SYNDROME,
                FATAL + "DCI QP 0x1510 wqe[0]: SEND s-e [rqpn 0x223a4 rmac 0c:42:a1:7d:df:c8 sgix 0"
                " dgid fe80::e42:a1ff:fe7d:dfc8 tc 0] [inl len 18]",
            ],
            ErrorLine(0x1510, 12, None, "fe80::e42:a1ff:fe7d:dfc8", 0x223A4, "mlx5_0"),
        ),
        (
            [
                UCX_HEAD + SYNDROME,
                UCX_HEAD + "RC QP 0xd1e wqe[1]: RDMA_WRITE --- [rva 0x0 rkey 0x0] [rqpn 0xd1d dgid"
                " ::ffff:2.1.3.16]",
            ],
            ErrorLine(0xD1E, 12, None, "2.1.3.16", 0xD1D, "mlx5_0"),
        ),
        (
            [
                UCX_HEAD + SYNDROME.replace("0x15", "0x16"),
                UCX_HEAD + "RC QP 0xd1e wqe[7]: SEND s-- [rqpn 0xc45e dlid=49152 sl=0 port=1"
                " src_path_bits=0 dgid=::ffff:10.0.0.2 sgid_index=3 traffic_class=106]",
            ],
            ErrorLine(0xD1E, 13, None, "10.0.0.2", 0xC45E, "mlx5_0"),
        ),
        (
            [FATAL + SYNDROME, FATAL + "RC QP 0x33945 wqe[386]: SEND s-e [va 0x14 len 474]"],
            ErrorLine(0x33945, 12, None, None, None, "mlx5_0"),
        ),
        (
            [
                UCX_HEAD + "send completion with error: transport retry counter exceeded [qpn 0x92c"
                " wrid 0x2vendor_err 0x81] [rqpn 0x92b dgid ::ffff:2.1.3.16]"
            ],
            ErrorLine(0x92C, 12, None, "2.1.3.16", 0x92B),
        ),
        (
            [
                "[ast1815:6807 :0:6807] ib_mlx5_log.c:115  FATAL: Error on mlx5_3:1 QP 0xe6d7"
                " wqe[7821]: Transport retry count exceeded (synd 0x15 vend 0x81) opcode SEND"
            ],
            ErrorLine(0xE6D7, 12, None, None, None, "mlx5_3"),
        ),
    ],
)
def test_errors_ucx(lines, what):
    *first, last = heard(*lines)
    assert [one.what for one in first] == [None] * len(first)
    assert last.what == what
    assert not any(suspect_ucx(line) and UcxLog().said(line) is None for line in lines[:1])


def test_errors_of_infiniband_and_flushed_work_say_nothing():
    log = UcxLog()
    assert log.said(UCX_HEAD + SYNDROME.replace("RoCE", "IB")) is None
    assert not suspect_ucx(UCX_HEAD + SYNDROME.replace("RoCE", "IB"))
    assert log.said(UCX_HEAD + "QP 0xd1e wqe[1] is flushed") is None


def test_unknown_forms_are_suspect():
    line = UCX_HEAD + CONNECTED.format(devx="").replace("remote_qp", "peer")
    assert UcxLog().said(line) is None and suspect_ucx(line)
    for text in ("dc iface 0x1: dcis 8 dct 0x1a3", "created XYZ DCI 0x1,", "SRQ-attached QP 1 end"):
        assert UcxLog().said(UCX_HEAD + text) is None and suspect_ucx(UCX_HEAD + text)
    assert not suspect_ucx("a line about connected rc qp 0x1 on mlx5_0:1/RoCE")


@given(st.data())
def test_no_part_of_a_line_says_another_number(data):
    """A line that was cut says nothing, or the same; it never becomes another queue pair."""
    whole = [
        *ucx("nodea", 100, [(0x1AC, 0xA9)], "10.0.0.21"),
        ucx_end("nodea", 100, 0x1AC, 1_795_000_001),
    ]
    at = data.draw(st.integers(0, len(whole) - 1))
    cut = data.draw(st.integers(0, len(whole[at])))
    log = UcxLog()
    for number, line in enumerate(whole):
        found = log.said(line[:cut] if number == at else line)
        if found is not None and isinstance(found.what, EndLine):
            assert found.what.qpn == 0x1AC
        if found is not None and isinstance(found.what, QueuePairLine):
            assert found.what.qpn == 0x1AC
            assert found.what.remote in (None, ("10.0.0.21", 0xA9))


def test_a_process_with_ever_more_devices_takes_no_more_memory():
    log = UcxLog()
    for number in range(50):
        for line in ucx_dc("nodea", 7, 0x1A3, [], "10.0.0.1", device=f"mlx5_{number}"):
            log.said(line)
    (devices,) = log._dc.values()
    assert devices == {("mlx5_0", 1), ("mlx5_1", 1)}
