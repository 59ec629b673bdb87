"""Logs of jobs in the documented forms, for queue pairs of real captures."""

from __future__ import annotations

import ipaddress
import json
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

COMM = "0xabc123"
FORMS = {
    "2.18": "NET/IB: Dev 0 Port 1 qpn {qpn} mtu 3 {ece}GID 1 ({gid})",
    "2.20": "NET/IB: NCCL Dev 0 IbDev 0 Port 1 qpn {qpn} mtu 3 {ece}GID 1 ({gid}) fifoRkey=0x1",
    "2.25": "NET/IB: NCCL Dev 0 IbDev 0 Port 1 qpn {qpn} mtu 3 GID 1 ({gid}) fifoLkey=0x9",
    "2.30": "NET/IB: ncclIbConnectImpl: NCCL Dev 0 IbDev 0 Port 1 qp_num {qpn} mtu 3 GID 1 ({gid})",
}
"""The line of a sender's queue pair, by the version of NCCL that began to write it so."""
ECE = "query_ece={supported=0, vendor_id=0x0, options=0x0, comp_mask=0x0} "


def gid(address: str) -> str:
    """The halves of an IPv4 address's GID as NCCL prints them."""
    octets = bytes(10) + b"\xff\xff" + ipaddress.IPv4Address(address).packed
    halves = (int.from_bytes(octets[:8], "little"), int.from_bytes(octets[8:], "little"))
    return f"{halves[0]:X}/{halves[1]:X}"


def nccl(
    host: str,
    pid: int,
    rank: int,
    peer: int,
    address: str,
    qpns: Sequence[int],
    form: str = "2.20",
    stamp: str = "",
    device: str = "rxe0",
) -> Iterator[str]:
    """A process that sends to `peer` over these queue pairs, one for each channel."""
    main = f"{stamp}{host}:{pid}:{pid} [0] NCCL INFO "
    proxy = f"{stamp}{host}:{pid}:{pid + 9} [0] NCCL INFO "
    comm = f"comm 0x55d0{pid:06x} rank {rank} nranks 16 cudaDev 0 nvmlDev 0 busId 1000"
    yield main + f"NET/IB : Using [0]{device}:1/RoCE [RO]; OOB eth0:{address}<0>"
    yield main + f"ncclCommInitRank {comm} commId {COMM} - Init START"
    for channel, _ in enumerate(qpns):
        yield main + f"Channel {channel:02d}/0 : {rank}[0] -> {peer}[0] [send] via NET/IB/0"
    for qpn in qpns:
        yield proxy + FORMS[form].format(qpn=qpn, gid=gid(address), ece=ECE)
    yield main + f"ncclCommInitRank {comm} commId {COMM} - Init COMPLETE"


def ucx(
    host: str,
    pid: int,
    pairs: Iterable[tuple[int, int]],
    peer: str,
    label: str = "",
    device: str = "rxe0",
    time_s: float = 1_795_000_000.25,
    thread: str = "0",
) -> Iterator[str]:
    """A process of UCX whose queue pairs (own, peer's number) are connected to the address `peer`.

    The lines are those of `uct_hello_world` on two hosts with RoCE, with other names and numbers.
    """
    head = ucx_head(host, pid, time_s, label, thread)
    yield head + f"      ib_device.c:1132 UCX  DEBUG {device}:1 using gid_index 3"
    for own, far in pairs:
        yield (
            head + f"       ib_iface.c:1300 UCX  DEBUG {device}: iface 0x55da7b573290 created RC QP"
            f" 0x{own:x} on {device}:1 TX wr:409 sge:5 inl:124 resp:64 RX wr:0 sge:0 resp:64"
        )
        yield (
            head + "       ib_iface.c:1033 UCX  DEBUG iface 0x55da7b573290: ah_attr dlid=49152 sl=0"
            f" port=1 src_path_bits=0 dgid=::ffff:{peer} flow_label=0xffffffff sgid_index=3"
            " traffic_class=106"
        )
        yield (
            head + f"       rc_iface.c:923  UCX  DEBUG connected rc qp 0x{own:x} on {device}:1/RoCE"
            f" to lid 49152(+0) sl 0 remote_qp 0x{far:x} mtu 1024 timer 18x7 rnr 13x7 rd_atom 16"
        )


def ucx_head(host: str, pid: int, time_s: float, label: str = "", thread: str = "0") -> str:
    """What begins each line of a process of UCX."""
    return f"{label}[{time_s:.6f}] [{host}:{pid}:{thread}] "


def ucx_dc(
    host: str,
    pid: int,
    target: int,
    initiators: Iterable[int],
    address: str,
    label: str = "",
    device: str = "mlx5_0",
    time_s: float = 1_795_000_000.25,
) -> Iterator[str]:
    """A process of UCX with DC, by the strings of Debian's UCX 1.13 and the sources of UCX: the
    interface of DC and that of UD, which lists the GIDs of the device."""
    head = ucx_head(host, pid, time_s, label)
    yield (
        head + f"      ib_device.c:593  UCX  DEBUG initialized device '{device}' (InfiniBand"
        " channel adapter) with 1 ports"
    )
    yield head + f"       ib_iface.c:864  UCX  DEBUG using pkey[0] 0xffff on {device}:1/RoCE"
    yield head + f"      ib_device.c:924  UCX  DEBUG {device}:1 using gid_index 3"
    for qpn in initiators:
        yield (
            head + f"        dc_mlx5.c:260  UCX  DEBUG created DevX DCI 0x{qpn:x},"
            " rdma_wr_disabled=0"
        )
    yield (
        head + "        dc_mlx5.c:1380 UCX  DEBUG dc iface 0x5587306175d0: using 'dcs_quota' policy"
        f" with 8 dcis and 2048 cqes, dct 0x{target:x}"
    )
    yield head + "        dc_mlx5.c:1400 UCX  DEBUG created dc iface 0x5587306175d0"
    yield (
        head + "     ucp_worker.c:1328 UCX  DEBUG created interface[2]=0x5587306175d0 using"
        f" dc_mlx5/{device}:1 on worker 0x55c3ad5a2480"
    )
    gid = "iface 0x558730610000: adding gid {} to hash on device {} port 1 index {})"
    for index, one in enumerate(("fe80::ba59:9fff:fe0a:1", "fe80::", f"::ffff:{address}")):
        yield head + "       ud_iface.c:398  UCX  DEBUG " + gid.format(one, device, index + 1)


def ucx_end(host: str, pid: int, qpn: int, time_s: float, device: str = "rxe0") -> str:
    """What the thread for events of a process says when one of its queue pairs of RC has ended."""
    return ucx_head(host, pid, time_s, thread="a") + (
        f"      ib_device.c:514  UCX  DEBUG IB Async event on {device}: SRQ-attached QP 0x{qpn:x}"
        " was flushed"
    )


def encoded(lines: Iterable[str]) -> list[bytes]:
    """Lines as `files.lines` gives them."""
    return [line.encode() for line in lines]


def ground_truth(capture: Path) -> dict:
    """The first flow of the JSON beside a real capture: commands, output, queue pairs."""
    name = capture.name.partition(".at")[0]
    return json.loads((capture.parent / f"{name}.json").read_text())["flows"][0]


LOSSY = "i01_write_loss0.5_AtoB.atB.pcap.gz"
"""A capture of four queue pairs from 10.0.0.1 to 10.0.0.2."""


def write_logs(folder: Path, data: Path, capture: str = LOSSY, **options: str) -> str:
    """Logs of rank 11 on 10.0.0.1 and rank 3 on 10.0.0.2 for a capture; their pattern."""
    pairs = ground_truth(data / capture)["qp_pairs"]
    own = [pair["client"]["qpn"] for pair in pairs]
    logs = {
        "nodea": nccl("nodea", 100, 11, 3, "10.0.0.1", own, **options),
        "nodeb": nccl("nodeb", 200, 3, 11, "10.0.0.2", [], **options),
    }
    for host, lines in logs.items():
        (folder / f"{host}.log").write_text("".join(f"{line}\n" for line in lines))
    return str(folder / "*.log")
