"""Views hold what they say, every verdict is possible, runs have the truth of their captures."""

from __future__ import annotations

import json
import subprocess
import tempfile
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from examples import first

from .drawn import KINDS, draw_run
from .topology import HOSTS, LINKS
from .verdicts import Judgement, evidence, host_of, judge, named, table
from .view_runs import BUNDLED, add_delayed, bundled_truth
from .views import Frames, View, devices, read_frames, views_of, write_ethers

SRC, DST = "10.0.1.1", "10.0.2.3"


@cache
def drawn(kind: str, number: int = 1) -> tuple[Frames, dict[str, Any]]:
    """The frames and the truth of a simulated run."""
    with tempfile.TemporaryDirectory() as folder:
        run = draw_run(number, kind, Path(folder))
        return read_frames(run), json.loads((run / "truth.json").read_text())


def view(name: str, kind: str = "outage", number: int = 1) -> View:
    (found,) = views_of(drawn(kind, number)[0], "run", [name])
    return found


def right_finding(fault: dict[str, Any], **other: Any) -> dict[str, Any]:
    """A finding that says all of a fault."""
    place = dict.fromkeys(("from_tap", "to_tap", "device", "direction", "host", "dest_qp"))
    place |= {"capture": None, "device": fault["device"]}
    place |= {"from_tap": f"{fault['from_taps'][0]}.pcap", "to_tap": f"{fault['to_taps'][0]}.pcap"}
    return {
        "kind": fault["kinds"][0],
        "severity": "warning",
        "confidence": "proven",
        "from_ns": fault["from_ns"],
        "packets": fault["packets"],
        "sentence": "a device loses packets",
        "affected": [
            {"src": src, "dst": dst, "dest_qp": qp} for src, dst, qp, _ in fault["affected"]
        ],
        "place": place | other.pop("place", {}),
    } | other


def verdict(name: str, *changes: dict[str, Any], kind: str = "outage") -> str:
    """Of findings that say all of the fault, but for some fields."""
    truth = drawn(kind)[1]
    fault = truth["expected"][0]
    findings = [right_finding(fault, **change) for change in changes]
    return judge(view(name, kind), truth, findings, {}).verdict


@pytest.mark.parametrize(("most", "expected"), [(5, "right"), (-1, "narrower")])
def test_bounds_that_hold_the_number_where_no_tap_is_behind_the_fault(
    most: int, expected: str
) -> None:
    truth = drawn("nic-drops")[1]
    fault = truth["expected"][0]
    packets = fault["packets"]
    finding = right_finding(
        fault | {"to_taps": [""]},
        place={"to_tap": None},
        packets=packets // 2,
        sentence=f"at least {packets // 2} packets (at most {packets + most:,})",
    )
    assert judge(view("links", "nic-drops"), truth, [finding], {}).verdict == expected


NOWHERE = {"from_tap": "mirror.pcap", "to_tap": None, "device": None, "direction": "after the tap"}


def test_right_and_less() -> None:
    fault = drawn("outage")[1]["expected"][0]
    assert verdict("links", {}) == "right"
    assert verdict("links", {}, {"kind": "loss"}) == "narrower"
    assert verdict("links", {"place": {"to_tap": None, "device": None}}) == "narrower"
    assert verdict("links", {"kind": "loss"}) == "narrower"
    assert verdict("links", {"from_ns": fault["from_ns"] + 10**9}) == "narrower"
    assert verdict("links", {"packets": 6, "sentence": "at least 6"}) == "narrower"
    assert verdict("links", {"packets": 6}) == "vague"
    assert verdict("links", {"packets": 6, "sentence": "6 flows moved away"}) == "right"
    assert verdict("links", {"severity": "note"}) == "vague"
    assert verdict("one_file", {"place": NOWHERE}) == "vague"
    assert verdict("links", {"kind": "timeout-recovery"}) == "vague"


def test_a_link_that_failed_may_be_named_at_its_other_end() -> None:
    """Where the device of that end moves its flows: no second finding of the lost packets."""
    truth = drawn("link-down")[1]
    lost, moved, _ = truth["expected"]
    assert moved["device"] == lost["other_end"]
    links = view("links", "link-down")
    place = {"from_tap": None, "to_tap": f"{lost['to_taps'][0]}.pcap", "device": moved["device"]}
    moves = right_finding(moved, kind="link-down", place=place, sentence="6 flows moved")
    assert judge(links, truth, [moves], {}).verdict == "narrower"
    assert judge(links, truth, [right_finding(lost), moves], {}).verdict == "right"
    assert judge(links, truth, [moves | {"kind": "rehash"}], {}).verdict == "silent"


def test_silent_needs_evidence() -> None:
    fault = drawn("outage")[1]["expected"][0]
    assert verdict("links") == "silent"
    others = fault | {"affected": [["10.0.1.1", "10.0.1.2", 1, 9]], "from_taps": [], "to_taps": []}
    assert not evidence(view("links", "clean"), others)
    truth = drawn("outage")[1] | {"expected": [others]}
    assert judge(view("links", "clean"), truth, [], {}).verdict == "unseen"


@pytest.mark.parametrize(
    "change",
    [
        {"kind": "rehash"},
        {"kind": "capture-loss"},
        {"packets": 10_000},
        {"place": {"device": "leaf1"}},
        {"affected": [{"src": "10.0.1.1", "dst": "10.0.1.2", "dest_qp": 1}]},
    ],
)
def test_a_false_name_place_number_or_flow_is_wrong(change: dict[str, Any]) -> None:
    assert verdict("links", {}, change) == "wrong"


def test_a_parallel_link_and_the_wrong_side_are_wrong() -> None:
    fault = drawn("outage")[1]["expected"][0]
    before, after = fault["from_taps"][0], fault["to_taps"][0]
    other = before[:-1] + str(int(before[-1]) % 4 + 1)
    open_end = {"to_tap": None, "device": None}
    assert verdict("links", {"place": {**open_end, "from_tap": other}}) == "wrong"
    assert verdict("links", {"place": {**open_end, "from_tap": after}}) == "wrong"
    one_way = {"from_tap": None, "device": None, "direction": "before the tap"}
    assert verdict("links", {"place": {**one_way, "to_tap": before}}) == "wrong"


def test_a_warning_on_a_clean_run_is_wrong() -> None:
    finding = right_finding(drawn("outage")[1]["expected"][0], confidence="possible")
    clean = drawn("clean")[1]
    assert judge(view("one_file", "clean"), clean, [finding], {}).verdict == "wrong"
    note = finding | {"severity": "note"}
    assert judge(view("one_file", "clean"), clean, [note], {}).verdict == "right"


def test_what_a_place_names() -> None:
    ports = devices(drawn("clean")[0])
    address = {port: address for address, port in ports.items()}
    leaf, spine = (address[node, "leaf1-spine2"] for node in ("leaf1", "spine2"))
    assert named("a/leaf1-spine2.pcap.gz", {}).link == "leaf1-spine2"
    assert named(f"{spine} > {leaf}", ports).link == "leaf1-spine2"
    assert named(f"router {leaf}", ports).devices == {"leaf1"}
    assert named("leaf1:swp4", {}).link == "leaf1-spine2"
    assert named("mirror.pcap", ports).devices == set()


def test_the_table_counts_views_of_a_kind_together() -> None:
    found = [Judgement("uplinks:leaf1", "right"), Judgement("uplinks:leaf2", "wrong")]
    assert "| uplinks | 1 | 0 | 0 | 0 | 1 | 0 | 0 |" in table(found)


# Views.


def test_views_hold_the_frames_of_their_links_and_times() -> None:
    frames = drawn("clean")[0]
    assert len(view("one_file", "clean").frames) == len(frames)
    assert sum(map(len, view("links", "clean").files.values())) == len(frames)
    assert set(view("uplinks:leaf2", "clean").files) == {f"leaf2-spine{n}" for n in range(1, 5)}
    middle = view("middle", "clean").frames
    assert 0.4 * len(frames) < len(middle) < 0.6 * len(frames)
    assert np.all(np.diff(view("one_file", "clean").frames.time_ns) >= 0)
    ways = ("leaf1>spine1", "spine1>leaf1")
    up, down = (view(f"one_link:{way}", "clean").frames for way in ways)
    assert set(up.ends[0].tolist()) == {1, 2}
    assert set(down.ends[0].tolist()) == {3, 4}
    assert set(up.hop_limit.tolist()) == {63}
    assert set(down.hop_limit.tolist()) == {62}
    starts = [int(part.time_ns[0]) for part in view("staggered", "clean").files.values()]
    assert len({start // 10**6 for start in starts}) > 8


def test_every_port_has_an_address_and_one_mac_leaves_one_per_switch(tmp_path: Path) -> None:
    frames = drawn("clean")[0]
    assert len(devices(frames)) == 24
    of_switches = devices(view("one_mac", "clean").frames)
    assert len(of_switches) == 6 + 4
    write_ethers(tmp_path / "ethers", frames)
    lines = (tmp_path / "ethers").read_text().splitlines()
    assert len(lines) == 24
    assert any(line.endswith(" leaf1:swp4") for line in lines)


def test_a_written_view_is_what_tshark_reads(
    tmp_path: Path, need_tool: Callable[[str], str]
) -> None:
    tshark = need_tool("tshark")
    part = view("one_mac", "clean")
    part.snap = 64
    part.files = {name: frames.take(np.arange(500)) for name, frames in part.files.items()}
    (path,) = part.write(tmp_path)
    fields = ["eth.src", "eth.dst", "ip.ttl", "frame.cap_len", "frame.number"]
    command = [tshark, "-r", path, "-T", "fields", *(word for f in fields for word in ("-e", f))]
    rows = subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()
    assert len(rows) == 500
    for row, data in zip(rows, part.files["mirror"].data, strict=True):
        src, dst, _, kept, _ = row.split("\t")
        assert (src, dst) == (data[6:12].tobytes().hex(":"), data[:6].tobytes().hex(":"))
        assert int(kept) <= 64


# Runs.


@pytest.mark.parametrize("kind", first(4, KINDS))
def test_the_truth_of_a_simulated_run(kind: str) -> None:
    frames, truth = drawn(kind)
    assert len(set(frames.link.tolist())) == 12
    assert bool(truth["expected"]) != kind.startswith("clean")
    whole = view("links", kind)
    for fault in truth["expected"]:
        assert evidence(whole, fault), fault
        if fault["count"] == "lost" and fault["to_taps"] and not frames.is_ipv6.any():
            assert _not_seen_again(frames, fault) == fault["packets"]


def _not_seen_again(frames: Frames, fault: dict[str, Any]) -> int:
    """Packets of the victims at the taps before the fault that no tap after it has."""
    numbers = {name: [LINKS.index(tap) for tap in fault[f"{name}_taps"]] for name in ("from", "to")}
    keys = np.stack([frames.flow, frames.psn, frames.opcode, frames.number(18, 2)], axis=1)
    after = set(map(tuple, keys[np.isin(frames.link, numbers["to"])].tolist()))
    flows = {
        (int(src[-1]) << 28) | (int(dst[-1]) << 24) | qp for src, dst, qp, _ in fault["affected"]
    }
    before = keys[np.isin(frames.link, numbers["from"]) & np.isin(frames.flow, list(flows))]
    return sum(tuple(key) not in after for key in before.tolist())


def test_flows_that_a_queue_delays_are_affected() -> None:
    frames, truth = drawn("slow-link")
    fault = {**truth["expected"][0], "affected": truth["expected"][0]["affected"][:1]}
    add_delayed(frames, fault)
    flows = {tuple(flow[:3]) for flow in fault["affected"]}
    assert flows >= {tuple(flow[:3]) for flow in truth["expected"][0]["affected"]}
    assert len({HOSTS[int(host_of(src)[1:])] for src, *_ in flows}) == 1


def test_the_truth_of_the_bundled_runs() -> None:
    """The numbers of tests/data/README.md."""
    lost = {}
    for name, folder in BUNDLED.items():
        faults = bundled_truth(name, read_frames(folder))["expected"]
        lost[name[:3]] = [(f["packets"], len(f["affected"])) for f in faults if f["required"]]
    assert lost["r01"] == []
    assert lost["r03"] == [(71, 3)]
    assert [packets for packets, _ in lost["r09"]] == [609]
