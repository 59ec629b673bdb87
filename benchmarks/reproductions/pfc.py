"""PFC: a victim beside an incast, pauses that spread over hops, an incast with and without PFC.

    python benchmarks/reproductions/pfc.py

Every figure has a closed form, derived here for links of one rate C, ports with a static threshold
X, and messages of W bytes on the wire. The names are those of docs/reproductions.md.

**Victim.** N hosts of a leaf send to one host of another leaf; one more host of the first leaf
sends to an idle host of the second. One uplink carries all of them, and is faster than all
together. At first N C arrive at the last switch for the receiver and C leaves, so that its port
holds X after X / ((N - 1) C); the pause works d later (two cables, a pause frame, the reaction).
Until then, t, all send at C. Afterwards the receiver's line limits the uplink: ports with the same
threshold share the queues of paused links equally, N of N + 1 shares of the uplink end at a
receiver that takes C, so the victim gets a share of C / N like everyone. It ends after t + (W - C
t) N / C, and never before its line has sent it:

    T = max(W / C, (N W - X) / C - (N - 1) d) + base,

base being the latency of a packet and its ACK. A dynamic threshold is X = alpha (F - X), so X =
alpha F / (1 + alpha), F being the shared buffer without headroom.

**Spreading.** One flow comes through a chain of switches, another from beside the receiver. Each
gets C / 2, so that every switch of the chain keeps half of what arrives, and its port holds X after
2 X bytes of the flow. A message of W bytes therefore pauses floor(W / 2 X) ports of the chain.

**Incast.** Eight hosts send W each to a ninth. It takes 8 W / C, the switch keeps what its buffer b
holds, and hosts that send once at the rate of the line lose 8 W - W - b.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from bands import Bands

from rocescope.replay.fabrics.build import build, cables, joined, numbered
from rocescope.replay.fabrics.fabric import Fabric
from rocescope.replay.fabrics.parse import parse_fabric
from rocescope.replay.packets.hosts.transport import Transport
from rocescope.replay.packets.model.model import EngineResult, Model
from rocescope.replay.packets.model.queueing import (
    BUFFER_BYTES_PER_GBPS,
    PAUSE_BYTES,
    Pfc,
    headroom_needed,
)
from rocescope.replay.packets.offers import workload_of
from rocescope.replay.packets.runs import run_packets
from rocescope.replay.strategies.registry import parse_packet_strategy

RATE, UPLINK, DELAY_NS = 100_000_000_000, 800_000_000_000, 500
C = RATE / 8e6
"""Bytes per us."""
PACKETS, PAYLOAD, PACKET = 256, 4096, 4160
W = PACKETS * PACKET
PLENTY = 200_000_000
"""A shared buffer that static thresholds never fill."""
SENDERS = 7
THRESHOLDS = (40_000, 100_000, 400_000, 1_000_000, 2_000_000, 4_000_000)
ALPHAS = (8, 64)
CHAIN, CHAIN_X = 5, 100_000
FAN_IN, BUFFER = 8, 416_000


def run(
    fabric: Fabric,
    src: Sequence[int],
    dst: Sequence[int],
    packets: int,
    model: Model,
    recovery: str = "none",
) -> EngineResult:
    """A message of so many full packets per pair, all at once."""
    size = np.full(len(src), packets * PAYLOAD)
    load = workload_of(np.array(src), np.array(dst), size, None, model)  # type: ignore[arg-type]
    transport = Transport(recovery=recovery)
    strategy = parse_packet_strategy("switch-random")
    return run_packets(load, fabric, strategy, model, 1, transport=transport)


def victim(bands: Bands) -> None:
    """The time of the victim by threshold."""
    hosts = SENDERS + 1
    fabric = parse_fabric(
        f"leaf-spine:leaves=2,spines=1,hosts={hosts},rate=100G,uplink_rate=800G,delay={DELAY_NS}ns"
    )
    src, dst = range(hosts, 2 * hosts), [0] * SENDERS + [1]
    free = BUFFER_BYTES_PER_GBPS * (hosts * RATE + UPLINK) // 10**9 - sum(
        count * headroom_needed(PACKET, 8e12 / rate, 1000 * DELAY_NS, Pfc().reaction_ps)
        for count, rate in ((hosts, RATE), (1, UPLINK))
    )
    cases = [("no PFC", Model(pfc=None), math.inf)]
    cases += [
        (f"xoff {x / 1e3:,.0f} kB", Model(pfc=Pfc(xoff_bytes=x, shared_bytes=PLENTY)), float(x))
        for x in THRESHOLDS
    ]
    cases += [(f"alpha 1/{a}", Model(pfc=Pfc(alpha=1 / a)), free / a / (1 + 1 / a)) for a in ALPHAS]
    cable = DELAY_NS / 1e3
    base = 8 * cable + PACKET / C + 2 * PACKET / (C * UPLINK / RATE)
    late = 2 * cable + Pfc().reaction_ps / 1e6 + PAUSE_BYTES / (C * UPLINK / RATE)
    print(f"{SENDERS}:1 incast and a victim, {W / 1e6:.2f} MB each: completion in us")
    print(f"{'':16}{'incast':>9}{'victim':>9}{'formula':>9}{'off by':>9}  victims  drops")
    for name, model, x in cases:
        result = run(fabric, src, dst, PACKETS, model)
        done = result.completed_ps / 1e6
        expected = max(W / C, (SENDERS * W - x) / C - (SENDERS - 1) * late) + base
        off = done[-1] / expected - 1
        victims = result.pauses.victim_flows if result.pauses else 0
        drops = int(result.link_drops.sum())
        print(
            f"{name:16}{done[:-1].max():9.1f}{done[-1]:9.1f}{expected:9.1f}{off:9.2%}"
            f"{victims:9}{drops:7}"
        )
        bands.within(f"victim, {name}: over the formula", off, -0.01, 0.01)
        bands.within(f"incast beside a victim, {name}", done[:-1].max() * C / SENDERS / W, 1, 1.02)
        bands.holds(f"{name}: the victim is counted", victims == (result.pauses is not None))
        bands.holds(f"{name}: nothing is lost", drops == 0)


def chain() -> Fabric:
    """Switches in a row, the receiver and a sender at the first, another sender at the last."""
    switch, host = np.arange(CHAIN), CHAIN + np.arange(3)
    return build(
        "chain",
        numbered("switch", CHAIN),
        np.ones(CHAIN, np.int8),
        ["receiver", "near", "far"],
        joined(
            cables(host, np.array([0, 0, CHAIN - 1]), RATE, DELAY_NS),
            cables(switch[1:], switch[:-1], RATE, DELAY_NS),
        ),
    )


def spreading(bands: Bands) -> None:
    """Paused ports of the chain by size of the message."""
    fabric = chain()
    names = fabric.nodes.names
    model = Model(pfc=Pfc(xoff_bytes=CHAIN_X, shared_bytes=PLENTY))
    print(f"\na chain of {CHAIN} switches, xoff {CHAIN_X / 1e3:,.0f} kB: paused ports of the chain")
    print(f"{'message / 2 X':>14}{'formula':>9}{'paused':>8}  the farthest")
    for share in np.arange(0.5, CHAIN + 2).tolist():
        packets = int(share * 2 * CHAIN_X / PACKET)
        result = run(fabric, [1, 2], [0, 0], packets, model)
        assert result.pauses is not None
        paused = [
            f"{names[fabric.links.source[link]]}>{names[fabric.links.target[link]]}"
            for link in np.flatnonzero(result.pauses.pauses).tolist()
        ]
        # The port of the near sender is not of the chain.
        depth = sorted(name for name in paused if not name.startswith("near"))
        expected = min(CHAIN, math.floor(packets * PACKET / (2 * CHAIN_X)))
        hops = [f"switch{hop + 1}>switch{hop}" for hop in range(1, CHAIN)] + [f"far>switch{CHAIN}"]
        farthest = hops[len(depth) - 1] if depth else "none"
        print(f"{share:14.1f}{expected:9}{len(depth):8}  {farthest}")
        bands.holds(
            f"pauses of {share:.1f} times 2 X reach {expected} ports, hop by hop",
            depth == sorted(hops[:expected]),
        )


def incast(bands: Bands) -> None:
    """Drops and completion by switch and recovery."""
    fabric = parse_fabric(
        f"leaf-spine:leaves=1,spines=1,hosts={FAN_IN + 1},rate=100G,delay={DELAY_NS}ns"
    )
    finite = Model(buffer_bytes=BUFFER)
    cases = (
        ("PFC, alpha 1/8", Model(pfc=Pfc()), "none"),
        ("PFC, xoff 40 kB", Model(pfc=Pfc(xoff_bytes=40_000)), "none"),
        ("no recovery", finite, "none"),
        ("ideal", finite, "ideal"),
        ("sack", finite, "sack"),
        ("go-back-n", finite, "go-back-n"),
    )
    bound, lost = FAN_IN * W / C, ((FAN_IN - 1) * W - BUFFER) / PACKET
    print(f"\n{FAN_IN}:1 incast of {W / 1e6:.2f} MB each, {BUFFER / 1e3:.0f} kB without PFC")
    print(f"bound {bound:.1f} us; lost by hosts that send once: {lost:,.0f} packets")
    print(f"{'':18}{'done us':>9}{'over bound':>12}{'drops':>10}{'timeouts':>10}")
    for name, model, recovery in cases:
        result = run(fabric, range(1, FAN_IN + 1), [0] * FAN_IN, PACKETS, model, recovery)
        done, drops = (result.completion_ps or math.nan) / 1e6, int(result.link_drops.sum())
        print(f"{name:18}{done:9.1f}{done / bound:12.3f}{drops:10,}{result.timeouts:10,}")
        if model.pfc is not None:
            bands.holds(f"{name}: nothing is lost", drops == 0)
        if model.pfc is not None or recovery == "ideal":
            bands.within(f"incast, {name}: over the bound", done / bound, 1, 1.02)
        elif recovery == "none":
            bands.within("drops without recovery over 7 W - b", drops / lost, 0.98, 1.02)
        else:  # no closed form: never below the bound, and PFC drops nothing at all
            bands.within(f"incast, {name}: over the bound", done / bound, 1, 100)
            bands.holds(f"{name}: packets are lost", drops > 0)


def main() -> None:
    bands = Bands()
    victim(bands)
    spreading(bands)
    incast(bands)
    bands.end()


if __name__ == "__main__":
    main()
