"""Links told apart by Ethernet addresses: taps of their own, named by their ends."""

from __future__ import annotations

import struct
import subprocess
import sys
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path

import encapsulations as en
import msgspec
import numpy as np
import pytest
from captures import DATA
from hypothesis import given
from hypothesis import strategies as st

from rocescope.analyzer.decode.links import MOST_PAIRS, Links, number_pairs
from rocescope.analyzer.errors import UsageError
from rocescope.analyzer.pipeline.captures import analyze
from rocescope.analyzer.pipeline.options import AnalyzeOptions
from rocescope.analyzer.wire.packets import FULL_HOP_LIMITS
from rocescope.analyzer.wire.registry import Registry, read_ethers

RUNS = ("r03_link_down_reroute", "r09_packet_spray_h1")


def frame(src: int, dst: int, hop_limit: int, to: int, sent_by: int, psn: int = 0) -> bytes:
    """A WRITE Middle from host `src` to host `dst` between two Ethernet addresses."""
    bth = struct.pack(">BBHII", 0x07, 0, 0xFFFF, 0x11, psn) + bytes(4)
    datagram = struct.pack(">HHHH", 50_000, 4791, 8 + len(bth), 0) + bth
    ip = struct.pack(">BBHHHBBH", 0x45, 0, 20 + len(datagram), psn, 0x4000, hop_limit, 17, 0)
    ip += bytes([10, 0, 0, src, 10, 0, 0, dst])
    return to.to_bytes(6) + sent_by.to_bytes(6) + b"\x08\x00" + ip + datagram


def capture(path: Path, frames: Iterable[bytes], step_ns: int = 1000) -> str:
    """A pcap with these frames, one per microsecond."""
    content = struct.pack("<IHHiIII", 0xA1B23C4D, 2, 4, 0, 0, 65535, 1)
    for n, data in enumerate(frames):
        content += struct.pack("<IIII", 1, n * step_ns, len(data), len(data)) + data
    path.write_bytes(content)
    return str(path)


def taps(path: str, **options: object) -> dict[str, int]:
    """RoCE packets by name of the tap."""
    analysis = analyze([path], AnalyzeOptions(**options))  # type: ignore[arg-type]
    (summary,) = analysis.captures
    assert sum(tap.roce_packets for tap in summary.taps) == summary.roce_packets
    return {tap.name: tap.roce_packets for tap in summary.taps}


# The kernel against a plain twin.


@given(
    st.lists(
        st.tuples(
            st.integers(0, 3), st.integers(1, 6), st.integers(1, 6), st.integers(0, 3),
            st.sampled_from((64, 63, 62, 128, 255, 1)), st.booleans(), st.booleans(),
        ),
        max_size=60,
    )
)  # fmt: skip
def test_pairs_as_a_plain_twin_numbers_them(
    rows: list[tuple[int, int, int, int, int, bool, bool]],
) -> None:
    data = b"".join(to.to_bytes(6) + by.to_bytes(6) + bytes(4) for _, to, by, *_ in rows)
    begin = np.arange(len(rows), dtype=np.int64) * 16
    shown = np.array([row[5] for row in rows], np.bool_)
    in_tunnel = np.array([row[6] for row in rows], np.bool_)
    links = Links(Registry())
    arrays = links._arrays
    pairs = np.empty(len(rows), np.int32)
    number_pairs(
        np.frombuffer(data or bytes(1), np.uint8), begin + in_tunnel, np.where(shown, begin, -1),
        np.array([row[0] for row in rows], np.uint16),
        np.array([row[3] for row in rows], np.uint32),
        np.array([row[4] for row in rows], np.uint8), arrays, True, pairs,
    )  # fmt: skip
    numbers: dict[tuple[int, int, int], int] = {}
    bits, expected = Counter[int](), []
    senders = set()
    for tap, to, by, source, limit, has_address, tunnelled in rows:
        if not has_address:
            expected.append(-1)
            continue
        pair = numbers.setdefault((tap, min(to, by), max(to, by)), len(numbers))
        expected.append(pair)
        way = int(by != min(to, by))
        bits[pair] |= (1 if limit in FULL_HOP_LIMITS and not tunnelled else 2) << 2 * way
        senders.add((source, pair, way))
    assert pairs.tolist() == expected
    assert arrays.bits[: len(numbers)].tolist() == [bits[n] for n in range(len(numbers))]
    noted = arrays.senders[: arrays.used[1]].tolist()
    assert len(noted) == len(set(noted))
    assert {(e >> 13, e >> 1 & MOST_PAIRS - 1, e & 1) for e in noted} == senders


# What makes a link.


def test_each_hop_of_a_path_in_one_file_is_a_link(tmp_path: Path) -> None:
    host, leaf, up, spine, down, far = 0x020000000001, 0x0A, 0x0B, 0x0C, 0x0D, 0x0E
    path = [(host, leaf, 64), (up, spine, 63), (down, far, 62)]
    frames = [frame(1, 2, limit, to, by, psn) for psn in range(20) for by, to, limit in path]
    names = taps(capture(tmp_path / "all.pcap", frames))
    # 0B and the address to which the host sends belong to one router: the hop limit shows it.
    assert list(names) == [
        "10.0.0.1 | 00:00:00:00:00:0a", "00:00:00:00:00:0a | 00:00:00:00:00:0c",
        "00:00:00:00:00:0c | 00:00:00:00:00:0e",
    ]  # fmt: skip


def test_one_link_keeps_the_name_of_its_file(tmp_path: Path) -> None:
    there = [frame(1, 2, 63, 0xA, 0xB, psn) for psn in range(9)]
    back = [frame(2, 1, 62, 0xB, 0xA, psn) for psn in range(9)]
    assert list(taps(capture(tmp_path / "up.pcap", [*there, *back]))) == ["up.pcap"]


def test_the_port_of_a_host_is_one_link_whatever_its_gateways_send_with(tmp_path: Path) -> None:
    """A shared gateway address (VRRP) receives; each router answers with an address of its own."""
    host, shared = 0x020000000001, 0x00005E000101
    out = [frame(1, 2, 64, shared, host, psn) for psn in range(9)]
    back = [frame(2, 1, 61, host, 0xA + psn % 2, psn) for psn in range(9)]
    frames = [each for pair in zip(out, back, strict=True) for each in pair]
    assert list(taps(capture(tmp_path / "nic.pcap", frames))) == ["nic.pcap"]


def test_hosts_on_a_switch_are_one_link(tmp_path: Path) -> None:
    """Nothing is rewritten between them: what each cable shows looks alike."""
    hosts = range(1, 6)
    frames = [
        frame(a, b, 64, 0x20 + b, 0x20 + a, psn)
        for psn in range(4) for a in hosts for b in hosts if a != b
    ]  # fmt: skip
    assert list(taps(capture(tmp_path / "switch.pcap", frames))) == ["switch.pcap"]


def test_hosts_behind_one_address_have_a_link_each(tmp_path: Path) -> None:
    """Many switches have one address for all ports."""
    leaf = 0xAA
    frames = []
    for psn in range(9):
        frames += [frame(1, 3, 64, leaf, 0x21, psn), frame(2, 3, 64, leaf, 0x22, psn)]
        frames += [frame(3, 1, 61, 0x21, leaf, psn), frame(3, 2, 61, 0x22, leaf, psn)]
    names = taps(capture(tmp_path / "leaf.pcap", frames))
    assert list(names) == ["10.0.0.1 | 00:00:00:00:00:aa", "10.0.0.2 | 00:00:00:00:00:aa"]


def test_a_shared_gateway_address_joins_no_routers(tmp_path: Path) -> None:
    shared, frames = 0x00005E000101, []
    for psn in range(30):
        for host, leaf in ((1, 0xA), (2, 0xB)):
            frames += [
                frame(host, 9, 64, shared, 0x20 + host, psn),
                frame(host, 9, 63, 0xF0 + host, leaf, psn),
            ]
    names = taps(capture(tmp_path / "gateways.pcap", frames))
    assert list(names) == [
        "10.0.0.1 | 00:00:5e:00:01:01", "00:00:00:00:00:0a | 00:00:00:00:00:f1",
        "10.0.0.2 | 00:00:5e:00:01:01", "00:00:00:00:00:0b | 00:00:00:00:00:f2",
    ]  # fmt: skip


def test_mirrors_show_the_mirrored_addresses_and_tunnels_their_own(tmp_path: Path) -> None:
    links = [(0xA, 0xB, 63), (0xC, 0xD, 62)]
    mirrored = [
        en.ethernet(0x0800, en.ipv4(47, en.erspan2(frame(1, 2, limit, to, by, psn))))
        for psn in range(9) for to, by, limit in links
    ]  # fmt: skip
    assert len(taps(capture(tmp_path / "mirror.pcap", mirrored))) == 3  # the file and two links
    outer = [
        to.to_bytes(6) + by.to_bytes(6)
        + en.ethernet(0x0800, en.ipv4(17, en.vxlan(frame(1, 2, 64, 0x22, 0x21, psn))))[12:]
        for psn in range(9) for to, by, _ in links
    ]  # fmt: skip
    assert len(taps(capture(tmp_path / "tunnel.pcap", outer))) == 3


def test_forged_addresses_do_not_fill_memory(tmp_path: Path) -> None:
    rng = np.random.default_rng(1)
    frames = [
        frame(1, 2, 63, int(to), int(by), n)
        for n, (to, by) in enumerate(rng.integers(1, 1 << 47, (MOST_PAIRS + 900, 2)))
    ]
    assert len(taps(capture(tmp_path / "forged.pcap", frames))) <= 256


# One mirror file of all links says what one file per link says.


@pytest.fixture(scope="module", params=RUNS)
def run(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """The captures of a run, and one file that holds all of them."""
    folder = tmp_path_factory.mktemp(request.param)
    links = []
    for path in sorted((DATA / "whole_leafspine" / request.param).glob("*.pcap.xz")):
        links.append(folder / path.stem)
        links[-1].write_bytes(subprocess.run(["xz", "-dc", path], capture_output=True).stdout)
    whole = folder / "all.pcap"
    subprocess.run(["mergecap", "-F", "nsecpcap", "-w", whole, *links], check=True)
    return [*links, whole]


def ethers(links: Sequence[Path]) -> dict[int, str]:
    """Names of the addresses of routers and hosts, as the links with them are called."""
    topology = msgspec.json.decode((DATA / "leafspine/r01_clean_write/topology.json").read_bytes())
    names = {}
    for name, node in topology["nodes"].items():
        if "mac" in node:
            names[int(node["mac"].replace(":", ""), 16)] = name
    for link in topology["links"]:
        for end in "ab":
            if address := link.get(f"{end}_detail", {}).get("mac"):
                names[int(address.replace(":", ""), 16)] = f"{link[end]}:{link[f'{end}_if']}"
    return names


def said(paths: Sequence[Path], **options: object) -> list[tuple[object, ...]]:
    """Kind, device, packets, flows and times of each finding."""
    analysis = analyze([str(path) for path in paths], AnalyzeOptions(**options))  # type: ignore[arg-type]
    return [
        (f.kind, f.place.device, f.packets, f.of_packets, f.flows, f.from_ns, f.until_ns)
        for f in analysis.diagnosis.findings
    ]


def test_one_file_of_all_links_gives_the_findings_of_the_links(run: list[Path]) -> None:
    *links, whole = run
    expected = said(links)
    assert expected
    assert said([whole], ethers=ethers(links)) == expected
    unnamed = said([whole])
    assert [(f[0], *f[2:]) for f in unnamed] == [(f[0], *f[2:]) for f in expected]
    names = {address: name.partition(":")[0] for address, name in ethers(links).items()}
    for (_, device, *_), (_, name, *_) in zip(unnamed, expected, strict=True):
        if name is not None:
            assert names[int(str(device).replace(":", ""), 16)] == name


# Names.


def test_names_in_the_form_of_ethers(tmp_path: Path) -> None:
    path = tmp_path / "ethers"
    path.write_text(
        "# fabric\n02:66:2d:25:06:99 leaf1:swp3\n2-66-2d-25-06-9a\tleaf2  # no port\n\n"
        "0266.2d25.069b x\n".replace("0266.2d25.069b x\n", "")
    )
    assert read_ethers(str(path)) == {0x02662D250699: "leaf1:swp3", 0x02662D25069A: "leaf2"}


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("02:66:2d:25:06:99 leaf1\n02:66:2d:25:06 leaf2\n", "line 2 is '02:66:2d:25:06 leaf2'"),
        ("02:66:2d:25:06:99\n", "line 1"),
        ("02:66:2d:25:06:99 a b\n", "line 1"),
        ("02:66:2d:25:06:99 leaf1\n02:66:2d:25:06:99 leaf2\n", "line 2 names 02:66:2d:25:06:99"),
    ],
)
def test_a_bad_line_has_its_number(tmp_path: Path, text: str, says: str) -> None:
    path = tmp_path / "ethers"
    path.write_text(text)
    with pytest.raises(UsageError, match=says):
        read_ethers(str(path))


def test_a_missing_file_of_names(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no such file"):
        read_ethers(str(tmp_path / "none"))


def test_names_cannot_bring_control_characters_to_a_terminal(tmp_path: Path) -> None:
    frames = [frame(1, 2, 63 - n % 3, 0xA + n % 3, 0xE, n // 3) for n in range(90)]
    path = capture(tmp_path / "all.pcap", frames)
    names = tmp_path / "ethers"
    names.write_bytes(b"00:00:00:00:00:0a leaf\x1b[31m\n")
    command = [sys.executable, "-m", "rocescope", "analyze", path, "--ethers", str(names)]
    out = subprocess.run(command, capture_output=True, check=True)
    assert b"eaf?[31m" in out.stdout  # the begin of the name is shortened
    assert b"\x1b[31m" not in out.stdout


def lldp(port: int, system: str, name: str, chassis: int) -> bytes:
    """An advertisement from a port, byte by byte from IEEE 802.1AB."""

    def tlv(kind: int, value: bytes) -> bytes:
        return struct.pack(">H", kind << 9 | len(value)) + value

    content = tlv(1, b"\x04" + chassis.to_bytes(6)) + tlv(2, b"\x05" + name.encode())
    content += tlv(3, b"\x00\x78") + tlv(5, system.encode()) + tlv(0, b"")
    return bytes.fromhex("0180c200000e") + port.to_bytes(6) + b"\x88\xcc" + content


def cdp(port: int, system: str, name: str) -> bytes:
    def tlv(kind: int, value: bytes) -> bytes:
        return struct.pack(">HH", kind, 4 + len(value)) + value

    content = bytes.fromhex("aaaa0300000c2000") + b"\x02\xb4\0\0"
    content += tlv(1, system.encode()) + tlv(3, name.encode())
    return (
        bytes.fromhex("01000ccccccc") + port.to_bytes(6)
        + struct.pack(">H", len(content)) + content
    )  # fmt: skip


def test_devices_that_advertise_themselves_have_their_names(tmp_path: Path) -> None:
    frames = [lldp(0x0B, "leaf1", "swp3", 0xAA), cdp(0x0C, "spine-2.dc", "Ethernet1/1")]
    frames += [frame(1, 2, 63 - n % 2, 0x0C + n % 2, 0x0B + 5 * (n % 2), n // 2) for n in range(40)]
    frames.insert(20, lldp(0x0D, "leaf2\x1b[31m", "swp1", 0xAB))
    frames.insert(21, lldp(0x0D, "", "swp1", 0xAB)[:-9])  # cut
    path = capture(tmp_path / "all.pcap", frames)
    assert list(taps(path)) == ["leaf1 | spine-2.dc", "leaf2[31m | spine-2.dc"]
    named = taps(path, ethers={0x0C: "spine2", 0x0D: "leaf2:swp9"})
    assert list(named) == ["leaf1-spine2", "leaf2-spine2"]


def of_one_address_per_switch(path: Path, names: dict[int, str], to: Path) -> None:
    """A pcap in which all ports of a switch have one address."""
    content, at = bytearray(path.read_bytes()), 24
    numbers = {name: n for n, name in enumerate(sorted({*names.values()}), 1)}
    while at < len(content):
        begin = at + 16
        for place in (begin, begin + 6):
            address = int.from_bytes(content[place : place + 6])
            if address in names:
                content[place : place + 6] = (0x02 << 40 | numbers[names[address]]).to_bytes(6)
        at = begin + int.from_bytes(content[at + 8 : at + 12], "little")
    to.write_bytes(content)


def test_one_address_per_switch_gives_the_same_down_to_the_device(run: list[Path]) -> None:
    *links, whole = run
    names = {address: name.partition(":")[0] for address, name in ethers(links).items()}
    rewritten = whole.with_name("one_address.pcap")
    of_one_address_per_switch(whole, names, rewritten)
    numbers = {name: n for n, name in enumerate(sorted({*names.values()}), 1)}
    named = {0x02 << 40 | n: name for name, n in numbers.items()}
    assert said([rewritten], ethers=named) == said(links)


def test_a_file_of_a_running_job_names_the_spine_that_drops() -> None:
    """The real run from its second tenth on, cut before its end: only spine2 drops."""
    analysis = analyze(
        [str(DATA / "mirror/running_job.pcap.xz")],
        AnalyzeOptions(ethers=read_ethers(str(DATA / "mirror/ethers"))),
    )
    worst = analysis.diagnosis.findings[0]
    assert (worst.kind, worst.place.device, worst.place.direction) == (
        "rate-limit", "spine2", "leaf1 to leaf2",
    )  # fmt: skip
    assert worst.packets == 609  # as in run.facts.json
    assert [f.severity for f in analysis.diagnosis.findings] == ["critical", "note"]
