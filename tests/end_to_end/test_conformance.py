"""`rocescope check` on captures written byte by byte: every way to break a rule is named."""

from __future__ import annotations

import json
import struct
from pathlib import Path
from typing import Any

import pytest
from captures import DATA, data, truth
from factories import START_NS, Frame, write_pcap

from rocescope import cli
from rocescope.analyzer.measures.conformance.options import ConformanceOptions, HostCounters
from rocescope.analyzer.measures.conformance.rules import KINDS, RULES
from rocescope.analyzer.pipeline.captures import analyze
from rocescope.analyzer.pipeline.options import AnalyzeOptions

# `rocescope check` on captures written byte by byte: every way to break a rule is named.

FORTH, BACK = (
    (bytes([10, 0, 0, 1]), bytes([10, 0, 0, 2])),
    (bytes([10, 0, 0, 2]), bytes([10, 0, 0, 1])),
)
SPORT = 49458  # of the queue pairs 0x11 and 0x12, as Linux computes it
NAK, FATAL, RNR = 0x60, 0x61, 0x2E  # RNR: 1.28 ms


def frame(opcode: int, psn: int, rest: bytes, at: int, number: int, flags: int, ecn: int) -> Frame:
    back = 0x0D <= opcode <= 0x11 or opcode == 0x81
    (source, to), qp = (BACK, 0x12) if back else (FORTH, 0x11)
    bth = struct.pack("!BBHII", opcode, 0x40, 0xFFFF, qp, flags << 24 | psn) + rest + bytes(4)
    udp = struct.pack("!HHHH", SPORT, 4791, 8 + len(bth), 0) + bth
    ip = struct.pack("!BBHHHBBH", 0x45, ecn, 20 + len(udp), number, 0x4000, 64, 17, 0)
    return Frame(START_NS + 1000 * at, bytes(12) + b"\x08\x00" + ip + source + to + udp)


class Trace:
    """Frames one behind the other, 1 us apart; `at` jumps to a time in us."""

    def __init__(self) -> None:
        self.frames: list[Frame] = []
        self.now = 0
        self.id = {False: 100, True: 5000}

    def add(
        self,
        opcode: int,
        psn: int,
        rest: bytes,
        at: int | None = None,
        flags: int = 0,
        ecn: int = 2,
    ) -> Trace:
        self.now = self.now + 1 if at is None else at
        back = 0x0D <= opcode <= 0x11 or opcode == 0x81
        self.id[back] += 1
        self.frames.append(frame(opcode, psn, rest, self.now, self.id[back], flags, ecn))
        return self

    def write(self, *psns: int, at: int | None = None, ecn: int = 2) -> Trace:
        for psn in psns:
            self.add(0x07, psn, bytes(1024), at, ecn=ecn)
            at = None
        return self

    def last(self, psn: int, at: int | None = None) -> Trace:
        return self.add(0x08, psn, bytes(1024), at, flags=0x80)

    def ack(self, psn: int, msn: int = 0, at: int | None = None, syndrome: int = 0x1F) -> Trace:
        return self.add(0x11, psn, struct.pack("!I", syndrome << 24 | msn), at)

    def nak(self, psn: int, syndrome: int = NAK, msn: int = 0) -> Trace:
        return self.ack(psn, msn, syndrome=syndrome)

    def read(self, psn: int, length: int, at: int | None = None) -> Trace:
        return self.add(0x0C, psn, struct.pack("!QII", 0x1000, 0xABCD, length), at)

    def response(self, psn: int, opcode: int = 0x0E, at: int | None = None) -> Trace:
        aeth = b"" if opcode == 0x0E else struct.pack("!I", 0x1F << 24)
        return self.add(opcode, psn, aeth + bytes(1024), at)

    def cnp(self, at: int | None = None) -> Trace:
        return self.add(0x81, 0, bytes(16), at)


def begun() -> Trace:
    """A message that was acknowledged: frames 1 and 2, PSN 1."""
    return Trace().last(1).ack(1, 1)


def sent() -> Trace:
    """Then 22 packets in flight: frames 3 to 24, PSNs 2 to 23."""
    return begun().write(*range(2, 24))


def whole_read() -> Trace:
    """A READ of PSNs 2 to 5, answered: frames 4 and 5 to 8."""
    trace = begun().write(2).read(3, 4096)
    return trace.response(3, 0x0D).response(4).response(5).response(6, 0x0F)


LATE = 2_000_000
"""Later than a sender may take to react, in us."""
CASES: list[tuple[str, Trace, tuple[str, int, int | None, int]]] = [
    # what is broken: rule, frame, related frame, PSN
    ("NAK again", begun().write(2, 4).nak(3).write(5).nak(3), ("nak-once", 7, 5, 3)),
    (
        "NAK not for the first",
        begun().write(2, 5).nak(4).write(3, at=5000).write(4),
        ("nak-psn", 5, 6, 4),
    ),
    ("NAK without a cause", begun().write(2, 3).nak(4), ("nak-cause", 5, None, 4)),
    ("ACK back", begun().write(2, 3, 4).ack(4, 1).ack(2, 1), ("ack-order", 7, 6, 2)),
    ("NAK back", begun().write(2, 3, 4).ack(4, 1).write(6).nak(3), ("ack-order", 8, 6, 3)),
    ("answer to nothing", begun().write(2).ack(3, 1).write(3).ack(3, 1), ("ack-sent", 4, 5, 3)),
    (
        "no answer",
        begun().last(2, at=100).last(2, at=100 + LATE).ack(2, 2),
        ("ack-request", 3, 4, 2),
    ),
    ("MSN", begun().last(2).ack(2, 2).last(3).ack(3, 5), ("msn", 6, None, 3)),
    ("back too far", sent().nak(4, msn=1).write(4, 5, 2, 3), ("rewind-start", 28, 26, 2)),
    ("not far enough", sent().nak(4, msn=1).write(5), ("rewind-start", 26, 25, 5)),
    ("left out", sent().nak(3, msn=1).write(3, 5), ("rewind-order", 27, None, 5)),
    ("after the end", begun().write(2).nak(2, FATAL).write(3, at=LATE), ("fatal-nak", 5, 4, 3)),
    ("too soon", begun().last(2).nak(2, RNR).last(2, at=1000), ("rnr-wait", 5, 4, 2)),
    ("response too many", whole_read().response(7, 0x10), ("read-range", 9, None, 7)),
    (
        "response misplaced",
        begun().write(2).read(3, 4096).response(3, 0x0D).response(4, 0x0F),
        ("read-range", 6, None, 4),
    ),
    ("response again", whole_read().response(4, at=9000), ("read-order", 9, None, 4)),
    (
        "READ again ends elsewhere",
        begun().write(2).read(3, 4096).response(3, 0x0D).read(4, 1024, at=9000),
        ("read-again", 6, None, 4),
    ),
    ("CNP again", begun().write(2, ecn=3).cnp().cnp(), ("cnp-interval", 5, None, None)),  # type: ignore[list-item]
]  # fmt: skip


def checked(path: Path, capsys: pytest.CaptureFixture[str], *options: str) -> tuple[int, Any]:
    code = cli.run(["check", str(path), "--format", "json", "--progress", "none", *options])
    return code, json.loads(capsys.readouterr().out)["conformance"]


@pytest.mark.parametrize("case", CASES, ids=[name for name, _, _ in CASES])
def test_each_is_named(
    case: tuple[str, Trace, tuple[str, int, int | None, int]],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    _, trace, expected = case
    path = write_pcap(tmp_path / "x.pcap", trace.frames)
    code, found = checked(path, capsys, "--at-host", "10.0.0.2")
    assert code == 1 and not found["conformant"]
    (one,) = found["violations"]
    named = (one["rule"], one["frame_number"], one["related_frame"], one["psn"])
    assert named == expected
    (rule,) = [rule for rule in RULES if rule.id == expected[0]]
    assert one["source"] == rule.source and one["text"]
    assert (one["src"], one["dst"], one["tap"]) is not None


def test_an_uncaused_cnp(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The other of two queue pairs between the same hosts was marked."""
    marked = Trace().write(2, ecn=3).frames
    moved = [f._replace(data=f.data[:49] + b"\x21" + f.data[50:]) for f in marked]
    path = write_pcap(tmp_path / "x.pcap", moved + begun().cnp(at=9).frames)
    _, found = checked(path, capsys)
    assert [one["rule"] for one in found["violations"]] == ["cnp-cause"]


def test_every_rule_and_kind_is_covered() -> None:
    assert {rule for _, _, (rule, *_) in CASES} | {"cnp-cause"} == {rule.id for rule in RULES}
    assert len(CASES) + 1 == len(KINDS)


# The bundled captures of Soft-RoCE keep the rules, and agree with the counters of its hosts.

HOSTS = {"A": "10.0.0.1", "B": "10.0.0.2"}
CHECK = ConformanceOptions()


def checked_conformance_of_captures(*paths, options=CHECK):
    """The conformance of captures."""
    found = analyze([str(path) for path in paths], AnalyzeOptions(conformance=options)).conformance
    assert found
    return found


def rule(found, name):
    """The result of one rule."""
    (one,) = [one for one in found.rules if one.id == name]
    return one


@pytest.mark.parametrize("path", sorted(DATA.glob("*.pcap*")), ids=lambda path: path.name[:24])
def test_every_capture_conforms(path: Path) -> None:
    found = checked_conformance_of_captures(path)
    assert found.conformant, found.violations
    assert not found.violations


@pytest.mark.thorough
@pytest.mark.parametrize("run", sorted(DATA.glob("leafspine/r*")), ids=lambda path: path.name)
def test_every_tap_of_the_fabric_conforms(run: Path) -> None:
    files = sorted(run.glob("*.pcap*"))
    if not files:
        pytest.skip("no capture of this run is bundled")
    found = checked_conformance_of_captures(*files)
    assert found.conformant, found.violations


def counters(run, host):
    """What the host's driver counted while the capture ran."""
    return run["rxe_hw_counters_delta"][host]["rxe0"]


def test_naks_and_rewinds_are_those_the_hosts_counted() -> None:
    run, _ = truth("i03")
    found = checked_conformance_of_captures(data("i03_write_reorder5_AtoB.atB"))
    assert rule(found, "nak-psn").judged == counters(run, "B")["out_of_seq_request"] == 81
    assert rule(found, "nak-psn").undecided == 0
    run, _ = truth("i01_write")
    at_sender = checked_conformance_of_captures(DATA / "i01_write_loss0.5_AtoB.atA.pcap.gz")
    rewinds = sum(sum(view.rewinds.values()) for view in at_sender.views)
    assert rewinds == counters(run, "A")["completer_retry_err"] == 126
    assert {view.position for view in at_sender.views} == {"before_loss"}
    assert rule(at_sender, "nak-psn").status == "not_judged"


def test_each_tap_is_judged_by_itself() -> None:
    files = [DATA / f"i01_write_loss0.5_AtoB.at{host}.pcap.gz" for host in "AB"]
    both = checked_conformance_of_captures(*files)
    alone = [checked_conformance_of_captures(file) for file in files]
    for index, one in enumerate(both.rules):
        assert one.judged == sum(found.rules[index].judged for found in alone)
        assert one.undecided == sum(found.rules[index].undecided for found in alone)
    assert {view.position for view in both.views} == {"before_loss", "behind_loss"}
    assert both.latency.nak_generation_ns == alone[1].latency.nak_generation_ns
    assert all(view.flow is not None for view in both.views)


def test_host_counters_agree_where_the_tap_can_know() -> None:
    run, _ = truth("i01_write")
    saved = HostCounters(HOSTS["B"], counters(run, "B"))
    found = checked_conformance_of_captures(
        DATA / "i01_write_loss0.5_AtoB.atB.pcap.gz", options=ConformanceOptions(counters=saved)
    )
    assert {one.counter: one.agrees for one in found.counters} == {
        "out_of_seq_request": True,
        "rcvd_pkts": True,
        "sent_pkts": True,
    }
    at_sender = checked_conformance_of_captures(
        DATA / "i01_write_loss0.5_AtoB.atA.pcap.gz", options=ConformanceOptions(counters=saved)
    )
    (lost,) = [one for one in at_sender.counters if one.counter == "rcvd_pkts"]
    assert lost.agrees is False
    assert lost.captured - lost.grew_by == 180  # what netem dropped on the way
    assert "after the tap" in lost.text


def test_duplicates_of_the_network_are_counted_as_the_host_does() -> None:
    run, _ = truth("i04")
    saved = HostCounters(HOSTS["B"], counters(run, "B"))
    found = checked_conformance_of_captures(
        data("i04_write_duplicate1_AtoB.atB"), options=ConformanceOptions(counters=saved)
    )
    assert {one.counter: one.agrees for one in found.counters}["duplicate_request"] is True


def test_marks_without_cnps() -> None:
    (cnp,) = checked_conformance_of_captures(data("i13")).cnp
    assert (cnp.ecn_marked_packets, cnp.cnps) == (443, 0)
    assert cnp.explained_by == []
