"""A real incast: three hosts send to a fourth whose link is slow, captured and replayed.

    python benchmarks/reproductions/incast.py

In `tests/data/lab_incast`, a run of the fault lab (namespaces of Linux routers, hosts with
go-back-N), 24 queue pairs of H1, H2 and H3 send to H4. The port of leaf2 to H4 has a rate and a
queue (`port.json`: what was configured, and what the router counted). Every frame that came to
leaf2 for H4 is offered at its time, those that hosts retransmitted too; beside the capture behind
the port stand the engine's drops, waits, and completion times of messages.
"""

from __future__ import annotations

import json

import numpy as np
from bands import Bands
from limited_port import DATA, Frames, compared, frames, replayed, table

from rocescope.analyzer.wire import bth as opcodes
from rocescope.kernels.kernel import Ints

RUN = DATA / "lab_incast"
BEFORE = ("H3-leaf2", *(f"leaf2-spine{spine}" for spine in range(1, 5)))
TO = "10.2.4."


def main() -> None:
    port = json.loads((RUN / "port.json").read_text())
    before = [table(RUN / f"{name}.pcap.xz", TO) for name in BEFORE]
    entering = frames(before, table(RUN / "H4-leaf2.pcap.xz", TO))
    limit, bands = port["limit_bytes"], Bands()
    ours = replayed(entering, port["rate_bits_per_second"], limit)
    compared(entering, ours, limit, port["dropped"], bands, 0.02)
    bands.holds("the queue drops a third of the frames", (ours < 0).mean() > 0.3)
    messages(entering, ours, bands)
    bands.end()


def messages(entering: Frames, ours: Ints, bands: Bands) -> None:
    """Completion times of messages, from the first frame at the port until the last one is through
    for the first time. A frame that only the engine drops is not retransmitted: hosts reacted to
    the real drops."""
    number = message_of(entering)
    known = number >= 0
    begun = np.full(int(number.max()) + 1, np.iinfo(np.int64).max)
    np.minimum.at(begun, number[known], entering.time_ns[known])
    ends = [completed(entering, number, through) for through in (entering.left_ns, ours)]
    whole = (ends[0] >= 0) & (ends[1] >= 0)
    seen, engine = ((end - begun)[whole] / 1e6 for end in ends)
    print(f"{len(begun):,} messages: {', '.join(str(int((e >= 0).sum())) for e in ends)} complete, "
          f"{int(whole.sum())} in both")  # fmt: skip
    for name, share in (("median", 50), ("99th percentile", 99), ("longest", 100)):
        of = [float(np.percentile(x, share)) for x in (seen, engine)]
        print(f"{f'completion, {name}, ms':28}{of[0]:12,.1f}{of[1]:12,.1f}")
        bands.within(f"completion, {name}: replayed over observed", of[1] / of[0], 0.97, 1.03)
    off = np.abs(engine - seen)
    near = float((off < 5).mean())
    print(f"difference per message: median {np.median(off):.2f} ms, below 5 ms: {near:.0%}")
    bands.within("messages complete in both", float(whole.sum()), 40, len(begun))
    bands.within("share of messages with a difference below 5 ms", near, 0.9, 1)


def message_of(entering: Frames) -> Ints:
    """Message of each frame; -1 for ACKs. A retransmitted frame has the message of its PSN."""
    rows = entering.table
    kind = opcodes.OPCODE_CLASS[rows["opcode"].astype(np.int64)]
    found = np.full(len(kind), -1, np.int64)
    of_psn: dict[tuple[str, int, int], int] = {}
    running: dict[tuple[str, int], int] = {}
    count = 0
    for row in np.flatnonzero(kind & opcodes.REQUEST).tolist():
        pair = str(rows["src"][row]), int(rows["dest_qp"][row])
        psn = (*pair, int(rows["psn"][row]))
        if psn not in of_psn:
            if kind[row] & opcodes.BEGINS or pair not in running:
                running[pair] = count
                count += 1
            of_psn[psn] = running[pair]
        found[row] = of_psn[psn]
    return found


def completed(entering: Frames, number: Ints, through: Ints) -> Ints:
    """ns: when every PSN of each message was through the port once; -1: never."""
    rows = entering.table
    first: dict[tuple[int, int], int] = {}
    for row in np.flatnonzero(number >= 0).tolist():
        key = int(number[row]), int(rows["psn"][row])
        time = int(through[row])
        known = first.get(key, -1)
        first[key] = time if known < 0 else min(known, time) if time >= 0 else known
    end = np.full(int(number.max()) + 1, -2, np.int64)
    for (message, _), time in first.items():
        end[message] = -1 if time < 0 or end[message] == -1 else max(end[message], time)
    return end


if __name__ == "__main__":
    main()
