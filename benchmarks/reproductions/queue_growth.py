"""Largest queue against message size: linear, square-root and constant families.

    python benchmarks/reproductions/queue_growth.py [--seeds 3]

A permutation on the 128-host fat tree, claims of "Load Balancing for AI Training Workloads"
(arXiv 2507.21372), section 5. First table: what the theory is about, data alone (one ACK at the
end) and hosts in random phases (they begin within one packet's time). Second: an ACK for every
packet and hosts in step, as the reference of docs/reproductions.md has it. A plot of either.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence

import numpy as np
from bands import Bands
from common import Case, run_all
from published_plots import log_log_plot

from rocescope.replay.packets.model.model import Model

PACKETS = (64, 256, 1024, 4096)
ROUND_ROBIN = "switch-rr:reshuffle=0,acks=own"
FAMILY = {
    ROUND_ROBIN: ("linear", 1.0),
    "jsq": ("linear", 1.0),
    "switch-random": ("square root", 0.5),
    "host-spray": ("square root", 0.5),
    "host-dr": ("constant", 0.0),
    "ofan": ("constant", 0.0),
}
REFERENCE = {
    ROUND_ROBIN: (150, 349, 589, 1446),
    "jsq": (28, 49, 215, 675),
    "switch-random": (22, 44, 82, 184),
    "host-dr": (7, 8, 8, 8),
    "ofan": (6, 7, 7, 7),
}
PACKET_PS = 41_600
"""Of 4,160 B at 800 Gb/s."""
DATA_ALONE = Model(ack_every=1 << 14, pfc=None)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--seeds", type=int, default=3)
    seeds = range(1, parser.parse_args().seeds + 1)
    bands = Bands()
    _print_head("data alone, hosts in random phases")
    alone = {}
    for name, (family, exponent) in FAMILY.items():
        alone[name] = _largest(name, seeds, DATA_ALONE, PACKET_PS)
        found = _print_row(name, alone[name], f"theory: {family}, {exponent:g}")
        bands.within(f"{name}: exponent of data alone", found, exponent - 0.05, exponent + 0.05)
    _plot("queue_families", "Largest queue, data alone, 128 hosts", alone)
    _print_head("an ACK for every packet, hosts in step")
    acknowledged = {}
    for name, reference in REFERENCE.items():
        acknowledged[name] = _largest(name, seeds, Model(pfc=None), 0)
        found = _print_row(name, acknowledged[name], FAMILY[name][0])
        theirs = _print_row("", reference, "reference")
        bands.within(f"{name}: exponent with ACKs", found, theirs - 0.12, theirs + 0.12)
    _plot("queue_growth", "Largest queue, ACKs for all packets, 128 hosts", acknowledged)
    bands.end()


def _largest(name: str, seeds: Sequence[int], model: Model, phases_ps: int) -> list[float]:
    """Mean of the seeds for every message size."""
    cases = [
        Case("ft128", name, "permutation", packets * 4096, seed, model, phases_ps)
        for packets in PACKETS
        for seed in seeds
    ]
    most = [result.link_max_packets.max() for result in run_all(cases)]
    return np.array(most).reshape(len(PACKETS), -1).mean(1).tolist()


def _print_head(title: str) -> None:
    print(f"\n{title}")
    print(f"{'largest queue in packets':31}{''.join(f'{p:7}' for p in PACKETS)} exponent")


def _print_row(name: str, values: Sequence[float], note: str) -> float:
    """The fitted exponent."""
    fitted = float(np.polyfit(np.log(PACKETS), np.log(values), 1)[0])
    print(
        f"{name:31}{''.join(f'{v:7.0f}' for v in values)}    {round(fitted, 2) + 0.0:.2f}  {note}"
    )
    return fitted


def _plot(name: str, title: str, lines: dict[str, list[float]]) -> None:
    log_log_plot(
        name,
        title,
        ("packets per message", "packets"),
        [(strategy.partition(":")[0], PACKETS, values) for strategy, values in lines.items()],
    )


if __name__ == "__main__":
    main()
