"""Cables fail: disciplines under routing that converges at once, late or never.

    python benchmarks/reproductions/failures.py [--seeds 4]

128-host fat tree, 1 MiB permutation, ideal recovery, hosts send at rho_max (arXiv 2507.21372,
section 6). G: routing convergence. The paper has no numbers in its text, but an order: with
slow convergence adaptive hosts win; with G = 0 hosts and switches are similar at all rates of
failure. Printed: completion over the bound at that rate (first table, 1 percent of the cables) and
over the best completion without failures (second table). Writes docs/reproductions/failures.svg.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from bands import Bands
from common import FABRICS
from published_plots import log_log_plot
from reactive import BUFFER, Run, run_reactive

from rocescope.replay.fabrics.fabric import Fabric
from rocescope.replay.fabrics.parse import parse_fabric
from rocescope.replay.packets.bounds import bounds
from rocescope.replay.packets.failures import Failures, random_cables, rho_max
from rocescope.replay.packets.hosts.transport import Transport
from rocescope.replay.packets.model.model import Model
from rocescope.replay.packets.offers import collective

NAMES = ("reps", "bitmap", "host-spray", "adaptive", "switch-rr", "ofan")
ADAPTIVE_HOST, SWITCHES = "reps", ("adaptive", "switch-rr", "ofan")
CONVERGENCE_US: tuple[int | None, ...] = (0, 5, 10, 20, 50, None)
SHARES = (0.0, 0.005, 0.01, 0.02, 0.04)
SIZE = 1 << 20
MARKS = BUFFER // 10
MODEL = Model(buffer_bytes=BUFFER, ecn_low_bytes=MARKS, ecn_high_bytes=MARKS)
RTO_PS = 30_000_000
"""Ideal recovery needs none; the selection of entropy values learns by it (assumed)."""


class Case(NamedTuple):
    """One cell of a table."""

    strategy: str
    convergence_us: int | None
    share: float


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--seeds", type=int, default=4)
    seeds = range(1, parser.parse_args().seeds + 1)
    fabric = parse_fabric(FABRICS["ft128"])

    over = _completions([Case(n, g, 0.01) for n in NAMES for g in CONVERGENCE_US], fabric, seeds)
    heads = ["never" if g is None else f"G={g}us" for g in CONVERGENCE_US]
    print(f"1% of cables down: completion over the bound, mean of {len(seeds)}")
    print(f"{'':12}" + "".join(f"{head:>9}" for head in heads))
    by_name = dict(zip(NAMES, over[1].reshape(len(NAMES), -1).tolist(), strict=True))
    for name, row in by_name.items():
        print(f"{name:12}" + "".join(f"{value:9.3f}" for value in row))
    bands = Bands()
    for at, us in enumerate(CONVERGENCE_US[:2]):
        alike = [row[at] for row in by_name.values()]
        bands.within(f"G = {us} us: worst over best", max(alike) / min(alike), 1, 1.06)
    best_switch = min(by_name[name][-1] for name in SWITCHES)
    never = by_name[ADAPTIVE_HOST][-1] / best_switch
    bands.within("never converged: adaptive hosts over the best switches", never, 0, 0.8)
    for at in (0, -1):
        best = min(SWITCHES, key=lambda name: by_name[name][at])
        print(
            f"{heads[at]}: {ADAPTIVE_HOST} {by_name[ADAPTIVE_HOST][at]:.3f}, "
            f"best switches ({best}) {by_name[best][at]:.3f}"
        )
    _plot(by_name)

    done = _completions([Case(n, 0, share) for n in NAMES for share in SHARES], fabric, seeds)[0]
    rows = done.reshape(len(NAMES), -1) / done.reshape(len(NAMES), -1)[:, 0].min()
    print("\nG=0: completion over the best without failures, by share of cables down")
    print(f"{'':12}" + "".join(f"{share:9.1%}" for share in SHARES))
    for name, row in zip(NAMES, rows, strict=True):
        print(f"{name:12}" + "".join(f"{value:9.3f}" for value in row))
    for share, column in list(zip(SHARES, rows.T, strict=True))[1:]:
        bands.within(
            f"G = 0, {share:.1%} down: worst over best", column.max() / column.min(), 1, 1.06
        )
    bands.end()


def _completions(
    cases: Sequence[Case], fabric: Fabric, seeds: Sequence[int]
) -> tuple[np.ndarray, np.ndarray]:
    """(completion in us, completion over the bound at rho_max) of every case, mean of the seeds."""
    runs, bound_us = [], []
    for case in cases:
        for seed in seeds:
            load = collective("permutation", fabric, MODEL, SIZE, seed)
            events = random_cables(fabric, case.share, seed)
            after = fabric.down([event.link for event in events])
            rate = rho_max(after, load.src, load.dst)
            transport = Transport(recovery="ideal", rate_share=rate, rto_ps=RTO_PS)
            g = case.convergence_us
            failures = Failures(events, None if g is None else g * 1_000_000)
            runs.append(Run(case.strategy, MODEL, load, fabric, seed, transport, failures))
            plain = bounds(load, fabric, MODEL).completion_ps
            sending = int(load.packets.max()) * int(load.packet_bytes.max()) * 10
            bound_us.append((plain + sending * (1 / rate - 1)) / 1e6)
    done = np.array([(result.completion_ps or np.nan) / 1e6 for result in run_reactive(runs)])
    over = done / np.array(bound_us)
    shape = (len(cases), len(seeds))
    return done.reshape(shape).mean(1), over.reshape(shape).mean(1)


def _plot(by_name: dict[str, list[float]]) -> None:
    labels = {1.0 if g == 0 else g or 200.0: str(g or "never") for g in CONVERGENCE_US}
    labels[1.0] = "0"
    log_log_plot(
        "failures",
        "1 % of the cables down: completion above the bound",
        ("routing converges after us", "percent"),
        [(name, list(labels), [100 * (v - 1) for v in row]) for name, row in by_name.items()],
        labels,
    )


if __name__ == "__main__":
    main()
