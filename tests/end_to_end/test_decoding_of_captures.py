"""Real captures against the ground truth an independent parser wrote beside them."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from batches import decoder, read_pcap

from rocescope.analyzer.decode.extensions import decode_extensions
from rocescope.analyzer.wire.bth import opcode_name
from rocescope.analyzer.wire.packets import HAS_AETH, LENGTH_MISMATCH, SNAPPED

CAPTURES = {
    "c05_rc_atomic_fetchadd": ".pcap",
    "c07_ud_send": ".pcap.gz",
    "c08_uc_write_q2_64k": ".pcap.gz",
    "c10_rping_ipv4": ".pcap",
    "c13_rc_write_rdmacm_ipv4": ".pcap.gz",
    "c15_rc_write_ipv6_gid": ".pcap.gz",
    "c23_rc_write_vlan100": ".pcap.gz",
    "c40_rc_oddities_ipv4": ".pcap",
    "i13_write_ecn_ce2_AtoB": ".pcap.gz",
}


def facts_of(data: Path, name: str) -> dict[str, Any]:
    facts: dict[str, Any] = json.loads((data / f"{name}.facts.json").read_text())["captures"]["atB"]
    return facts


def their_name(opcode: int) -> str:
    """Our opcode name in the spelling of the facts files."""
    name = opcode_name(opcode).replace("READ_REQUEST", "READ_REQ")
    return name.replace("READ_RESPONSE", "READ_RESP").replace("COMPARE_SWAP", "CMP_SWAP")


@pytest.mark.parametrize("name", CAPTURES)
def test_counts(data: Path, name: str) -> None:
    facts = facts_of(data, name)
    frames = read_pcap(data / f"{name}.atB{CAPTURES[name]}")
    whole = CAPTURES[name] == ".pcap"
    dec = decoder(check_icrc=True)
    table = dec.decode(frames)
    assert dec.counters.frames() == facts["packets"]
    assert len(table) == dec.counters.roce_packets() == facts["roce"]
    assert dec.counters.undecodable() == {}
    assert Counter(map(their_name, table.opcode.tolist())) == facts["opcodes"]
    others = np.setdiff1d(np.arange(len(frames)), table.frame_number - 1)
    assert table.wire_bytes.sum() + frames.wire[others].sum() == facts["wire_bytes"]
    assert np.count_nonzero(table.vlan & 0xFFF == 100) == facts["vlan_tagged"]
    ecn = Counter(
        {0: "not-ECT", 1: "ECT1", 2: "ECT0", 3: "CE"}[v & 3] for v in table.traffic_class.tolist()
    )
    assert ecn == facts["ecn"]
    icrc = dec.counters.icrc()
    assert icrc["bad"] == icrc["unchecked"] == 0
    if whole:
        assert icrc["ok"] == facts["icrc"]["ok"] == len(table)
    assert icrc["ok"] + icrc["truncated"] == len(table)
    assert (icrc["truncated"] > 0) != whole
    assert not (table.decode_flags & (LENGTH_MISMATCH | SNAPPED)).any()


@pytest.mark.parametrize("name", CAPTURES)
def test_streams(data: Path, name: str) -> None:
    facts = facts_of(data, name)
    dec = decoder()
    table = dec.decode(read_pcap(data / f"{name}.atB{CAPTURES[name]}"))
    texts = dec.registry.endpoints.texts()
    streams: Counter[tuple[str, str, int]] = Counter()
    ports: dict[tuple[str, str, int], set[int]] = {}
    for src, dst, dest_qp, sport in zip(
        table.src.tolist(),
        table.dst.tolist(),
        table.dest_qp.tolist(),
        table.udp_sport.tolist(),
        strict=True,
    ):
        key = (texts[src], texts[dst], dest_qp)
        streams[key] += 1
        ports.setdefault(key, set()).add(sport)
    assert {
        (s["src"], s["dst"], s["dest_qp"]): (s["packets"], set(s["udp_sports"]))
        for s in facts["streams"]
    } == {key: (n, ports[key]) for key, n in streams.items()}


def test_naks(data: Path) -> None:
    facts = facts_of(data, "c40_rc_oddities_ipv4")
    table = decoder().decode(read_pcap(data / "c40_rc_oddities_ipv4.atB.pcap"))
    syndromes = table.aeth[table.decode_flags & HAS_AETH != 0] >> np.uint32(24)
    naks = Counter(
        {0x60: "NAK_PSN_SEQ", 0x62: "NAK_REMOTE_ACCESS", 0x63: "NAK_REMOTE_OP"}.get(s, "RNR_NAK")
        for s in syndromes.tolist()
        if s & 0x60
    )
    assert naks == facts["naks"]


def test_payload_of_real_messages(data: Path) -> None:
    """Atomics and rping have known sizes: nothing, and the 64 bytes rping is told to send."""
    table = decoder().decode(read_pcap(data / "c05_rc_atomic_fetchadd.atB.pcap"))
    assert set(table.payload_bytes.tolist()) == {0}
    frames = read_pcap(data / "c10_rping_ipv4.atB.pcap")
    table = decoder().decode(frames)
    write_only = table.take(table.opcode == 0x0A)
    assert (write_only.payload_bytes == write_only.dma_length).all()
    extensions = decode_extensions(table, frames.data, 0)
    assert (extensions.reth_dma_length == table.dma_length).all()
