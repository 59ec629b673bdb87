"""A captured Soft-RoCE run under every strategy, in one table.

    python benchmarks/reproductions/captured_run.py [CAPTURE ...]

Default: the captures beside the four hosts of a leaf-spine of Linux routers (tests/data). They are
offered as fast as possible on the fabric they come from, its uplinks carrying what the hosts do and
no more, and on planes; and every packet at its time. `-`: it does not fit; why is said below.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path

from bands import Bands

from rocescope.replay.compare.prepared import PreparedReplay
from rocescope.replay.compare.request import ReplayRequest
from rocescope.replay.results import ReplayResult, StrategyResult

RUN = Path(__file__).resolve().parents[2] / "tests" / "data" / "leafspine" / "r01_clean_write"
BUNDLED = sorted(RUN.glob("H*.pcap.xz"))
SLOW = "leaf-spine:leaves=2,spines=4,hosts=2,rate=1G,oversubscription=1"
TIGHT = "leaf-spine:leaves=2,spines=4,hosts=2,oversubscription=1"
PLANES = "multi-plane:planes=4,leaves=2,spines=4,hosts=2,rate=100G,oversubscription=1"
PACKETS = ("host-spray", "switch-random", "switch-rr", "jsq", "adaptive", "host-dr", "ofan", "reps")
COLUMNS = (
    ("as fast as possible", TIGHT, "asap"),
    ("on four planes", PLANES, "asap"),
    ("at its times", SLOW, "captured"),
)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("captures", nargs="*", type=Path)
    files = parser.parse_args().captures or BUNDLED
    begin, rows = time.perf_counter(), {}
    results = []
    for title, spec, offer in COLUMNS:
        request = ReplayRequest(
            spec,
            ("all",),
            tuple(map(str, files)),
            map="order",
            packets=True,
            lossless="infinite",
            offer=offer,
        )
        found, _ = PreparedReplay(request).by_packets(request.strategies)
        results.append(found)
        rows.update({one.name: None for one in found.strategies})
        print(f"{title}: {spec}")
    titles = [title for title, _, _ in COLUMNS]
    print(f"\n{'':16}" + f" |{titles[0]:^22} |{titles[1]:^22} |{titles[2]:>13}")
    head = f"{'queue':>6}{'late':>7}"
    print(f"{'':16} |{'us':>9}{head} |{'us':>9}{head} |{head}")
    for name in rows:
        fast, planes, timed = (cells(found, name) for found in results)
        print(f"{name:16} |{fast} |{planes} |{timed[9:]}")
    bounds = [found.strategies[0].lower_bound_ns for found in results]
    print(f"{'lower bound':16} |{microseconds(bounds[0])}{'':13} |{microseconds(bounds[1])}")
    print("queue: the largest in packets; late: reordered packets as the analyzer counts them")
    took = {microseconds(one.completion_time_ns).strip() for one in results[2].strategies}
    print(
        f"at its times: completed after {' or '.join(sorted(took))} us, "
        f"bound {bounds[2] / 1e3:.0f} us"
    )
    for (title, _, _), found in zip(COLUMNS, results, strict=True):
        for warning in found.warnings:
            if warning.startswith("left out: "):
                print(f"- {title}: {warning.removeprefix('left out: ')}")
    print(f"\n{time.perf_counter() - begin:.0f} s")
    if files == BUNDLED:
        check(results[0])


def check(found: ReplayResult) -> None:
    """Packet schemes on one plane are alike and near the bound, whole flows are not."""
    bands, over = Bands(), {}
    for one in found.strategies:
        over[one.name] = (one.completion_time_ns or 0) / (one.lower_bound_ns or 1)
    sprayed = [over[name] for name in PACKETS]
    bands.within("packet schemes: slowest over fastest", max(sprayed) / min(sprayed), 1, 1.01)
    bands.within("packet schemes: slowest over the bound", max(sprayed), 1, 1.07)
    bands.within("ecmp over the bound", over["ecmp"], 1.2, 1.6)
    bands.end()


def cells(found: ReplayResult, name: str) -> str:
    """Completion, largest queue in packets, packets out of order of one strategy."""
    one = next((each for each in found.strategies if each.name == name), None)
    if one is None or one.packets is None:
        return f"{'-':>9}{'-':>6}{'-':>7}"
    return f"{microseconds(one.completion_time_ns)}{one.max_queue_packets:6}{late(one):>7}"


def late(one: StrategyResult) -> str:
    order = one.packets.received if one.packets else None
    return "-" if order is None else f"{order.reordered_percent:.1f} %"


def microseconds(value_ns: float | None) -> str:
    if value_ns is None:
        return f"{'-':>9}"
    return f"{value_ns / 1e3:9.{1 if value_ns < 1e7 else 0}f}"


if __name__ == "__main__":
    main()
