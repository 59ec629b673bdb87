"""Rings of ranks, written out packet by packet: who sends what when is known."""

from __future__ import annotations

from traffic import packets

from rocescope.analyzer.measures.measuring import Measuring
from rocescope.analyzer.measures.messages import MessageTimes
from rocescope.analyzer.results.flow import Owner
from rocescope.analyzer.summary.ranks import ranks_of
from rocescope.analyzer.summary.summarize import Summary
from rocescope.analyzer.wire.registry import Registry
from rocescope.analyzer.wire.taps import Tap

FIRST, LAST, ONLY = 0x06, 0x08, 0x0A  # RC RDMA WRITE
STEP_NS, HOLD_NS, GAP_NS = 100_000, 10_000, 20_000_000


def ring(ranks, rounds, arrival, steps=3, hold=lambda rank: HOLD_NS):
    """Rows of messages of two packets: send i of a rank follows its receive i - 1.

    arrival(rank, round): ns after the start of the round.
    """
    rows, psn = [], 0
    for number in range(rounds):
        begin = 1_000_000_000 + number * GAP_NS
        ready = [begin + arrival(rank, number) for rank in range(ranks)]
        for _ in range(steps):
            ends = []
            for rank in range(ranks):
                sent = ready[rank]
                ends.append(sent + STEP_NS)
                for at, opcode, time in ((0, FIRST, sent), (1, LAST, sent + STEP_NS)):
                    rows.append(message(rank, (rank + 1) % ranks, psn + at, opcode, time))
            ready = [max(ends[rank - 1], ends[rank]) + hold(rank) for rank in range(ranks)]
            psn += 2
    return rows


def message(src, dst, psn, opcode, time, qp=None):
    """A data packet from host to host; the queue pair has the number of its sender."""
    return {
        "src": src,
        "dst": dst,
        "dest_qp": 0x100 + src if qp is None else qp,
        "psn": psn,
        "opcode": opcode,
        "time_ns": time,
        "payload_bytes": 1024,
        "wire_bytes": 1090,
    }


def measured(rows, owner_of=None, most=1 << 20):
    """The ranks of rows, host i is rank i; owner_of: (src, dst) to ranks of a flow."""
    registry = Registry()
    registry.taps.add(Tap("tap", 1))
    for host in range(1 + max(max(row["src"], row["dst"]) for row in rows)):
        registry.endpoints.add(f"10.0.0.{host}")
    measuring = Measuring(1_000_000, many_taps=False)
    measuring.message_times = MessageTimes(most)
    measuring.update(packets(sorted(rows, key=lambda row: row["time_ns"])))
    owners = {}
    for number, flow in enumerate(measuring.tracker.flows):
        src, dst = int(flow["src"]), int(flow["dst"])
        sender, receiver = (src, dst) if owner_of is None else owner_of(src, dst)
        owners[number] = Owner(1, None, sender, "source", comm="0xa", peer_rank=receiver)
    flows = Summary(measuring, registry, "entropy", owners).flows()
    return ranks_of(flows, measuring.message_times)
