"""New critical findings of a live analysis."""

from __future__ import annotations

import json
import os
import re
import signal
import struct
import subprocess
import sys
import time
from collections import Counter
from math import inf
from pathlib import Path
from tempfile import TemporaryDirectory

import jsonschema
import msgspec
import pytest
from examples import first
from factories_results import diagnosis
from html_checks import checked
from job_logs import nccl
from network import bth, ethernet, ipv4, roce, roce_frames, udp
from processes import children_of, status_of_threads
from waiting import until

from rocescope import cli
from rocescope.analyzer.results.diagnosis import Place
from rocescope.commands.analyze_live import (
    EVERY_S,
    FIXED_S,
    MARGIN,
    MOST_FLOWS,
    PART,
    PER_FLOW_S,
    Criticals,
)
from rocescope.probes.hooks.attach import GONE
from rocescope.report.files.results import json_schema

from ..probes.owners.test_watch import HERE, THERE, Job

# New critical findings of a live analysis.

LOSS = diagnosis().findings[0]
DEAD = msgspec.structs.replace(LOSS, severity="critical", sentence="one is dead")
OTHER = msgspec.structs.replace(DEAD, place=Place(host="10.0.0.9"), sentence="two is dead")


class Scripted:
    """Diagnoses and a clock."""

    def __init__(self, *findings, takes_s=0.0):
        self.now, self.takes_s, self.findings = 0.0, takes_s, list(findings)
        self.runs = 0
        self.criticals = Criticals(self.diagnose, lambda: self.now)

    def diagnose(self):
        self.runs += 1
        self.now += self.takes_s
        return msgspec.structs.replace(diagnosis(), findings=self.findings)

    def after(self, seconds, flows=1, room_s=inf):
        self.now += seconds
        return self.criticals.lines(flows, room_s)


def test_each_critical_finding_is_told_once():
    live = Scripted(LOSS)
    assert live.after(EVERY_S) == []
    live.findings.append(DEAD)
    (line,) = live.after(EVERY_S)
    assert line.startswith("critical: one is dead; next: check the link")
    live.findings.append(OTHER)
    assert [line[:21] for line in live.after(EVERY_S)] == ["critical: two is dead"]
    assert live.after(EVERY_S) == []


def test_a_rank_that_a_job_waits_for_is_told_once():
    late = msgspec.structs.replace(LOSS, kind="straggler", sentence="job a waits for rank 2")
    live = Scripted(late)
    (line,) = live.after(EVERY_S)
    assert line.startswith("warning: job a waits for rank 2; next:")
    assert live.after(EVERY_S) == []


def test_a_finding_that_goes_and_comes_again_is_not_new():
    live = Scripted(DEAD)
    assert len(live.after(EVERY_S)) == 1
    live.findings.clear()
    assert live.after(EVERY_S) == []
    live.findings.append(DEAD)
    assert live.after(EVERY_S) == []


def test_a_diagnosis_takes_a_small_part_of_the_time():
    live = Scripted(takes_s=2.0)
    assert live.after(EVERY_S / 2) == [] and live.runs == 0
    assert live.after(EVERY_S / 2) == [] and live.runs == 1
    assert live.after(PART * 2.0 - 1) == [] and live.runs == 1
    assert live.after(1) == [] and live.runs == 2


def test_too_many_flows_are_said_once():
    live = Scripted(DEAD)
    (line,) = live.after(EVERY_S, MOST_FLOWS + 1)
    assert "more than 2,000 flows" in line
    assert live.after(EVERY_S, MOST_FLOWS + 1) == [] and live.runs == 0
    assert len(live.after(EVERY_S, MOST_FLOWS)) == 1


def test_packets_that_would_be_lost_meanwhile_put_a_diagnosis_off():
    live = Scripted(DEAD)
    least = MARGIN * (FIXED_S + 100 * PER_FLOW_S)
    (line,) = live.after(EVERY_S, 100, least * 0.99)
    assert "packet rate is too high" in line and live.runs == 0
    assert live.after(EVERY_S, 100, least * 0.99) == []
    assert live.after(EVERY_S, 100, least)[0].startswith("critical: one is dead")


def test_how_long_a_diagnosis_took_tells_how_long_the_next_one_takes():
    live = Scripted(DEAD, takes_s=0.9)
    live.after(EVERY_S, 100, 1.0)
    assert live.runs == 1
    assert "packet rate is too high" in live.after(PART * 0.9, 100, MARGIN * 0.9 * 0.99)[0]
    live.after(EVERY_S, 100, MARGIN * 0.9 * 1.01)
    assert live.runs == 2


# `rocescope analyze --live` as people run it: every PSN of a real link accounted for.

COMMAND = [sys.executable, "-m", "rocescope"]


class Analyzing:
    """A running live analysis; its output goes to a file, so that nothing waits for a reader."""

    def __init__(self, net, folder, *arguments, command="analyze", said="capturing on"):
        self.out, self.err = folder / "out", folder / "err"
        with self.out.open("wb") as out, self.err.open("wb") as err:
            self.process = subprocess.Popen(
                [*COMMAND, *([command, "--live"] if command == "analyze" else [command])]
                + ["--netns", net.name, *arguments],
                stdout=out,
                stderr=err,
            )
        self.wait_for(said)

    def wait_for(self, text):
        self._until(lambda: text in self.err.read_text() + self.out.read_text())

    def wait_for_packets(self, count):
        """Until the intervals in JSON hold so many packets: those of a ring come within one."""
        self._until(lambda: packets_of(self.lines()) >= count)

    def _until(self, condition):
        def come():
            assert self.process.poll() is None, self.err.read_text()
            return condition()

        until(come)

    def end(self, number=signal.SIGINT):
        self.process.send_signal(number)
        return self.process.wait(300)

    def lines(self):
        whole = self.out.read_text().rpartition("\n")[0]
        return [json.loads(line) for line in whole.splitlines()]


def packets_of(lines):
    return sum(line["packets"] for line in lines)


def test_every_psn_is_accounted_for_in_json(network, tmp_path):
    net = network()
    live = Analyzing(net, tmp_path, "left", "--format", "json", "--interval", "200ms")
    for start in range(0, 3000, 1000):
        net.send([roce(psn) for psn in range(start, start + 1000) if psn % 100 != 50])
        live.wait_for_packets(99 * (start + 1000) // 100)
    assert live.end() == 0
    *intervals, analysis = live.lines()
    for line in intervals:
        jsonschema.validate(line, json_schema("analyze-live"))
    jsonschema.validate(analysis, json_schema("analyze"))
    assert len(intervals) >= 3
    assert [line["interval"] for line in intervals] == list(range(1, len(intervals) + 1))
    assert packets_of(intervals) == 2970
    assert sum(line["frames"] for line in intervals) == 2970
    assert {line["dropped_frames"] for line in intervals} == {0}
    assert [intervals[-1][f"{name}_total"] for name in ("flows", "missing_packets")] == [1, 30]
    assert max(line["flows"] for line in intervals) == 1
    (flow,) = analysis["flows"]
    assert (flow["packets"], flow["missing_packets"]) == (2970, 30)
    assert flow["wire_bytes"] == sum(line["wire_bytes"] for line in intervals) == 2970 * 122
    (capture,) = analysis["captures"]
    assert (capture["format"], capture["name"]) == ("live", net.interface("left"))
    assert capture["roce_packets"] == capture["frames"] == 2970
    assert capture["snapped_frames"] == 0  # frames of 122 bytes are kept whole
    assert [(t["name"], t["frames"], t["dropped_frames"]) for t in capture["taps"]] == [
        (net.interface("left in"), 0, 0),
        (net.interface("left out"), 2970, 0),
    ]
    assert analysis["complete"] is True and analysis["warnings"] == []
    assert "rdma_ports" not in analysis or Path("/sys/class/infiniband").exists()


@pytest.mark.thorough
def test_a_critical_finding_is_a_line_while_it_runs(network, tmp_path):
    """A receiver refuses a request: on standard error, so that standard output stays JSON."""
    net = network()
    live = Analyzing(net, tmp_path, "left", "--format", "json", "--interval", "200ms")

    def answer(psn, syndrome):
        said = bth(psn, qp=0x22, opcode=0x11) + struct.pack(">I", syndrome << 24) + bytes(4)
        answered = ipv4(udp(said), source="10.0.0.2", destination="10.0.0.1")
        net.send([ethernet(answered)], "right")

    for psn in range(50):
        net.send([roce(psn)])
        answer(psn, 0x1F if psn < 49 else 0x62)
    live.wait_for("critical: 10.0.0.2 refuses requests: 1 NAK remote access error,")
    time.sleep(1.2)  # another diagnosis: the finding is not new
    assert live.end() == 0
    assert live.err.read_text().count("critical:") == 1
    *_, analysis = live.lines()
    assert [one["kind"] for one in analysis["diagnosis"]["findings"]] == ["fatal-nak"]


@pytest.mark.thorough
def test_idle_flows_leave_memory_after_the_time_given(network, tmp_path):
    """The default is a minute. One queue pair continues, 1,000 idle ones stay listed."""
    net = network()
    options = ("-f", "json", "--interval", "100ms", "--idle-after", "2s")
    live = Analyzing(net, tmp_path, "left", *options)
    for start in range(0, 2500, 500):
        net.send([roce(0, qp=0x100 + qp) for qp in range(start, start + 500)])
    live.wait_for_packets(2500)
    for psn in range(60):  # less than two seconds apart also on a busy machine
        net.send([roce(psn)])
        time.sleep(0.1)  # looks are seconds apart
    live.wait_for_packets(2560)
    assert live.end() == 0
    *intervals, analysis = live.lines()
    jsonschema.validate(analysis, json_schema("analyze"))
    ended = analysis["ended"]
    assert (ended["flows"], ended["packets"], len(analysis["flows"])) == (1500, 1500, 1001)
    assert sum(flow["packets"] for flow in analysis["flows"]) == 1060
    assert packets_of(intervals) == 2560
    assert intervals[-1]["flows_total"] == 2501
    assert max(line["flows"] for line in intervals[-5:]) <= 1


@pytest.mark.thorough
def test_what_a_small_ring_loses_is_in_every_record(network, tmp_path):
    """While the process stands still, its ring of 4 KiB overflows: received + lost == sent."""
    net = network()
    live = Analyzing(net, tmp_path, "left", "-f", "json", "--ring", "4KiB", "--interval", "100ms")
    net.send(roce_frames(10))
    live.wait_for_packets(10)
    live.process.send_signal(signal.SIGSTOP)
    net.send([roce(psn) for psn in range(10, 500)])
    live.process.send_signal(signal.SIGCONT)
    live.wait_for_packets(11)  # the ring has room again
    net.send([roce(psn) for psn in range(500, 510)])
    assert live.end() == 0
    *intervals, analysis = live.lines()
    lost = sum(line["dropped_frames"] for line in intervals)
    assert lost > 300
    assert intervals[-1]["dropped_frames_total"] == lost
    assert packets_of(intervals) + lost == 510
    assert sum(tap["dropped_frames"] for tap in analysis["captures"][0]["taps"]) == lost
    assert sum(flow["packets"] for flow in analysis["flows"]) + lost == 510
    assert f"the capture itself lost {lost} frames" in analysis["warnings"][0]


@pytest.mark.thorough
def test_lines_and_report(network, tmp_path):
    net = network()
    live = Analyzing(net, tmp_path, "left", "--interval", "300ms", "--duration", "1s")
    ce = ethernet(ipv4(udp(bth(501) + bytes(68))).replace(b"\x45\x02", b"\x45\x03", 1))
    cnp = ethernet(ipv4(udp(bth(0, opcode=0x81) + bytes(20)), "10.0.0.2", "10.0.0.1"))
    net.send([*roce_frames(500), ce, cnp])
    assert live.process.wait(300) == 0
    text = live.out.read_text()
    lines, _, report = text.partition("\n\n")
    heading, *rows = lines.splitlines()
    assert heading.split() == ("time packets/s rate flows late retrans missing CE CNP NAK".split())
    # 500 and its PSN 500 that never came, one CE mark, one CNP.
    cells = [re.split(r" {2,}", row.strip()) for row in rows]
    assert [sum(int(row[i].replace(",", "")) for row in cells) for i in (7, 8, 9)] == [1, 1, 0]
    assert cells[-1][6] == "1"
    captured, _, report = report.partition("\n")
    assert captured.startswith("captured ") and report.startswith("DIAGNOSIS")
    assert f"\n{net.interface('left')}: 502 RoCE packets" in report
    assert "1 packet was never seen" in report


@pytest.mark.thorough
def test_both_ends_of_a_link_count_once(network, tmp_path):
    net = network()
    live = Analyzing(net, tmp_path, "left", net.interface("right"), "-f", "json")
    net.send(roce_frames(400))
    assert live.end() == 0
    *intervals, analysis = live.lines()
    assert packets_of(intervals) == 400
    assert sum(line["frames"] for line in intervals) == 800
    (flow,) = analysis["flows"]
    copies = (flow["packets"], flow["tap_copies"], flow["duplicate_packets"])
    assert copies == (400, 400, 0)
    assert (flow["missing_packets"], flow["reordered_packets"]) == (0, 0)
    assert [hop["lost_packets"] for hop in analysis["hops"]] == [0]


@pytest.mark.thorough
@pytest.mark.parametrize("number", first(1, [signal.SIGTERM, signal.SIGHUP]))
def test_signals_end_it_with_its_report(network, tmp_path, number):
    net = network()
    live = Analyzing(net, tmp_path, "left", "-f", "json", "--interval", "200ms")
    net.send(roce_frames(50))
    live.wait_for_packets(50)
    assert live.end(number) == 0
    assert [flow["packets"] for flow in live.lines()[-1]["flows"]] == [50]


@pytest.mark.thorough
def test_count(network, tmp_path):
    net = network()
    live = Analyzing(net, tmp_path, "left", "-f", "json", "--count", "70")
    net.send(roce_frames(200))
    assert live.process.wait(300) == 0
    *intervals, analysis = live.lines()
    assert packets_of(intervals) == 70
    assert [flow["packets"] for flow in analysis["flows"]] == [70]


@pytest.mark.thorough
def test_without_packets_there_is_a_report_all_the_same(network, tmp_path):
    net = network()
    live = Analyzing(net, tmp_path, "left", "-f", "json", "--duration", "200ms")
    assert live.process.wait(300) == 0
    interval, analysis = live.lines()
    assert interval["packets"] == 0 and analysis["flows"] == []
    assert analysis["warnings"] == [f"{net.interface('left')}: it holds no RoCE (no frames)"]


@pytest.mark.thorough
def test_the_interface_goes_away(network, tmp_path):
    net = network()
    live = Analyzing(net, tmp_path, "left", "-o", str(tmp_path / "report.json"), "-f", "json")
    net.send(roce_frames(20))
    net.ip("link", "del", "left")
    assert live.process.wait(300) == 0
    assert packets_of(live.lines()) == 20
    assert live.lines()[-1]["interfaces_gone"] == [net.interface("left")]
    analysis = json.loads((tmp_path / "report.json").read_text())
    assert analysis["captures"][0]["warnings"] == [f"{net.interface('left')} {GONE}"]
    assert analysis["flows"][0]["packets"] == 20


@pytest.mark.thorough
@pytest.mark.usefixtures("libibverbs")
def test_flows_know_their_processes(network, tmp_path):
    net, job = network(), Job(5)
    net.ip("addr", "add", f"{HERE}/24", "dev", "left")
    try:
        live = Analyzing(net, tmp_path, "left", "-f", "json")
        job.connect(0x21, 0x51)
        for psn in range(20):
            for source, destination, qp, side in (
                (HERE, THERE, 0x51, "left"),
                (THERE, HERE, 0x21, "right"),
            ):
                packet = ipv4(udp(bth(psn, qp) + bytes(68)), source, destination)
                net.send([ethernet(packet)], side)
        assert live.end() == 0
    finally:
        job.kill()
    analysis = live.lines()[-1]
    owned = {flow["dest_qp"]: flow["owner"] for flow in analysis["flows"]}
    assert {qp: (o["pid"], o["rank"], o["end"]) for qp, o in owned.items()} == {
        0x51: (job.pid, 5, "source"),
        0x21: (job.pid, 5, "destination"),
    }
    (connection,) = analysis["connections"]
    assert "host_probe" in connection["evidence"]
    if "NETLINK_RDMA" in live.err.read_text():  # why others may be unknown, in one line
        assert live.err.read_text().count("owners of queue pairs may be unknown") == 1


def documented():
    """Of docs/live.md: user and capabilities by the words that begin a row."""
    page = (Path(__file__).parents[2] / "docs/live.md").read_text()
    rows = [line.split("|")[1:-1] for line in page.splitlines() if line.startswith("| ")]
    return {
        cells[0].strip(): (cells[1].strip(), frozenset(re.findall(r"CAP_\w+", kept(cells[2]))))
        for cells in rows
        if cells[1].strip() in ("root", "unprivileged")
    }


def kept(cell):
    return cell.partition("; for `pid:N`")[0]


def held_by(pid):
    """The same of a process: all that any of its threads has."""
    return {
        (
            "root" if 0 in status.users | status.groups else "unprivileged",
            frozenset(status.kept),
            *(() if status.no_new_privileges else ("could get more",)),
        )
        for status in status_of_threads(pid)
    }


MAIN = "`capture`, `analyze --live`, `live`"
CLSACT = "the same with clsact in another network namespace"
OWNERS = "the helper for owners, a child of each of these except `capture` without `-w`"
FILES, GUARD = "the helper for files, see below", "a guard in another network namespace"


@pytest.mark.thorough
@pytest.mark.thorough
@pytest.mark.parametrize(
    ("command", "arguments", "row", "children"),
    first(
        4,
        [
            ("analyze", [], MAIN, [OWNERS]),
            ("analyze", ["-o", "report.txt"], MAIN, [OWNERS, FILES]),
            ("capture", [], MAIN, []),
            ("capture", ["-w", "out.pcapng"], MAIN, [OWNERS]),
            ("capture", ["-w", "out.pcapng", "--no-owners"], MAIN, []),
            ("capture", ["-w", "out.pcapng", "--rotate-every", "1h"], MAIN, [OWNERS, FILES]),
            ("capture", ["--hook", "clsact"], CLSACT, [GUARD, GUARD]),
            ("capture", ["--counters"], MAIN, []),
            ("capture", ["--counters", "-w", "out.json"], MAIN, [FILES]),
        ],
    ),
)
@pytest.mark.usefixtures("libibverbs")
def test_no_thread_of_any_process_has_more_than_it_needs(
    network, tmp_path, command, arguments, row, children
):
    """Users, groups and capabilities of every thread, and of the processes they started."""
    net, table = network(), documented()
    arguments = [str(tmp_path / word) if "." in word else word for word in arguments]
    said = "counting on" if "--counters" in arguments else "capturing on"
    running = Analyzing(net, tmp_path, "left", *arguments, command=command, said=said)
    pid = running.process.pid
    until(lambda: held_by(pid) == {table[row]})
    expected = Counter(frozenset({table[child]}) for child in children)
    until(lambda: Counter(frozenset(held_by(child)) for child in children_of(pid)) == expected)
    net.send(roce_frames(30))
    assert held_by(pid) == {table[row]}
    assert running.end() == 0, running.err.read_text()
    files = [running.err, running.out, *tmp_path.glob("report.txt")]
    said = "".join(path.read_text() for path in files)
    assert re.search(r"\b30 (RoCE packets|packets (captured|counted|written))", said), said
    if "clsact" in arguments:
        assert net.run("tc", "qdisc", "show", "dev", "left", "clsact") == ""


@pytest.mark.thorough
@pytest.mark.parametrize("writable", [True, False])
def test_files_come_into_folders_of_root_too(network, tmp_path, writable):
    """The result is written when privileges are gone: to a folder of the user or of root."""
    net = network()
    with TemporaryDirectory() as folder:  # pytest closes its own folders to other users
        os.chmod(folder, 0o777 if writable else 0o755)
        file = Path(folder, "report.txt")
        running = Analyzing(net, tmp_path, "left", "-o", str(file))
        pid = running.process.pid  # a thread that is ending keeps its user until it is gone
        until(lambda: all(0 not in status.users for status in status_of_threads(pid)))
        net.send(roce_frames(30))
        assert running.end() == 0, running.err.read_text()
        assert "30" in file.read_text()
        assert (file.stat().st_uid == 0) is not writable


@pytest.mark.thorough
def test_a_report_for_a_browser_and_the_ranks_of_logs_that_come_later(network):
    """The process has given up root when it reads the logs and writes the report."""
    net = network()
    with TemporaryDirectory() as name:
        folder = Path(name)
        folder.chmod(0o755)
        arguments = ["-o", str(folder / "report.html"), "--nccl-log", str(folder / "*.log")]
        running = Analyzing(net, folder, "left", *arguments)
        log = "\n".join(nccl("nodeb", 200, 3, 11, "10.0.0.2", [0x11]))
        (folder / "job.log").write_text(f"{log}\n")
        net.send(roce_frames(30))
        assert running.end() == 0, running.err.read_text()
        words = checked((folder / "report.html").read_bytes())
        assert "packets/s" in running.out.read_text() and "Diagnosis" in words
        assert "11>3" in words and "nodeb" in words


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        (["a.pcap", "--interval", "1s"], "--interval needs --live: rocescope analyze --live"),
        (["a.pcap", "--count", "1"], "--count needs --live"),
        (["--live", "lo", "--format", "csv"], "--live prints table, html or json, not csv"),
        (["--live", "lo", "--format", "html"], "give -o FILE for the HTML report"),
        (["--live", "lo", "--concat"], "--concat cannot be combined with --live"),
        (["--live", "lo", "--follow"], "--follow cannot be combined with --live"),
        (["--live", "lo", "--icrc"], "--icrc cannot be combined with --live"),
        (["--live", "lo", "--count", "0"], "--count must be 1 or more"),
        (["--live", "lo", "--interval", "1"], "--interval '1' has no unit"),
    ],
)
def test_impossible_options(capsys, arguments, why):
    assert cli.run(["analyze", *arguments]) == 2
    said = capsys.readouterr().err
    assert why in said and len(said.splitlines()) == 1


def test_an_unknown_interface_is_one_line(live_capture, capsys):
    assert cli.run(["analyze", "--live", "nosuch0"]) == 3
    said = capsys.readouterr().err
    assert "nosuch0" in said and len(said.splitlines()) == 1


@pytest.mark.thorough
@pytest.mark.usefixtures("libibverbs")
@pytest.mark.parametrize("command", first(1, ["analyze", "capture"]))
def test_a_helper_for_owners_that_hangs_is_said_while_it_runs(network, tmp_path, command):
    net = network()
    file = ["-w", str(tmp_path / "x.pcapng")] if command == "capture" else []
    live = Analyzing(net, tmp_path, "left", *file, command=command)
    (helper,) = children_of(live.process.pid)
    os.kill(helper, signal.SIGSTOP)
    try:
        live.wait_for("the process that watches owners does not answer")
        assert live.err.read_text().count("does not answer") == 1
    finally:
        os.kill(helper, signal.SIGCONT)
    net.send(roce_frames(30))
    assert live.end() == 0
    assert "30 " in live.out.read_text() + live.err.read_text()
