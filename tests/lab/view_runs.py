"""Runs scored in all views: `python -m tests.lab.view_runs`, or `make views`.

Simulated runs of every kind in turn; `--real N` adds runs of real Linux routers (root). Prints a
table of views and verdicts, then every wrong and silent view with the command that repeats it.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import random
import tempfile
from collections import Counter
from collections.abc import Iterator
from ipaddress import ip_address
from pathlib import Path
from typing import Any

import numpy as np

from rocescope.cli import run as run_command

from . import drawn
from .__main__ import draw_and_run
from .packets import links_of
from .topology import HOSTS, LEAVES, LINKS
from .verdicts import VERDICTS, Judgement, Verdict, host_of, judge, table
from .views import VIEWS, Frames, View, devices, read_frames, views_of, way

REAL_KINDS = (
    "clean", "gray-loss", "blackhole", "slow-link", "ce-marks", "rehash", "link-down", "incast",
    "outage", "clean-spraying", "host-loss", "selective-loss", "deep-queue", "clean-ipv6",
)  # fmt: skip
"""Kinds of the lab whose faults the views are judged by: losses, queues, marks, moves."""
DETAILED = ("wrong", "silent", "error")


DATA = Path(__file__).parents[1] / "data"
BUNDLED = {
    "r01_clean_write": DATA / "leafspine" / "r01_clean_write",
    "r03_link_down_reroute": DATA / "whole_leafspine" / "r03_link_down_reroute",
    "r09_packet_spray_h1": DATA / "whole_leafspine" / "r09_packet_spray_h1",
}
"""Real runs of Soft-RoCE hosts, whose faults tests/data/README.md tells."""


def bundled_truth(name: str, frames: Frames) -> dict[str, Any]:
    """The truth of a bundled run, in the form of truth.json: who lost what from its captures."""
    expected: list[dict[str, Any]] = []
    if name.startswith("r03"):
        down = _loss_at(frames, "spine2", "leaf2-spine2", "leaf1-spine2")
        expected.append(down | {"kinds": ["link-down", "outage", "blackhole"]})
        for leaf in LEAVES:
            moves: dict[str, Any] = {
                "kinds": ["rehash", "link-down"],
                "count": None,
                "required": False,
            }
            moves |= {"from_taps": links_of(leaf, "H"), "to_taps": links_of(leaf, "spine")}
            moves |= {"device": f"leaf{leaf}", "neighbours": ["spine2"], "affected": []}
            expected.append(down | moves)
    elif name.startswith("r09"):
        slow = _loss_at(frames, "spine2", "leaf1-spine2", "leaf2-spine2")
        slow |= {"set_ns": int(frames.time_ns[0]), "until_ns": None}
        expected.append(slow | {"kinds": ["rate-limit", "queueing"]})
        sprayed = [flow for flow in slow["affected"] if flow[0].startswith("10.1.1.")]
        anywhere: dict[str, Any] = {
            "from_taps": [],
            "to_taps": [],
            "device": None,
            "required": False,
        }
        anywhere |= {"count": None, "affected": sprayed, "set_ns": None, "from_ns": None}
        expected.append(slow | anywhere | {"kinds": ["reordering", "spraying"]})
    return {"kind": name, "options": [], "expected": expected}


def _loss_at(frames: Frames, device: str, before: str, after: str) -> dict[str, Any]:
    """The packets that one tap saw and the next one did not."""
    number = {link: LINKS.index(link) for link in (before, after)}
    source = frames.ends[0]
    from_leaf = np.array([0, *HOSTS.values()])[source] == int(before[4])
    rows = frames.is_roce & from_leaf
    columns = (frames.flow, frames.psn, frames.opcode, frames.number(18, 2))
    keys = np.stack(columns, axis=1)
    passed = set(map(tuple, keys[rows & (frames.link == number[after])].tolist()))
    sent = np.flatnonzero(rows & (frames.link == number[before]))
    lost = [row for row in sent.tolist() if tuple(keys[row].tolist()) not in passed]
    flows = Counter(_flow_at(frames, row) for row in lost)
    first, last = int(frames.time_ns[lost[0]]), int(frames.time_ns[lost[-1]])
    return {
        "count": "lost",
        "required": True,
        "severity": "warning",
        "from_taps": [before],
        "to_taps": [after],
        "device": device,
        "host": None,
        "capture": None,
        "set_ns": first,
        "from_ns": first,
        "until_ns": last,
        "packets": len(lost),
        "sure_packets": len(lost),
        "affected": [[*flow, packets] for flow, packets in flows.items()],
    }


def _flow_at(frames: Frames, row: int) -> tuple[str, str, int]:
    """(source, destination, destination queue pair) of a frame."""
    parts = ((22, 38), (38, 54)) if frames.is_ipv6[row] else ((26, 30), (30, 34))
    ends = [str(ip_address(frames.data[row, first:last].tobytes())) for first, last in parts]
    return ends[0], ends[1], int(frames.flow[row]) & 0xFFFFFF


QUEUES = ("rate-limit", "incast", "queueing", "collision", "pause")
"""Faults that delay all that pass, ACKs too: their flows suffer like those that lose packets."""


def add_delayed(frames: Frames, fault: dict[str, Any]) -> None:
    """The flows that pass a queue are affected, with 0 packets lost."""
    before, after = (
        np.isin(frames.link, [LINKS.index(tap) for tap in fault[f"{name}_taps"]])
        for name in ("from", "to")
    )
    named = {tuple(flow[:3]) for flow in fault["affected"]}
    passing = np.intersect1d(frames.flow[before & frames.is_roce], frames.flow[after])
    for number in passing.tolist():
        flow = _flow_at(frames, int(np.flatnonzero(frames.is_roce & (frames.flow == number))[0]))
        stages = way(host_of(flow[0]), host_of(flow[1]))
        at = [
            next(i for i, links in enumerate(stages) if set(links) & set(fault[f"{name}_taps"]))
            for name in ("from", "to")
        ]
        if at[0] < at[1] and flow not in named:
            fault["affected"].append([*flow, 0])


def judge_view(
    view: View, truth: dict[str, Any], ports: dict[str, tuple[str, str]], folder: Path
) -> Judgement:
    """The verdict of `rocescope analyze` on a view, whose files are written to the folder."""
    result = folder / "result.json"
    words = ["analyze", *view.write(folder), *truth["options"], "--format", "json"]
    said = io.StringIO()
    with contextlib.redirect_stderr(said):
        code = run_command([*words, "--progress", "none", "--output", str(result)])
    if code:
        headers = int(view.frames.headers_bytes.min())
        verdict: Verdict = "unseen" if headers > view.snap else "error"
        return Judgement(view.name, verdict, [said.getvalue().strip()])
    findings = json.loads(result.read_text())["diagnosis"]["findings"]
    return judge(view, truth, findings, ports | devices(view.frames))


def judge_run(folder: Path, wanted: list[str] | None = None) -> Iterator[Judgement]:
    """The verdicts of the views of a run: a folder with truth.json, or a bundled one."""
    frames = read_frames(folder)
    if folder.name in BUNDLED:
        truth = bundled_truth(folder.name, frames)
    else:
        truth = json.loads((folder / "truth.json").read_text())
    for fault in truth["expected"]:
        if fault["kinds"][0] in QUEUES and fault["from_taps"] and fault["to_taps"]:
            add_delayed(frames, fault)
    ports = devices(frames)
    for view in views_of(frames, folder.name, wanted):
        with tempfile.TemporaryDirectory() as temporary:
            yield judge_view(view, truth, ports, Path(temporary))


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.lab.view_runs", description=__doc__)
    parser.add_argument("first", type=int, nargs="?", default=0, help="number of the first run")
    parser.add_argument("count", type=int, nargs="?", default=30, help="number of simulated runs")
    parser.add_argument("--kind", help="only this kind instead of all in turn")
    parser.add_argument("--views", help=f"only these: {','.join(VIEWS)}; or NAME:all")
    parser.add_argument("--real", type=int, default=0, help="number of runs of the lab")
    parser.add_argument("--bundled", action="store_true", help="also the bundled real runs")
    parser.add_argument("--keep", type=Path, help="keep captures and truth.json in this folder")
    parser.add_argument("--only-score", type=Path, help="score the runs of a folder, make none")
    parser.add_argument("--show", default=",".join(DETAILED), help="verdicts to list, with reasons")
    options = parser.parse_args()
    wanted = options.views.split(",") if options.views else None
    judgements: list[tuple[str, Judgement]] = []
    with tempfile.TemporaryDirectory() as temporary:
        for folder in _folders(options, options.keep or Path(temporary)):
            found = list(judge_run(folder, wanted))
            name = f"real/{folder.name}" if folder.parent.name == "real" else folder.name
            judgements += [(name, judgement) for judgement in found]
            print(run_line(name, found), flush=True)
    print()
    print(table(judgement for _, judgement in judgements))
    print()
    for name, judgement in judgements:
        if judgement.verdict in options.show.split(","):
            print(f"{judgement.verdict} {name} {judgement.view}: {again(name, judgement.view)}")
            for reason in judgement.reasons:
                print(f"   {reason}")


def _folders(options: argparse.Namespace, folder: Path) -> Iterator[Path]:
    if options.only_score:
        for path in sorted(options.only_score.iterdir()):
            if path.name in BUNDLED or (path / "truth.json").exists():
                yield path
        return
    if options.kind is None and options.bundled:
        yield from BUNDLED.values()
    for number in range(options.first, options.first + options.count):
        yield drawn.draw_run(number, options.kind, folder)
    for number in range(options.first, options.first + options.real):
        kind = options.kind or random.Random(number).choice(REAL_KINDS)
        yield draw_and_run(number, kind, folder / "real")


def again(name: str, view: str) -> str:
    """The command that repeats a view of a run."""
    number, _, kind = name.partition("-")
    if name in BUNDLED:
        which = f"0 0 --bundled --views {view}"
    elif name.startswith("real/"):
        which = f"{int(number[5:])} 0 --real 1 --kind {kind} --views {view}"
    else:
        which = f"{int(number)} 1 --kind {kind} --views {view}"
    return f"python -m tests.lab.view_runs {which}"


def run_line(name: str, judgements: list[Judgement]) -> str:
    counts = Counter(judgement.verdict for judgement in judgements)
    return f"{name:26}" + "  ".join(f"{each} {counts[each]}" for each in VERDICTS if counts[each])


if __name__ == "__main__":
    main()
