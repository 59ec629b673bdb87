"""Decoding and analysing what mirrors send, beside the same packets without them, in one run.

    python benchmarks/encapsulated.py [PACKETS [KIND...]]

Prints CPU seconds and the ratio to plain packets. The smallest of interleaved runs counts.
"""

from __future__ import annotations

import struct
import sys
import tempfile
import time
from collections.abc import Callable
from ipaddress import ip_address
from pathlib import Path

import encapsulations as enc
import numpy as np
from numpy.typing import NDArray

from rocescope.analyzer.capture.source import open_capture
from rocescope.analyzer.decode.decoder import Decoder
from rocescope.analyzer.decode.mirrors import MirrorOptions, Mirrors
from rocescope.analyzer.pipeline.captures import analyze
from rocescope.analyzer.pipeline.options import AnalyzeOptions
from rocescope.analyzer.wire.registry import Registry
from rocescope.analyzer.wire.taps import Taps

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "support"))

ROUNDS = 7
PAYLOAD = 1024
HELD = 40
"""Payload bytes kept of each packet."""
NOT_HELD = PAYLOAD + 4 - HELD
FLOWS = 64
BTH_AT = 14 + 20 + 8


def plain(i: int) -> bytes:
    """A whole WRITE_MIDDLE of flow i % FLOWS."""
    bth = struct.pack(">BBHII", 7, 0, 0xFFFF, 0x12 + i % FLOWS, 0) + bytes(PAYLOAD + 4)
    hosts = f"10.0.0.{1 + i % FLOWS // 8}", f"10.0.1.{1 + i % 8}"
    return enc.ethernet(0x0800, enc.ipv4(17, enc.udp(4791, bth, 0xC000 + i % FLOWS), *hosts))


def srv6(frame: bytes, header: bytes = b"") -> bytes:
    """Behind a carrier of uSIDs, and a segment routing header when there is one."""
    packet = header + frame[14:]
    head = struct.pack(">IHBB", 6 << 28, len(packet), 43 if header else 4, 64)
    source, carrier = "2001:db8::1", "fcbb:bb00:1:2:3::"
    hosts = ip_address(source).packed + ip_address(carrier).packed
    return enc.ethernet(0x86DD, head + hosts + packet)


def srv6_srh(frame: bytes) -> bytes:
    segments = ip_address("fcbb:bb00:4::").packed + ip_address("fcbb:bb00:1:2:3::").packed
    return srv6(frame, struct.pack(">BBBBBBH", 4, 4, 4, 1, 1, 0, 0) + segments)


def lumina(frame: bytes) -> bytes:
    return bytes(6) + bytes(2) + struct.pack(">I", 1) + frame[12:22] + b"\0" + frame[23:]


def sflow(frame: bytes) -> bytes:
    """One sample in a datagram, which holds 128 bytes of the frame."""
    record = enc.raw_header(frame, 128)
    return enc.ethernet(0x0800, enc.ipv4(17, enc.udp(6343, enc.sflow(enc.flow_sample(record)))))


def in_ip(protocol: int, wrap: Callable[[bytes], bytes]) -> Callable[[bytes], bytes]:
    return lambda frame: enc.ethernet(0x0800, enc.ipv4(protocol, wrap(frame)))


KINDS: dict[str, Callable[[bytes], bytes]] = {
    "plain": bytes,
    "GRE": in_ip(47, lambda frame: enc.gre(0x6558, frame, key=9)),
    "ERSPAN I": enc.WRAPPERS["erspan1"],
    "ERSPAN II": enc.WRAPPERS["erspan2"],
    "ERSPAN III": in_ip(47, lambda frame: enc.erspan3(frame, platform=(5, 1700000000))),
    "SONiC": enc.WRAPPERS["sonic_12"],
    "NVIDIA": enc.WRAPPERS["nvidia_22"],
    "VXLAN": enc.WRAPPERS["vxlan"],
    "Geneve": enc.WRAPPERS["geneve"],
    "IP in IP": enc.WRAPPERS["ip_in_ip"],
    "MPLS": enc.WRAPPERS["mpls"],
    "SRv6": srv6,
    "SRv6, SRH": srv6_srh,
    "Arista": enc.WRAPPERS["arista"],
    "ERSPAN of VXLAN": enc.WRAPPERS["erspan2_of_vxlan"],
    "Lumina": lumina,
    "sFlow": sflow,
}


def write(path: Path, packets: int, wrap: Callable[[bytes], bytes]) -> None:
    """A pcap file of N packets, truncated after HELD bytes of payload."""
    whole = [wrap(plain(i)) for i in range(FLOWS)]
    size = len(whole[0])
    held = size if wrap is sflow else size - NOT_HELD
    psn_at = 16 + whole[0].index(plain(0)[BTH_AT : BTH_AT + HELD]) + 9
    head = struct.pack("<IIII", 0, 0, held, size)
    records = np.frombuffer(b"".join(head + data[:held] for data in whole), np.uint8)
    table = np.resize(records.reshape(FLOWS, -1), (packets, 16 + held))
    number = np.arange(packets)

    def put(at: int, values: NDArray[np.int64], dtype: str = ">u4") -> None:
        table[:, at : at + 4] = values.astype(dtype).view(np.uint8).reshape(-1, 4)

    seconds, ns = np.divmod(1_700_000_000_000_000_000 + 100 * number, 10**9)
    put(0, seconds, "<u4")
    put(4, ns, "<u4")
    put(psn_at - 1, number // FLOWS & 0xFFFFFF)
    if wrap is lumina:
        put(16 + 2, 100 * number)
        put(16 + 8, number + 1)
    with path.open("wb") as file:
        file.write(struct.pack("<IHHiIII", 0xA1B23C4D, 2, 4, 0, 0, 262144, 1))
        file.write(table.tobytes())


def decode_seconds(path: str, mirror: MirrorOptions | None) -> float:
    taps, spent = Taps(), 0.0
    with open_capture(path, taps, batch_frames=1 << 16) as capture:
        decoder = Decoder(Registry(taps=taps), mirrors=Mirrors(mirror, taps) if mirror else None)
        for frames in capture.batches():
            began = time.process_time()
            decoder.decode(frames)
            spent += time.process_time() - began
    return spent


def analyze_seconds(path: str, mirror: MirrorOptions | None) -> float:
    began = time.process_time()
    analyze([path], AnalyzeOptions(mirror=mirror))
    return time.process_time() - began


def main(packets: int, kinds: list[str]) -> None:
    print("ns per packet, and times as much as plain: decoding alone, the whole analysis")
    with tempfile.TemporaryDirectory() as folder:
        reference, path = Path(folder) / "plain", Path(folder) / "mirrored"
        write(reference, packets, bytes)
        for kind in kinds or KINDS:
            write(path, packets, KINDS[kind])
            mirror = MirrorOptions(format="lumina") if kind == "Lumina" else None
            columns = []
            for measure in (decode_seconds, analyze_seconds):
                plain_best = best = float("inf")
                for _ in range(ROUNDS):
                    plain_best = min(plain_best, measure(str(reference), None))
                    best = min(best, measure(str(path), mirror))
                columns.append(f"{best / packets * 1e9:6.1f} {best / plain_best:5.2f} x")
            print(f"{kind:16} {'   '.join(columns)}", flush=True)


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 500_000, sys.argv[2:])
