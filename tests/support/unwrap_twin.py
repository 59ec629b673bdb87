"""The walk through mirrors and tunnels again: plain Python over byte strings, independent.

Shares with the product only the numbers of outcomes and kinds.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from ipaddress import IPv4Address, IPv6Address

from decode_twin import NotRoce, Twin, number

from rocescope.analyzer.decode import outcomes
from rocescope.analyzer.decode import sessions as kinds

ETHERNET, RAW, IPV4, IPV6 = 1, 101, 228, 229
TAGS = {
    0x8926: (kinds.VN_TAG, 4),
    0x893F: (kinds.E_TAG, 6),
    0x8909: (kinds.CISCO_METADATA, 6),
    0x892F: (kinds.REDUNDANCY_TAG, 4),
    0xF1C1: (kinds.REDUNDANCY_TAG, 4),
}
"""Kind and bytes before the next EtherType."""
LINKS = {0x6558: ETHERNET, 0x0800: IPV4, 0x86DD: IPV6}


@dataclass
class Walked:
    """Where a frame is inside of another one."""

    begin: int
    end: int
    stop: int
    link: int
    frame: int
    vlan: int = 0
    outer_ipv6: int = -1
    session: tuple[int, int, int, str] | None = None
    """kind, direction, number, source address"""
    cut: bool = False
    depth: int = 0
    kinds: set[int] = field(default_factory=set)
    rate: int = 0


class Finished(Exception):
    """Nothing further inside."""


class Special(Exception):
    """A datagram that is no tunnel: `what` is sflow or uet; its UDP header is at `at`."""

    def __init__(self, what: str, at: int) -> None:
        self.what, self.at = what, at


def text(packed: bytes) -> str:
    return str(IPv4Address(packed) if len(packed) == 4 else IPv6Address(packed))


class Unwrapper:
    """One frame on its way through its encapsulations."""

    def __init__(self, data: bytes, ports: tuple[int, ...] = (4791,)) -> None:
        self.data = data
        self.ports = ports
        self.ip_stop: int | None = None

    def walk(self, w: Walked) -> str:
        """What ends the walk: "" or sflow or uet (`self.at`); NotRoce for bad headers."""
        try:
            while True:
                self.step(w)
                w.depth += 1
                if w.depth > 8:
                    raise NotRoce(outcomes.TOO_DEEP)
        except Finished:
            if w.cut and self.ip_stop is not None:
                w.stop = max(w.stop, w.end, self.ip_stop)
            return ""
        except Special as special:
            self.at = special.at
            return special.what

    def need(self, at: int, size: int, end: int) -> None:
        if end - at < size:
            raise NotRoce(outcomes.TRUNCATED_TUNNEL)

    def read(self, at: int, size: int) -> int:
        return number(self.data[at : at + size])

    def enter(self, w: Walked, at: int, link: int, mirrored: bool) -> None:
        w.begin, w.link = at, link
        if mirrored:
            w.frame, w.vlan, w.outer_ipv6 = at, 0, -1

    def found(self, w: Walked, kind: int, direction: int, n: int, source: str) -> None:
        w.kinds.add(kind)
        if kind < kinds.FIRST_WEAK or w.session is None:
            w.session = (kind, direction, n, source)

    def step(self, w: Walked) -> None:
        view = self.data[w.begin : max(w.end, w.begin)]
        self.ip_stop = None
        try:
            ethertype, offset, vlan = Twin().link(view, w.link)
        except NotRoce:
            raise Finished from None
        if w.link == ETHERNET:
            w.vlan = vlan
        at = w.begin + offset
        self.ip_stop = w.end
        if ethertype in (0x8847, 0x8848):
            w.kinds.add(kinds.MPLS)
            return self.enter(w, *self.mpls(at, w.end), False)
        if ethertype == 0xD28B:
            self.need(at, 4, w.end)
            if self.read(at, 2) != 1 or self.read(at + 2, 2) not in (0x10, 0x20):
                raise NotRoce(outcomes.BAD_TIMESTAMP)
            size = 8 if self.read(at + 2, 2) == 0x10 else 6
            self.need(at + 4, size + 2, w.end)
            w.kinds.add(kinds.TIMESTAMP)
            w.begin = w.frame = at + 4 + size - 12
            return None
        if ethertype in TAGS:
            return self.tag(w, ethertype, at)
        if ethertype in (0x8903, 0x88E7, 0x22F3):
            size = {0x8903: 2, 0x88E7: 4}.get(ethertype)
            if size is None:
                self.need(at, 6, w.end)
                if self.data[at] >> 6:
                    raise Finished
                size = 6 + 4 * (self.read(at, 2) >> 6 & 31)
            w.kinds.add(kinds.BACKBONE)
            return self.enter(w, at + size, ETHERNET, False)
        if ethertype == 0x894F:
            return self.enter(w, *self.payload(w, at, ethertype), False)
        if ethertype not in (0x0800, 0x86DD):
            raise Finished
        version = 4 if ethertype == 0x0800 else 6
        packet = view[offset:]
        try:
            room = max(w.end, w.stop) - at
            protocol, size, length, fragment = (Twin().ipv4 if version == 4 else Twin().ipv6)(
                packet, room
            )
        except NotRoce:
            raise Finished from None
        self.ip_stop = at + length
        if fragment == "later":
            raise Finished
        source = text(packet[12:16] if version == 4 else packet[8:24])
        w.end = min(w.end, at + length)
        w.stop = min(w.stop, at + length)
        return self.transport(w, protocol, at, at + size, version, source)

    def transport(
        self, w: Walked, protocol: int, ip: int, at: int, version: int, source: str
    ) -> None:
        if protocol == 47:
            return self.gre(w, at, source)
        if protocol in (4, 41, 137, 143):
            inner, link = at, {4: IPV4, 41: IPV6, 143: ETHERNET}.get(protocol, 0)
            if protocol == 137:
                inner, link = self.mpls(at, w.end)
            w.kinds.add(kinds.IP_IN_IP)
            if version == 6 and w.outer_ipv6 < 0:
                w.outer_ipv6 = ip
            return self.enter(w, inner, link, False)
        if protocol != 17 or w.end - at < 8:
            raise Finished
        port = self.read(at + 2, 2)
        if port in self.ports:
            raise Finished
        if port == 6635:
            inner, link = self.mpls(at + 8, w.end)
            w.kinds.add(kinds.MPLS)
            return self.enter(w, inner, link, False)
        if port == 2152:
            inner, link = self.gtp(at + 8, w.end)
            w.kinds.add(kinds.GTP)
            return self.enter(w, inner, link, False)
        if port == 4790:
            self.need(at + 8, 8, w.end)
            flags, following = self.data[at + 8], self.data[at + 11]
            if flags & 9 != 8:
                raise Finished
            if not flags & 4:
                following = 3
            names = {1: 0x0800, 2: 0x86DD, 3: 0x6558, 4: 0x894F, 5: 0x8847}
            inner, link = self.payload(w, at + 16, names.get(following, -1))
            self.found(w, kinds.VXLAN, 0, self.read(at + 12, 3), source)
            return self.enter(w, inner, link, link == ETHERNET)
        if port == 4789 or (port not in (0, 6081, 6343, 4793) and self.vxlan_like(at + 8, w.end)):
            self.need(at + 8, 8, w.end)
            if not self.data[at + 8] & 8:
                raise Finished
            self.found(w, kinds.VXLAN, 0, self.read(at + 12, 3), source)
            return self.enter(w, at + 16, ETHERNET, True)
        if port == 6081:
            self.need(at + 8, 8, w.end)
            first, second = self.data[at + 8], self.data[at + 9]
            if first >> 6 or second & 0x80:
                raise Finished
            inner = at + 16 + (first & 63) * 4
            if inner > w.end:
                raise NotRoce(outcomes.BAD_GENEVE)
            inner, link = self.payload(w, inner, self.read(at + 10, 2))
            self.found(w, kinds.GENEVE, 0, self.read(at + 12, 3), source)
            return self.enter(w, inner, link, link == ETHERNET)
        if port in (6343, 4793):
            raise Special("sflow" if port == 6343 else "uet", at)
        raise Finished

    def payload(self, w: Walked, at: int, protocol: int) -> tuple[int, int]:
        if protocol == 0x894F:
            self.need(at, 8, w.end)
            size = self.data[at + 1] % 64 * 4
            if self.data[at] >> 6 or size < 8:
                raise Finished
            self.need(at, size, w.end)
            w.kinds.add(kinds.NSH)
            names = {1: 0x0800, 2: 0x86DD, 3: 0x6558, 5: 0x8847}
            at, protocol = at + size, names.get(self.data[at + 3], -1)
        if protocol in (0x8847, 0x8848):
            return self.mpls(at, w.end)
        if protocol not in LINKS:
            raise Finished
        return at, LINKS[protocol]

    def tag(self, w: Walked, ethertype: int, at: int) -> None:
        kind, size = TAGS[ethertype]
        self.need(at, size + 2, w.end)
        if ethertype == 0x8909 and self.data[at : at + 2] != b"\1\1":
            raise Finished
        w.kinds.add(kind)
        at += size
        link = {0x0800: IPV4, 0x86DD: IPV6}.get(self.read(at, 2))
        if link is None:
            return self.enter(w, at - 12, ETHERNET, False)
        return self.enter(w, at + 2, link, False)

    def gtp(self, at: int, end: int) -> tuple[int, int]:
        self.need(at, 8, end)
        flags = self.data[at]
        if flags >> 4 != 3 or self.data[at + 1] != 255:
            raise Finished
        at += 8
        if flags & 7:
            at += 4
            while flags & 4 and at < end and self.data[at - 1]:
                size = 4 * self.data[at]
                if not size:
                    raise Finished
                at += size
        self.need(at, 1, end)
        if self.data[at] >> 4 not in (4, 6):
            raise Finished
        return at, IPV4 if self.data[at] >> 4 == 4 else IPV6

    def vxlan_like(self, at: int, end: int) -> bool:
        if end - at < 42 or self.data[at] & 15 != 8 or self.data[at + 7]:
            return False
        view = self.data[at + 8 : end]
        try:
            ethertype, offset, _ = Twin().link(view, ETHERNET)
        except NotRoce:
            return False
        return ethertype in (0x0800, 0x86DD) and self.plausible(at + 8, end)

    def gre(self, w: Walked, at: int, source: str) -> None:
        self.need(at, 4, w.end)
        flags, protocol = self.read(at, 2), self.read(at + 2, 2)
        if flags & 7:
            raise Finished
        if flags & 0x4000:
            raise NotRoce(outcomes.BAD_GRE)
        at += 4 + 4 * (flags >> 15)
        key, keyed = 0, flags >> 13 & 1
        if keyed:
            self.need(at, 4, w.end)
            key = self.read(at, 4)
        at += 4 * (keyed + (flags >> 12 & 1))
        self.need(at, 0, w.end)
        if protocol in (0x88BE, 0x22EB, 0x8949):
            return self.erspan(w, at, protocol, flags >> 12 & 1, keyed, key, source)
        inner, link = self.payload(w, at, protocol)
        kind = kinds.GRE_MIRROR if protocol == 0x6558 else kinds.GRE_TUNNEL
        self.found(w, kind, keyed, key, source)
        return self.enter(w, inner, link, link == ETHERNET)

    def erspan(
        self, w: Walked, at: int, protocol: int, sequenced: int, keyed: int, key: int, source: str
    ) -> None:
        w.cut = False
        if protocol == 0x22EB:
            self.need(at, 12, w.end)
            last = self.read(at + 10, 2)
            frame_type = last >> 10 & 31
            if self.data[at] >> 4 != 2 or frame_type not in (0, 2):
                raise NotRoce(outcomes.BAD_ERSPAN)
            inner = at + 12 + 8 * (last & 1)
            self.need(at, inner - at, w.end)
            session = self.read(at + 2, 2)
            w.cut = bool(session & 0x400)
            self.found(w, kinds.ERSPAN_3, 1 + (last >> 3 & 1), session & 0x3FF, source)
            return self.enter(w, inner, RAW if frame_type == 2 else ETHERNET, True)
        if protocol == 0x88BE and sequenced:
            self.need(at, 8, w.end)
            plausible = self.plausible(at + 8, w.end) or not self.plausible(at, w.end)
            if self.data[at] >> 4 == 1 and plausible:
                session = self.read(at + 2, 2)
                w.cut = bool(session & 0x400)
                self.found(w, kinds.ERSPAN_2, 0, session & 0x3FF, source)
                return self.enter(w, at + 8, ETHERNET, True)
        places = [n for n in (0, 4, 8, 12, 20, 22) if self.plausible(at + n, w.end)]
        if not places and protocol == 0x88BE:
            if sequenced:
                raise NotRoce(outcomes.BAD_ERSPAN)
            places = [0]
        if not places:
            raise Finished
        if protocol == 0x88BE:
            self.found(w, kinds.ERSPAN_1, 0, 0, source)
        else:
            self.found(w, kinds.GRE_MIRROR, keyed, key, source)
        return self.enter(w, at + places[0], ETHERNET, True)

    def plausible(self, at: int, end: int) -> bool:
        view = self.data[at : max(at, end)]
        try:
            ethertype, offset, _ = Twin().link(view, ETHERNET)
            if ethertype == 0x0800:
                Twin().ipv4(view[offset:])
                return True
        except NotRoce:
            return False
        if ethertype in (0x86DD, 0x8915):
            return view[offset : offset + 1] != b"" and view[offset] >> 4 == 6
        if ethertype == 0x8808:
            return view.startswith(bytes.fromhex("0180c200"))
        return ethertype in (0x8847, 0x8848, 0xD28B)

    def mpls(self, at: int, end: int) -> tuple[int, int]:
        for label in range(17):
            self.need(at, 4, end)
            if label == 16:
                raise NotRoce(outcomes.BAD_MPLS)
            at += 4
            if self.data[at - 2] & 1:
                break
        self.need(at, 1, end)
        nibble = self.data[at] >> 4
        if nibble == 4:
            try:
                if end - at >= 20:
                    Twin().ipv4(self.data[at:end])
                return at, IPV4
            except NotRoce:
                pass
        if nibble == 0 and self.plausible(at + 4, end):
            return at + 4, ETHERNET
        if self.plausible(at, end):
            return at, ETHERNET
        if nibble == 6:
            return at, IPV6
        raise NotRoce(outcomes.BAD_MPLS)


@dataclass
class Found:
    """What became of one frame."""

    rows: list[Walked] = field(default_factory=list)
    outcomes: list[tuple[tuple[int, int, int, str] | None, int]] = field(default_factory=list)
    """(session or None for the carrier's tap, outcome) of what is not handed on."""


def unwrap(data: bytes, link: int, wire: int) -> Found:
    """The frames in a frame."""
    found, walker = Found(), Unwrapper(data)
    w = Walked(0, len(data), wire, link, 0)
    try:
        end = walker.walk(w)
        if end == "sflow" and w.depth < 8 and (samples := sflow(data, walker.at, w)) is not None:
            headers, error = samples
            for start in headers:
                session, depth = start.session, w.depth + 1
                start = replace(start, depth=depth, kinds={*w.kinds, kinds.SFLOW})
                inner = Unwrapper(data)
                try:
                    end = inner.walk(start)
                    start.session = session
                    if end == "uet":
                        found.outcomes.append((session, uet(start, inner.at)))
                    else:
                        found.rows.append(start)
                except NotRoce as bad:
                    found.outcomes.append((session, bad.outcome))
            found.outcomes.append((None, error or outcomes.CARRIER))
            return found
        if end == "uet":
            found.outcomes.append((w.session, uet(w, walker.at)))
        elif w.depth:
            found.rows.append(w)
        else:
            found.rows.append(Walked(0, len(data), wire, link, 0))
        if w.session is not None:
            found.outcomes.append((None, outcomes.CARRIER))
    except NotRoce as bad:
        found.outcomes = [(None, bad.outcome)]
    return found


def uet(w: Walked, udp: int) -> int:
    return outcomes.UET if w.end - udp >= 16 else outcomes.TRUNCATED_UDP


class Cut(Exception):
    """The datagram ends, or its lengths lie: the outcome."""


def sflow(data: bytes, udp: int, w: Walked) -> tuple[list[Walked], int] | None:
    """The sampled headers and the outcome that ended the search, 0 for none; None: no sFlow."""
    stop = min(w.stop, udp + number(data[udp + 4 : udp + 6]))
    end = min(w.end, stop)
    at, headers = udp + 8, []

    def take(size: int, limit: int) -> list[int]:
        """The next words; `limit`: end of the item they are in."""
        nonlocal at
        if limit - at < size:
            raise Cut(outcomes.BAD_SFLOW)
        if end - at < size:
            raise Cut(outcomes.TRUNCATED_TUNNEL)
        at += size
        return [number(data[i : i + 4]) for i in range(at - size, at, 4)]

    if end - at < 8:
        return [], outcomes.TRUNCATED_TUNNEL
    version, kind = number(data[at : at + 4]), number(data[at + 4 : at + 8])
    if version != 5 or kind not in (1, 2):
        return None
    size = 4 if kind == 1 else 16
    agent_at = at + 8
    try:
        samples = take(8 + size + 16, stop)[-1]
        agent = text(data[agent_at : agent_at + size])
        for _ in range(samples):
            tag, length = take(8, stop)
            sample_stop = at + length
            if sample_stop > stop:
                raise Cut(outcomes.BAD_SFLOW)
            if tag in (1, 3):
                words = take(32 if tag == 1 else 44, sample_stop)
                if tag == 1:
                    port, rate, way = words[1] & 0xFFFFFF, words[2], (words[5], words[6])
                else:
                    port, rate, way = words[2], words[3], (words[7], words[9])
                direction = 1 if way[0] == port else 2 if way[1] == port else 0
                for _ in range(words[-1]):
                    record, length = take(8, sample_stop)
                    record_at = at
                    if at + length > sample_stop:
                        raise Cut(outcomes.BAD_SFLOW)
                    if record == 1:
                        if length < 16:
                            raise Cut(outcomes.BAD_SFLOW)
                        protocol, frame, stripped, held = take(16, sample_stop)
                        if held > length - 16:
                            raise Cut(outcomes.BAD_SFLOW)
                        link = {1: ETHERNET, 11: IPV4, 12: IPV6}.get(protocol)
                        if link is not None:
                            wire = max(frame - stripped, held)
                            session = (kinds.SFLOW, direction, port, agent)
                            headers.append(
                                Walked(at, min(at + held, end), at + wire, link, at, rate=rate)
                            )
                            headers[-1].session = session
                    at = min(record_at + (length + 3) // 4 * 4, sample_stop)
            at = sample_stop
    except Cut as cut:
        return headers, cut.args[0]
    return headers, 0
