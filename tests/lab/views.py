"""The captures of a run as people have them: one mirror file, one leaf, one link, late and cut.

A run is a folder with one capture per link, named by the link (`leaf1-spine2.pcap.gz`), as the lab,
the simulator and the bundled fabric captures have them. `Frames` holds all of them; a view is a
selection of its frames, in one file or in several. Nothing here uses the product's readers.
"""

from __future__ import annotations

import gzip
import lzma
import random
import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from .packets import stages
from .topology import HOSTS, LEAVES, LINKS, SPINES

Array = np.ndarray[Any, Any]

KEPT_BYTES = 160
"""Of each frame at most: all headers."""
ETHERNET, IPV6 = 14, 0x86DD
ACKNOWLEDGE = 0x11
_READERS = {".gz": gzip.open, ".xz": lzma.open}
SWITCHES = [f"leaf{leaf}" for leaf in LEAVES] + [f"spine{spine}" for spine in SPINES]
PORTS = {
    node: [link for link in LINKS if node in link.split("-")]
    for node in [*SWITCHES, *(f"H{host}" for host in HOSTS)]
}
"""Links of every node; the first is its interface swp1."""


@dataclass
class Frames:
    """The frames of all links in time order; columns have one row per frame."""

    time_ns: Array
    link: Array
    """int8: index in LINKS."""
    kept: Array
    """int32: bytes captured."""
    wire: Array
    """int32: bytes on the wire."""
    data: Array
    """uint8[frames, KEPT_BYTES], zeros after the captured bytes."""

    def __len__(self) -> int:
        return len(self.time_ns)

    def take(self, rows: Array) -> Frames:
        """Some rows: a mask, or indices in time order."""
        columns = (self.time_ns, self.link, self.kept, self.wire, self.data)
        return Frames(*(column[rows] for column in columns))

    @cached_property
    def is_ipv6(self) -> Array:
        return self.number(12, 2) == IPV6

    @cached_property
    def is_roce(self) -> Array:
        ipv4 = (
            (self.number(12, 2) == 0x0800) & (self.data[:, 23] == 17) & (self.data[:, 14] == 0x45)
        )
        ipv6 = self.is_ipv6 & (self.data[:, 20] == 17)
        return (ipv4 | ipv6) & (self.of_udp(2, 2) == 4791)

    def number(self, at: int, size: int) -> Array:
        """A big-endian field at a fixed place of the frame."""
        value = np.zeros(len(self), np.int64)
        for i in range(size):
            value = value << 8 | self.data[:, at + i]
        return value

    def of_udp(self, at: int, size: int) -> Array:
        """A field at a place after the start of the UDP header."""
        return np.where(self.is_ipv6, self.number(54 + at, size), self.number(34 + at, size))

    @cached_property
    def headers_bytes(self) -> Array:
        """Bytes up to the end of the BTH."""
        return np.where(self.is_ipv6, 74, 54)

    @cached_property
    def hop_limit(self) -> Array:
        return np.where(self.is_ipv6, self.data[:, 21], self.data[:, 22])

    @cached_property
    def ecn(self) -> Array:
        return np.where(self.is_ipv6, self.data[:, 15] >> 4, self.data[:, 15]) & 3

    @cached_property
    def opcode(self) -> Array:
        return self.of_udp(8, 1)

    @cached_property
    def psn(self) -> Array:
        return self.of_udp(17, 3)

    @cached_property
    def is_nak(self) -> Array:
        """PSN sequence errors and other NAKs, not RNR."""
        return self.is_roce & (self.opcode == ACKNOWLEDGE) & (self.of_udp(20, 1) >> 5 == 3)

    @cached_property
    def ends(self) -> tuple[Array, Array]:
        """int8 (source, destination): numbers of the hosts, 0 if unknown."""
        return self._host(26, 22), self._host(30, 38)

    def _host(self, ipv4_at: int, ipv6_at: int) -> Array:
        """From the addresses of the lab, 10.2.3.10 and fd10:2:3::10, and those of the simulator,
        10.0.2.3 and fd00::2:3."""
        ipv4 = self.data[:, ipv4_at : ipv4_at + 4]
        ipv6 = self.data[:, ipv6_at : ipv6_at + 16]
        of_ipv4 = np.where(ipv4[:, 1] == 0, ipv4[:, 3], ipv4[:, 2])
        of_ipv6 = np.where(ipv6[:, 1] == 0, ipv6[:, 15], ipv6[:, 5])
        host = np.where(self.is_ipv6, of_ipv6, of_ipv4)
        return np.where(self.is_roce & (host <= len(HOSTS)), host, 0).astype(np.int8)

    @cached_property
    def flow(self) -> Array:
        """int64: a number per (source, destination, destination queue pair)."""
        source, target = self.ends
        return (source.astype(np.int64) << 28) | target.astype(np.int64) << 24 | self.of_udp(13, 3)

    @cached_property
    def goes_down(self) -> Array:
        """Whether a frame travels from the second name of its link to the first one."""
        source, _ = self.ends
        down = np.zeros(len(self), bool)
        for number, link in enumerate(LINKS):
            first = link.split("-")[0]
            rows = self.link == number
            if first[0] == "H":
                down[rows] = source[rows] != int(first[1:])
            else:
                leaf_of = np.array([0, *HOSTS.values()])
                down[rows] = leaf_of[source[rows]] != int(first[4:])
        return down


def read_frames(folder: Path) -> Frames:
    """All captures of a run."""
    columns: list[list[Array]] = [[], [], [], [], []]
    for path in sorted(folder.iterdir()):
        link = path.name.split(".")[0]
        if link in LINKS and ".pcap" in path.name:
            read = _read_pcap(path)
            read.insert(1, np.full(len(read[0]), LINKS.index(link), np.int8))
            for column, values in zip(columns, read, strict=True):
                column.append(values)
    frames = Frames(*(np.concatenate(column) for column in columns))
    return frames.take(np.argsort(frames.time_ns, kind="stable"))


def _read_pcap(path: Path) -> list[Array]:
    """Columns time_ns, kept, wire, data of a little-endian pcap."""
    with _READERS.get(path.suffix, open)(path, "rb") as file:
        content = file.read()
    assert isinstance(content, bytes)
    magic = struct.unpack_from("<I", content)[0]
    assert magic in (0xA1B23C4D, 0xA1B2C3D4), f"{path} is no little-endian pcap"
    places, at = [], 24
    while at + 16 <= len(content):
        places.append(at)
        at += 16 + struct.unpack_from("<I", content, at + 8)[0]
    place = np.array(places, np.int64)
    bytes_of = np.frombuffer(content + bytes(KEPT_BYTES + 16), np.uint8)
    head = bytes_of[place[:, None] + np.arange(16)].reshape(-1).view("<u4").reshape(-1, 4)
    kept = np.minimum(head[:, 2], KEPT_BYTES).astype(np.int32)
    data = bytes_of[place[:, None] + 16 + np.arange(KEPT_BYTES)]
    data = np.where(np.arange(KEPT_BYTES) < kept[:, None], data, 0).astype(np.uint8)
    unit = 1 if magic == 0xA1B23C4D else 1000
    time_ns = head[:, 0].astype(np.int64) * 10**9 + head[:, 1].astype(np.int64) * unit
    return [time_ns, kept, head[:, 3].astype(np.int32), data]


def write_pcap(path: Path, frames: Frames, snap: int = KEPT_BYTES) -> None:
    """A pcap with nanoseconds."""
    kept = np.minimum(frames.kept, snap)
    records = np.empty((len(frames), 16 + KEPT_BYTES), np.uint8)
    parts = (frames.time_ns // 10**9, frames.time_ns % 10**9, kept, frames.wire)
    head = np.stack(parts, axis=1).astype("<u4")
    records[:, :16] = np.ascontiguousarray(head).view(np.uint8).reshape(-1, 16)
    records[:, 16:] = frames.data
    used = np.arange(16 + KEPT_BYTES) < 16 + kept[:, None]
    header = struct.pack("<IHHiIII", 0xA1B23C4D, 2, 4, 0, 0, snap, 1)
    path.write_bytes(header + records[used].tobytes())


# Ethernet addresses.


def devices(frames: Frames) -> dict[str, tuple[str, str]]:
    """Ethernet address -> (device, link) of all ports that RoCE frames pass."""
    found: dict[str, tuple[str, str]] = {}
    for number, link in enumerate(LINKS):
        first, second = link.split("-")
        for down in (False, True):
            rows = frames.is_roce & (frames.link == number) & (frames.goes_down == down)
            sender, receiver = (second, first) if down else (first, second)
            for row in np.unique(frames.data[rows, :12], axis=0):
                found[row[6:].tobytes().hex(":")] = (sender, link)
                found[row[:6].tobytes().hex(":")] = (receiver, link)
    return found


def port_name(device: str, link: str) -> str:
    return f"{device}:swp{PORTS[device].index(link) + 1}"


def write_ethers(path: Path, frames: Frames) -> None:
    """The names of all switch ports, in the form of ethers(5)."""
    lines = []
    for address, (device, link) in sorted(devices(frames).items()):
        lines.append(f"{address} {port_name(device, link) if device in SWITCHES else device}\n")
    path.write_text("".join(lines))


def with_one_address(frames: Frames) -> Frames:
    """Every switch has one Ethernet address for all of its ports."""
    data = frames.data.copy()
    for address, (device, _) in devices(frames).items():
        if device not in SWITCHES:
            continue
        of_switch = bytes([2, 0, 0, 0, 0x51, 1 + SWITCHES.index(device)])
        for at in (0, 6):
            rows = (
                frames.data[:, at : at + 6] == list(bytes.fromhex(address.replace(":", "")))
            ).all(1)
            data[rows, at : at + 6] = list(of_switch)
    return Frames(frames.time_ns, frames.link, frames.kept, frames.wire, data)


# Views.


@dataclass
class View:
    """What is analysed: files, and what they hold."""

    name: str
    """`uplinks:leaf1`: after the colon what was chosen."""
    files: dict[str, Frames]
    """Frames by the name of their file, without suffix."""
    snap: int = KEPT_BYTES
    ethers: bool = False

    @property
    def kind(self) -> str:
        return self.name.split(":")[0]

    @property
    def is_whole(self) -> bool:
        """Whether all frames of all links are there."""
        return self.kind in WHOLE

    @cached_property
    def frames(self) -> Frames:
        """Those of all files, in time order."""
        every = list(self.files.values())
        columns = ("time_ns", "link", "kept", "wire", "data")
        joined = Frames(*(np.concatenate([getattr(f, name) for f in every]) for name in columns))
        return joined.take(np.argsort(joined.time_ns, kind="stable"))

    def write(self, folder: Path) -> list[str]:
        """The files, and the words of the command line that analyse them."""
        folder.mkdir(parents=True, exist_ok=True)
        words = []
        for name, frames in self.files.items():
            path = folder / f"{name}.pcap"
            write_pcap(path, frames, self.snap)
            words.append(str(path))
        if self.ethers:
            write_ethers(folder / "ethers", self.frames)
            words += ["--ethers", str(folder / "ethers")]
        return words


WHOLE = ("links", "one_file", "one_file_named", "one_mac", "snap64", "snap96")


def _by_link(frames: Frames) -> dict[str, Frames]:
    parts = {link: frames.take(frames.link == number) for number, link in enumerate(LINKS)}
    return {link: part for link, part in parts.items() if len(part)}


def _at(frames: Frames, *links: str) -> Frames:
    return frames.take(np.isin(frames.link, [LINKS.index(link) for link in links]))


def _between(frames: Frames, run: Frames, first: float, last: float) -> Frames:
    """Frames from a share of the time of a run, of its RoCE frames, to another."""
    times = run.time_ns[run.is_roce]
    start, end = int(times[0]), int(times[-1])
    since = (frames.time_ns - start) / (end - start)
    return frames.take((since >= first) & (since <= last))


def _links(frames: Frames, _: str) -> Iterator[View]:
    yield View("links", _by_link(frames))


def _one_file(frames: Frames, _: str) -> Iterator[View]:
    yield View("one_file", {"mirror": frames})


def _one_file_named(frames: Frames, _: str) -> Iterator[View]:
    yield View("one_file_named", {"mirror": frames}, ethers=True)


def _one_mac(frames: Frames, _: str) -> Iterator[View]:
    yield View("one_mac", {"mirror": with_one_address(frames)})


def _staggered(frames: Frames, run: str) -> Iterator[View]:
    chance = random.Random(f"{run} staggered")
    files = {}
    for link, part in _by_link(frames).items():
        first, last = chance.uniform(0, 0.4), chance.uniform(0.6, 1)
        files[link] = _between(part, frames, first, last)
    yield View("staggered", {link: part for link, part in files.items() if len(part)})


def _part(name: str, first: float, last: float) -> Callable[[Frames, str], Iterator[View]]:
    def make(frames: Frames, _: str) -> Iterator[View]:
        yield View(name, _by_link(_between(frames, frames, first, last)))

    return make


def _uplinks_of(leaf: int) -> list[str]:
    return [f"leaf{leaf}-spine{spine}" for spine in SPINES]


def _uplinks(frames: Frames, _: str) -> Iterator[View]:
    for leaf in LEAVES:
        yield View(f"uplinks:leaf{leaf}", _by_link(_at(frames, *_uplinks_of(leaf))))


def _uplinks_one_file(frames: Frames, _: str) -> Iterator[View]:
    for leaf in LEAVES:
        yield View(f"uplinks_one_file:leaf{leaf}", {"mirror": _at(frames, *_uplinks_of(leaf))})


def _one_link(frames: Frames, _: str) -> Iterator[View]:
    for link in [link for link in LINKS if link[0] != "H"]:
        part = _at(frames, link)
        leaf, spine = link.split("-")
        yield View(f"one_link:{link}", {link: part})
        for way, down in ((f"{leaf}>{spine}", False), (f"{spine}>{leaf}", True)):
            yield View(f"one_link:{way}", {link: part.take(part.goes_down == down)})


def _all_but_one(frames: Frames, _: str) -> Iterator[View]:
    files = _by_link(frames)
    for link in LINKS:
        rest = {name: part for name, part in files.items() if name != link}
        yield View(f"all_but_one:{link}", rest)


def _one_host(frames: Frames, _: str) -> Iterator[View]:
    for host, leaf in HOSTS.items():
        yield View(f"one_host:H{host}", _by_link(_at(frames, f"H{host}-leaf{leaf}")))


def _snap(name: str, snap: int) -> Callable[[Frames, str], Iterator[View]]:
    def make(frames: Frames, _: str) -> Iterator[View]:
        yield View(name, _by_link(frames), snap)

    return make


def _count(frames: Frames, _: str) -> Iterator[View]:
    """Each file ends after as many frames: half of those of the usual file."""
    files = _by_link(frames)
    most = sorted(map(len, files.values()))[len(files) // 2] // 2
    yield View(f"count:{most}", {link: part.take(np.arange(min(most, len(part))))
                                 for link, part in files.items()})  # fmt: skip


VIEWS: dict[str, Callable[[Frames, str], Iterator[View]]] = {
    "links": _links,
    "one_file": _one_file,
    "one_file_named": _one_file_named,
    "one_mac": _one_mac,
    "staggered": _staggered,
    "middle": _part("middle", 0.25, 0.75),
    "uplinks": _uplinks,
    "uplinks_one_file": _uplinks_one_file,
    "one_link": _one_link,
    "all_but_one": _all_but_one,
    "one_host": _one_host,
    "first_half": _part("first_half", 0, 0.5),
    "second_half": _part("second_half", 0.5, 1),
    "snap64": _snap("snap64", 64),
    "snap96": _snap("snap96", 96),
    "count": _count,
}
ONLY_IF_ASKED = ("one_file_named",)
SAMPLED = {"one_link": 3, "all_but_one": 2, "one_host": 2}
"""Of views with many choices so many are drawn, unless all are asked for."""


def views_of(frames: Frames, run: str, wanted: list[str] | None = None) -> Iterator[View]:
    """Views of a run by their names: of a kind (`one_link`: some of them, drawn), or of one view
    (`one_link:leaf1-spine2`, `one_link:all`)."""
    for name in wanted or [name for name in VIEWS if name not in ONLY_IF_ASKED]:
        kind, _, choice = name.partition(":")
        views = [view for view in VIEWS[kind](frames, run) if all(map(len, view.files.values()))]
        views = [view for view in views if view.files]
        if choice not in ("", "all"):
            views = [view for view in views if view.name == name]
        elif not choice and kind in SAMPLED:
            chance = random.Random(f"{run} {kind}")
            views = chance.sample(views, min(SAMPLED[kind], len(views)))
        yield from views


def way(src: str, dst: str) -> list[list[str]]:
    """The links on the way between two hosts such as H1 and H3, parallel ones together."""
    addresses = [f"10.{HOSTS[int(host[1:])]}.{host[1:]}.10" for host in (src, dst)]
    return stages(*addresses)
