"""DCQCN against its fluid model: fixed point, and how two flows come to equal rates.

    python benchmarks/reproductions/dcqcn.py [--seeds 4]

The fluid model is that of Zhu et al., SIGCOMM 2015, with a state per flow as in Zhu et al., "ECN or
Delay: Lessons Learnt from Analysis of DCQCN and TIMELY", CoNEXT 2016 (its figure of the model, the
equation of its fixed point, and its table of parameters). It is integrated here in steps of 1 us.
It has no hyper increase, and every CNP lowers the target, as `dcqcn-clamp` does; `dcqcn`, the
default of adapters, is printed beside it.

Compared: N hosts send over 40 Gb/s with the papers' parameters and packets of 1,000 B; cables of
1 us make the papers' short control loop of 4 us. All rates C / N, the queue q* and the share of
marked packets p* at the fixed point; and, where a flow of line rate meets a second one after 10 ms,
the rates of both in time. Queues of the engine are measured by the delay of packets.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Sequence
from threading import Event
from typing import NamedTuple

import numpy as np
from bands import Bands

from rocescope.kernels.kernel import Array
from rocescope.replay.fabrics.parse import parse_fabric
from rocescope.replay.packets.hosts.transport import Transport
from rocescope.replay.packets.model.model import MARKED, EngineResult, Model
from rocescope.replay.packets.offers import workload_of
from rocescope.replay.packets.runs import run_many, run_packets
from rocescope.replay.strategies.registry import parse_packet_strategy

PACKET, HEADER = 1_000, 64
RATE = 40e9
C = RATE / 8 / PACKET
"""Packets per second; all rates of the model are in packets."""
INCREASE, COUNTER, TIMER, STAGES, G = 40e6 / 8 / PACKET, 10e6 / PACKET, 55e-6, 5, 1 / 256
CNP, ALPHA_TIMER, LOOP = 50e-6, 55e-6, 4e-6
KMIN, KMAX, PMAX = 5.0, 200.0, 0.01
"""Thresholds in packets, that is kB."""
STEP = 1e-6
CABLE_PS = 1_000_000
MODEL = Model(
    payload_bytes=PACKET - HEADER,
    header_bytes=HEADER,
    ecn_low_bytes=int(KMIN * PACKET),
    ecn_high_bytes=int(KMAX * PACKET),
    ecn_most=PMAX,
    pfc=None,
)
END_MS, SETTLED_MS, BIN_MS, LATE_MS = 100, 50, 10, 10


def _kept(p: float, packets: float) -> float:
    """The chance that none of so many packets is marked."""
    return math.exp(packets * math.log1p(-p)) if p < 1 else 0.0


def _stages(p: float, packets: float) -> float:
    """Stages of so many packets that end per packet: p / ((1 - p)^-packets - 1)."""
    if p <= 0:
        return 1 / packets
    exponent = math.inf if p >= 1 else -packets * math.log1p(-p)
    return p / math.expm1(exponent) if exponent < 700 else 0.0


def _raised(p: float, rate: float) -> tuple[float, float]:
    """(stages, those beyond fast recovery) per packet, of the byte counter and of the timer."""
    counter, timer = _stages(p, COUNTER), _stages(p, TIMER * rate)
    late = _kept(p, STAGES * COUNTER) * counter + _kept(p, STAGES * TIMER * rate) * timer
    return counter + timer, late


class Flow(NamedTuple):
    """R_C, R_T and alpha of a flow of the model."""

    rate: float
    target: float
    alpha: float

    def after(self, p: float, heard: float) -> Flow:
        """A step later; p and R_C one control loop ago."""
        cuts, (stages, late) = 1 - _kept(p, CNP * heard), _raised(p, heard)
        apart = self.target - self.rate
        rate = -self.rate * self.alpha / (2 * CNP) * cuts + apart / 2 * heard * stages
        target = -apart / CNP * cuts + INCREASE * heard * late
        alpha = G / ALPHA_TIMER * (1 - _kept(p, ALPHA_TIMER * heard) - self.alpha)
        return Flow(
            min(C, self.rate + STEP * rate),
            min(C, self.target + STEP * target),
            self.alpha + STEP * alpha,
        )


def fluid(begins_ms: Sequence[float], end_ms: int) -> Array:
    """float64[steps, N]: R_C of flows that begin at the rate of the line, in packets per second."""
    begins = [round(ms / 1e3 / STEP) for ms in begins_ms]
    flows = [Flow(0.0, 0.0, 1.0)] * len(begins)
    queue, lag = 0.0, round(LOOP / STEP)
    rates = np.zeros((round(end_ms / 1e3 / STEP), len(begins)))
    marks = np.zeros(len(rates))
    for k in range(len(rates)):
        flows = [
            Flow(C, C, 1.0) if k == begin else flow
            for flow, begin in zip(flows, begins, strict=True)
        ]
        rates[k] = [flow.rate for flow in flows]
        marks[k] = min(1.0, max(0.0, (queue - KMIN) / (KMAX - KMIN) * PMAX))
        marks[k] = 1.0 if queue > KMAX else marks[k]
        queue = max(0.0, queue + STEP * (sum(flow.rate for flow in flows) - C))
        p, heard = (float(marks[k - lag]), rates[k - lag].tolist()) if k >= lag else (0.0, rates[0])
        flows = [
            flow.after(p, float(then)) if k >= begin and then > 0 else flow
            for flow, begin, then in zip(flows, begins, heard, strict=True)
        ]
    return rates


def fixed_point(n: int) -> tuple[float, float]:
    """(p*, q* in packets) for N flows at C / N, by bisection."""
    rate = C / n

    def too_few(p: float) -> bool:
        cuts, alpha = 1 - _kept(p, CNP * rate), 1 - _kept(p, ALPHA_TIMER * rate)
        stages, late = _raised(p, rate)
        return cuts**2 * alpha < CNP**2 * INCREASE * rate * stages * late

    low, high = 1e-7, 0.5
    for _ in range(60):
        middle = math.sqrt(low * high)
        low, high = (middle, high) if too_few(middle) else (low, middle)
    return low, low / PMAX * (KMAX - KMIN) + KMIN


class Run(NamedTuple):
    """A run of the engine."""

    control: str
    begins_ms: tuple[float, ...]
    seed: int


def engine(case: Run, stop: Event) -> Array:
    """float64[bins, N + 2]: rates in Gb/s, mean queue in kB and share of marked packets."""
    n = len(case.begins_ms)
    fabric = parse_fabric(f"leaf-spine:leaves=1,spines=1,hosts={n + 1},rate=40G,delay=1us")
    # At line rate as long as a flow is alone, and enough to outlast the measurement.
    size = [int(RATE / 8e3 * (LATE_MS + END_MS / (n - 0.5)))] * n
    load = workload_of(
        np.arange(n) + 1,
        np.zeros(n, np.int64),
        np.array(size),
        None,  # type: ignore[arg-type]
        MODEL,
        release_ps=(1e9 * np.array(case.begins_ms)).astype(np.int64),
    )
    transport = Transport(congestion=case.control)
    strategy = parse_packet_strategy("switch-random")
    found: EngineResult = run_packets(
        load, fabric, strategy, MODEL, case.seed, transport=transport, keep_arrivals=True,
        keep_sent=True, stop=stop,
    )  # fmt: skip
    assert found.arrived_ps is not None and found.sent_ps is not None
    assert found.arrived_flags is not None
    alone = 2 * (CABLE_PS + PACKET * 8e12 / RATE)
    waiting = (found.arrived_ps - found.sent_ps - alone) / 1e12 * RATE / 8 / 1e3
    marked = (found.arrived_flags & (MARKED >> 56)) > 0
    flow = np.repeat(load.flow, load.packets)
    rows = np.zeros((END_MS // BIN_MS, n + 2))
    for row in range(len(rows)):
        of = found.arrived_ps // (BIN_MS * 10**9) == row
        rows[row, :n] = np.bincount(flow[of], minlength=n) * PACKET * 8 / (BIN_MS * 1e6)
        rows[row, n:] = waiting[of].mean(), marked[of].mean()
    return rows


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--seeds", type=int, default=4)
    seeds = range(1, parser.parse_args().seeds + 1)
    bands = Bands()
    together: dict[int, tuple[float, ...]] = {2: (0.0,) * 2, 10: (0.0,) * 10}
    met = (0.0, float(LATE_MS))
    runs = [
        Run(control, begins, seed)
        for control in ("dcqcn-clamp", "dcqcn")
        for begins in (*together.values(), met)
        for seed in seeds
    ]
    found = dict(run_many(runs, engine))

    def mean(control: str, begins: tuple[float, ...]) -> Array:
        return np.mean(
            [found[i] for i, run in enumerate(runs) if run[:2] == (control, begins)], axis=0
        )

    settled = f"mean of {SETTLED_MS} to {END_MS} ms, {len(seeds)} seeds"
    print(f"N flows begin together, 40 Gb/s; {settled}; fixed point of the model")
    head = f"{'':14}{'N':>4}{'least rate':>12}{'most':>8}{'C/N':>8}{'queue kB':>10}{'q*':>8}"
    print(f"{head}{'marked':>9}{'p*':>9}")
    for n, begins in together.items():
        p, q = fixed_point(n)
        for control in ("dcqcn-clamp", "dcqcn"):
            row = mean(control, begins)[SETTLED_MS // BIN_MS :].mean(0)
            rates, queue, marked = row[:n], row[n], row[n + 1]
            print(
                f"{control:14}{n:4}{rates.min():12.2f}{rates.max():8.2f}{40 / n:8.2f}"
                f"{queue:10.1f}{q:8.1f}{marked:9.3%}{p:9.3%}"
            )
            bands.within(f"{control}, {n} flows: line in use", rates.sum() / 40, 0.97, 1.001)
            for what, rate in (("least", rates.min()), ("most", rates.max())):
                bands.within(f"{control}, {n} flows: {what} rate over C/N", rate * n / 40, 0.9, 1.1)
            bands.within(f"{control}, {n} flows: queue over q*", queue / q, 0.75, 1.35)

    model = fluid(met, END_MS).reshape(-1, round(BIN_MS / 1e3 / STEP), 2).mean(1) * PACKET * 8e-9
    print(f"\na flow meets a second one after {LATE_MS} ms: rates in Gb/s")
    print(f"{'ms':>8}{'fluid model':>18}{'dcqcn-clamp':>18}{'dcqcn':>18}")
    clamp, default = mean("dcqcn-clamp", met), mean("dcqcn", met)
    for row in range(len(model)):
        cells = (f"{x[row, 0]:10.1f} +{x[row, 1]:6.1f}" for x in (model, clamp, default))
        print(f"{row * BIN_MS:4}-{(row + 1) * BIN_MS:<4}{''.join(cells)}")
    for name, rows in (("fluid model", model), ("dcqcn-clamp", clamp), ("dcqcn", default)):
        late = rows[SETTLED_MS // BIN_MS :, :2].mean(0)
        bands.within(f"{name}: first over second flow in the end", late[0] / late[1], 0.8, 1.25)
        bands.within(f"{name}: line in use in the end", late.sum() / 40, 0.97, 1.001)
    bands.end()


if __name__ == "__main__":
    main()
