"""`rocescope trace --follow` as people call it: real routers, Ctrl-C, JSON lines."""

from __future__ import annotations

import csv
import json
import os
import signal
import struct
import subprocess
import sys
import threading

import pytest
from answers import recorded, routers_of, traffic_of, truth
from hosts_with_queue_pairs import entry
from job_logs import COMM, nccl
from router_namespaces import frames, ip, mac
from sshd import LocalSshd, inventory
from traced_lab import lab

from rocescope import cli
from rocescope.analyzer.track.answers import rdma_udp_sport
from rocescope.commands.live_flows import follow_fabric
from rocescope.commands.options.output import Output
from rocescope.discovery.asking import Said
from rocescope.discovery.dialects.linux import LINUX
from rocescope.discovery.dialects.registry import DIALECTS
from rocescope.replay.fabrics.files import yaml_bytes
from rocescope.replay.fabrics.linux_tables import read_devices
from rocescope.replay.fabrics.parse import parse_fabric
from rocescope.replay.fabrics.topology import assemble

# `rocescope trace --follow` as people call it: real routers, Ctrl-C, JSON lines.


@pytest.fixture(scope="module")
def case(need_tool, tmp_path_factory):
    need_tool("ip")
    folder = tmp_path_factory.mktemp("follow")
    with lab() as routers:
        (folder / "fabric.yaml").write_bytes(yaml_bytes(routers.fabric(folder / "answers")))
        with (folder / "flows.pcap").open("wb") as file:
            file.write(struct.pack("<IHHiIII", 0xA1B2C3D4, 2, 4, 0, 0, 65535, 1))
            for number, frame in enumerate(frames(routers.flows(64, 4), mac(1, 1, 1))):
                file.write(struct.pack("<IIII", 1, number, len(frame), len(frame)) + frame)
        yield routers, folder


def arguments(case, *more):
    routers, folder = case
    return [
        "trace", str(folder / "flows.pcap"), "--fabric", str(folder / "fabric.yaml"),
        "--devices", f"netns:{routers.prefix}", "--follow", *more,
    ]  # fmt: skip


@pytest.mark.usefixtures("root")
@pytest.mark.thorough
def test_events_as_json_lines_until_ctrl_c(case):
    routers, _ = case
    process = subprocess.Popen(
        [sys.executable, "-m", "rocescope", *arguments(case, "--format", "json")],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=os.environ,
    )
    with process:
        began = json.loads(process.stdout.readline())
        assert (began["kind"], began["flows"], began["complete_flows"]) == ("began", 64, 64)
        ip(["link set down1-1 down"], routers.name("spine1"))
        changed = [json.loads(process.stdout.readline())]
        while not changed[-1]["moved_flows"]:  # the other router tells later
            changed.append(json.loads(process.stdout.readline()))
        assert {event["kind"] for event in changed} == {"changed"}
        assert {name for event in changed for name in event["devices"]} <= {"leaf1", "spine1"}
        process.send_signal(signal.SIGINT)
        rest = [json.loads(line) for line in process.stdout.read().splitlines()]
        assert (process.wait(), process.stderr.read()) == (0, b"")
    assert rest[-1]["kind"] == "ended"
    assert rest[-1]["moved_flows"] == sum(
        event["moved_flows"] for event in [*changed, *rest] if event["kind"] == "changed"
    )
    ip(["link set down1-1 up"], routers.name("spine1"))


@pytest.mark.usefixtures("root")
@pytest.mark.thorough
def test_a_summary_after_the_duration(case, capfd):
    assert cli.run(arguments(case, "--duration", "1500ms")) == 0
    out, err = capfd.readouterr()
    assert "following 64 flows over 4 switches" in out
    assert "FOLLOWED" in out
    assert "0 changes in" in out
    assert err == ""


@pytest.mark.usefixtures("root")
@pytest.mark.parametrize(
    ("more", "told"),
    [
        (["--ask", "all"], "--follow cannot be combined"),
        (["--advise"], "--follow cannot be combined"),
        (["--format", "csv"], "--follow writes table or json"),
        (["--duration", "no"], "--duration"),
    ],
)
def test_mistakes(case, capfd, more, told):
    assert cli.run(arguments(case, *more)) == 2
    assert told in capfd.readouterr().err


@pytest.mark.usefixtures("root")
def test_options_that_need_others(case, capfd):
    words = arguments(case)
    words.remove("--follow")
    assert cli.run([*words, "--duration", "1s"]) == 2
    assert "--duration needs --live or --follow" in capfd.readouterr().err
    at = words.index("--devices")
    assert cli.run([*words[:at], "--follow"]) == 2
    assert "--follow needs --devices" in capfd.readouterr().err


class Recorded:
    """A line to recorded answers, of which one becomes hostile when the switch speaks."""

    def __init__(self, folder):
        self.folder = folder
        self.stopped, self.read = threading.Event(), threading.Event()

    def __call__(self, requests):
        said = []
        for one in requests:
            question = next(q for q in LINUX.questions if q.command == one.command)
            file = self.folder / f"{one.device}.{question.suffix}"
            there = file.exists()
            said.append(Said(file.read_bytes() if there else b"", "" if there else "none"))
        self.read.set()
        return said

    def listen(self, device, command, heard):
        heard()
        if device == "leaf1":
            self.read.wait()
            file = self.folder / "leaf1.route.json"
            routes = json.loads(file.read_bytes())
            odd = {"gateway": "9.9.9.9", "dev": "swp9\x9b\u202e"}
            changed = [
                {"dst": one["dst"], **odd} if one["dst"] == "10.2.3.0/24" else one for one in routes
            ]
            assert changed != routes
            file.write_text(json.dumps(changed))
            heard()
        self.stopped.wait()
        return "ended"

    def close(self):
        self.stopped.set()


@pytest.mark.usefixtures("root")
def test_what_a_switch_writes_is_printable_and_names_no_temporary_folder(tmp_path, capfd):
    folder = recorded(tmp_path) / "healthy"
    made = assemble("lab", read_devices(folder), 10**10, 500, "tables", strict=False).fabric
    traffic = traffic_of(made, truth(folder.parent, "healthy"))
    line = Recorded(folder)
    try:
        assert follow_fabric(line, {}, made, traffic, 6.0, 5, Output("json")) == 0
    finally:
        line.close()
    out, _ = capfd.readouterr()
    events = [json.loads(text) for text in out.splitlines()]
    (remark,) = {r for event in events for r in event["remarks"] if "9.9.9.9" in r}
    assert "on swp9" in remark
    assert "leaf1.route.json: [" in remark
    assert "/" not in remark.partition("leaf1.route.json")[0].replace("10.2.3.0/24", "")
    assert "\x9b" not in out
    assert "\u202e" not in out


# `rocescope trace` as people call it.

FABRIC = """\
fabric: leaf-spine:leaves=4,spines=4,hosts=4
hash: {model: linux, policy: 1, seed: 305419896}
"""


@pytest.fixture
def run(capfd, monkeypatch):
    """Run a command line: (exit code, standard output, standard error)."""
    monkeypatch.setenv("COLUMNS", "80")

    def run(*arguments):
        code = cli.run(["trace", *(str(a) for a in arguments)])
        out, err = capfd.readouterr()
        return code, out, err

    return run


@pytest.fixture
def files(data):
    return sorted((data / "leafspine" / "r01_clean_write").glob("H[13]*.pcap.xz"))


@pytest.fixture
def routers(data, tmp_path):
    topology = data / "leafspine" / "r01_clean_write" / "topology.json"
    return f"linux:{routers_of(json.loads(topology.read_text()), tmp_path)}"


def test_report_and_rows(run, files, routers, tmp_path):
    code, out, _ = run(*files, "--fabric", routers, "-s", "static", "--top", 2)
    assert code == 0
    assert "flows is known to the destination" in " ".join(out.split())
    assert all(len(line) <= 80 for line in out.splitlines())
    code, _, _ = run(*files, "--fabric", routers, "-s", "static", "-o", tmp_path / "paths.csv")
    assert code == 0
    rows = list(csv.DictReader((tmp_path / "paths.csv").open()))
    assert all(row["complete"] == "true" for row in rows)
    assert rows[0]["links"].split()[1].startswith("leaf")


def test_ranks_of_flows(run, files, routers, tmp_path):
    """NCCL's logs name the sender of some flows, and so the receiver of their answers."""
    code, out, _ = run(*files, "--fabric", routers, "--format", "json")
    assert code == 0
    flow = json.loads(out)["flows"][0]
    there = nccl("h3", 7, 1, 0, flow["dst"], [flow["dest_qp"]])
    (tmp_path / "r1.log").write_text("".join(f"{line}\n" for line in there))
    logs = ("--nccl-log", tmp_path / "*.log")
    code, out, _ = run(*files, "--fabric", routers, "--format", "json", *logs)
    assert code == 0
    result = json.loads(out)
    named = [
        one
        for one in result["flows"]
        if (one["dst"], one["dest_qp"]) == (flow["dst"], flow["dest_qp"])
    ]
    assert named and all((one["dst_rank"], one["comm"]) == (1, COMM) for one in named)
    others = [one for one in result["flows"] if one["dst_rank"] is None]
    assert others and all((one["src_rank"], one["comm"]) == (None, None) for one in others)
    code, out, _ = run(*files, "--fabric", routers, "--top", 200, *logs)
    assert (code, "0>1" in out) == (0, True)
    code, _, err = run(*files, "--fabric", routers, "--nccl-log", tmp_path / "none*")
    assert (code, "--nccl-log: no file is named" in err) == (2, True)


def test_mistakes_trace(run, files, routers):
    code, _, err = run(*files, "--fabric", routers, "--top", 0)
    assert (code, "--top must be 1 or more" in err) == (2, True)
    code, _, err = run(files[0], files[0], "--fabric", routers)
    assert (code, "is given twice" in err) == (2, True)
    code, _, err = run(*files, "--fabric", "leaf-spine:leaves=2")
    assert (code, "no flow runs between hosts" in err) == (2, True)


def test_verified_with_taps(run, data):
    files = sorted((data / "leafspine" / "r01_clean_write").glob("leaf1-*.pcap.gz"))
    fabric = "leaf-spine:leaves=2,spines=4,hosts=2"
    code, out, _ = run(*files, "--fabric", fabric, "--map", "order", "--verify", "taps")
    assert code == 0
    # No hash is known: the taps decide, and nothing was predicted there.
    assert "0 of 0 predicted hops on captured links agree" in out
    assert "Not checked (no tap)" in out
    code, _, err = run(files[0], "--fabric", fabric, "--verify", "taps")
    assert (code, "captures of several taps" in err) == (2, True)


def test_counters_need_two_readings(run, files, routers, tmp_path):
    code, _, err = run(*files, "--fabric", routers, "--verify", "counters")
    assert (code, "needs --counters BEFORE --counters AFTER" in err) == (2, True)
    both = ("--verify", "counters", "--counters", tmp_path, "--counters", tmp_path / "x")
    code, _, err = run(*files, "--fabric", routers, *both)
    assert (code, "NAME.link.json" in err) == (2, True)


@pytest.mark.parametrize(
    "options",
    [("--verify", "taps"), ("--advise",), ("--follow",), ("--filter", "udp"), ("--concat",)],
    ids=lambda options: options[0],
)
def test_hosts_have_no_packets(run, routers, tmp_path, options):
    code, out, err = run("--hosts", tmp_path, "--fabric", routers, *options)
    assert (code, out) == (2, "")
    assert f"{options[0]} needs captured packets; --hosts knows queue pairs only" in err


def test_captures_or_hosts(run, files, routers, tmp_path):
    code, _, err = run("--fabric", routers)
    assert (code, "give captures, --live IFACE or --hosts INVENTORY" in err) == (2, True)
    code, _, err = run(*files, "--hosts", tmp_path, "--fabric", routers)
    assert (code, "captures, --live and --hosts cannot be combined" in err) == (2, True)
    (tmp_path / "i.yaml").write_text("switches: {leaf1: {dialect: linux}}\n")
    code, _, err = run("--hosts", tmp_path / "i.yaml", "--fabric", routers)
    assert (code, "names no host" in err) == (2, True)


@pytest.mark.thorough
def test_sixteen_hosts_with_32_queue_pairs_over_ssh(run, root, need_tool, tmp_path, monkeypatch):
    """Queue pair i of host a leads to host a xor (1 + i mod 15)."""
    need_tool("sshd")
    (tmp_path / "fabric.yaml").write_text(FABRIC)
    answers = tmp_path / "answers"
    answers.mkdir()
    names = [f"g{a}" for a in range(16)]
    with LocalSshd(tmp_path) as server:
        for a, name in enumerate(names):
            save_host(answers, name, f"10.0.0.{1 + a}", "eth0")
            peers = [a ^ (1 + i % 15) for i in range(32)]
            entries = [
                entry(256 + 32 * a + i, 256 + 32 * b + i, pid=1000 * a + i, comm=f"rank{a}")
                for i, b in enumerate(peers)
            ]
            (answers / f"{name}.qp.json").write_text(json.dumps(entries))
            server.add_recorded(name, answers, DIALECTS["linux"])
        monkeypatch.setenv("HOME", str(server.home))
        monkeypatch.delenv("SSH_AUTH_SOCK", raising=False)
        devices = inventory(tmp_path / "i.yaml", {"leaf1": "linux"}, names)
        common = ("--hosts", devices, "--fabric", tmp_path / "fabric.yaml", "-s", "static")
        code, out, _ = run(*common, "-f", "json")
        assert code == 0
        shown, table, _ = run(*common, "--top", 2)
    found = json.loads(out)
    assert (found["queue_pairs"], found["flows_traced"], found["complete_flows"]) == (512, 512, 512)
    assert found["warnings"] == []
    ways = {(flow["src"], flow["src_qp"]): flow for flow in found["flows"]}
    assert len(ways) == 512
    fabric = parse_fabric(str(tmp_path / "fabric.yaml"))
    for a in range(16):
        for i in range(32):
            b = a ^ (1 + i % 15)
            flow = ways[f"10.0.0.{1 + a}", 256 + 32 * a + i]
            assert (flow["dst"], flow["dest_qp"]) == (f"10.0.0.{1 + b}", 256 + 32 * b + i)
            assert flow["src_port"] == int(rdma_udp_sport(256 + 32 * a + i, 256 + 32 * b + i))
            assert (flow["src_process"], flow["src_pid"]) == (f"rank{a}", 1000 * a + i)
            assert (flow["dst_process"], flow["dst_pid"]) == (f"rank{b}", 1000 * b + i)
            assert (flow["packets"], flow["wire_bytes"]) == (None, None)
            first, *_, last = flow["links"]
            assert first.startswith(fabric.host_name(a)) and last.endswith(fabric.host_name(b))
    text = " ".join(table.split())
    assert shown == 0
    assert "512 connected queue pairs of hosts" in text
    assert "packets and bytes are not known" in text
    assert " B " not in table and "rank0 0>rank1 1000" in text
    for loads in found["flow_loads"]:
        per_host = [one["flows"] for one in loads["links"] if one["name"].startswith("host1>")]
        assert per_host == [32]


def test_rows_of_queue_pairs(run, tmp_path):
    (tmp_path / "fabric.yaml").write_text("fabric: leaf-spine:leaves=1,spines=1,hosts=2\n")
    answers = tmp_path / "answers"
    answers.mkdir()
    for name, address, own, other in (("a", 1, 17, 33), ("b", 2, 33, 17)):
        save_host(answers, name, f"10.0.0.{address}", "eth0")
        (answers / f"{name}.qp.json").write_text(json.dumps([entry(own, other)]))
    code, _, _ = run(
        "--hosts", answers, "--fabric", tmp_path / "fabric.yaml", "-o", tmp_path / "paths.csv"
    )
    assert code == 0
    rows = list(csv.DictReader((tmp_path / "paths.csv").open()))
    assert [(row["src"], row["src_qp"], row["dest_qp"]) for row in rows] == [
        ("10.0.0.1", "17", "33"), ("10.0.0.2", "33", "17"),
    ]  # fmt: skip
    assert {(row["wire_bytes"], row["src_process"], row["dst_pid"]) for row in rows} == {
        ("", "python", "7")
    }


def save_host(folder, name, address, port):
    """What a Linux host with one address answers."""
    (folder / f"{name}.route.json").write_text("[]")
    own = {"family": "inet", "local": address, "prefixlen": 24, "scope": "global"}
    link = {
        "ifindex": 2, "ifname": port, "flags": ["UP", "LOWER_UP"], "link_type": "ether",
        "operstate": "UP", "address": f"02:00:00:00:00:{int(address.split('.')[3]):02x}",
        "addr_info": [own],
    }  # fmt: skip
    (folder / f"{name}.addr.json").write_text(json.dumps([link]))
    device = {"ifindex": 0, "ifname": "mlx5_0", "port": 1, "state": "ACTIVE", "netdev": port}
    (folder / f"{name}.rdma.json").write_text(json.dumps([device]))


@pytest.mark.usefixtures("root")
def test_asked_and_advised(run, need_tool, tmp_path):
    """Real routers in namespaces, as people call the command."""
    need_tool("ip")
    with lab() as routers:
        fabric = routers.save(tmp_path / "answers")
        assert cli.run(["discover", str(fabric), "-o", str(tmp_path / "fabric.yaml")]) == 0
        frames_of = frames(routers.flows(120, 4), mac(1, 1, 1))
        capture = [struct.pack("<IHHiIII", 0xA1B23C4D, 2, 4, 0, 0, 65535, 1)]
        for number, frame in enumerate(frames_of):
            size = len(frame)
            capture += [struct.pack("<IIII", 1_700_000_000, 1000 * number, size, size), frame]
        (tmp_path / "hosts.pcap").write_bytes(b"".join(capture))
        ways = ("--devices", f"netns:{routers.prefix}", "--ask", "all", "--advise")
        common = ("--fabric", tmp_path / "fabric.yaml", *ways)
        code, out, _ = run(tmp_path / "hosts.pcap", *common)
    text = " ".join(out.split())
    assert code == 0
    assert "240 of 240 questions answered by 3 switches; 240 of 240 answers agree" in text
    assert "Review the changes; nothing is applied." in text
