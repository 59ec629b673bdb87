"""What a probe costs per packet, and how fast rings are drained: `sudo python probes_cost.py`.

Programs are timed by BPF_PROG_TEST_RUN, which adds its own loop and the call: the
empty program shows how much that is, and differs between the hooks, so what a program
costs stands raw and beyond the empty one. All programs run in turn; the smallest of the
runs is what they cost when nobody else disturbs, the median what they cost on a shared
machine.
"""

from __future__ import annotations

import os
import statistics
import struct
import threading
import time
from collections.abc import Callable

from bpf_runs import run_program
from probes_generator import frame

from rocescope.analyzer.decode.decoder import Decoder
from rocescope.analyzer.wire.packets import LINKTYPE_ETHERNET
from rocescope.analyzer.wire.registry import Registry
from rocescope.analyzer.wire.taps import Tap, Taps
from rocescope.probes import bpf
from rocescope.probes.counters.program import (
    COUNTERS,
    ORDER_BYTES,
    TALLY,
    WAYS,
    CounterMaps,
    counter_source,
    opcode_map,
)
from rocescope.probes.program.compile import known_machine_code, load
from rocescope.probes.program.program import Compiled, ProgramOptions, marked
from rocescope.probes.rings import Drain, Rings

RING_BYTES = 64 << 20
SETS = 4096  # those of the default --max-flows
REPEAT = 400_000
RUNS = 9
_EMPTY = "empty program, once more"
_NEXT = {bpf.PROG_XDP: 2, bpf.PROG_SCHED_CLS: -1}


class Bench:
    """Compiled probes with their maps."""

    def __init__(self) -> None:
        rings = Rings(range(bpf.possible_cpus()), RING_BYTES, 1)
        self.rings = rings.rings
        compiled = Compiled(ProgramOptions(), rings.maps)
        self.probes = {"xdp": compiled.load_xdp(0), "tc": compiled.load_tc(0)}

    def empty_rings(self) -> None:
        for ring in self.rings:
            ring.release(ring.head)


def empty_program(kind: int) -> int:
    """A program that only lets the frame pass."""
    code = struct.pack("<BBhi", 0xB7, 0, 0, _NEXT[kind]) + struct.pack("<BBhi", 0x95, 0, 0, 0)
    return bpf.load_program(kind, code, name="empty")


def program_costs(bench: Bench) -> None:
    roce = frame()
    other_port = roce[:36] + struct.pack(">H", 4790) + roce[38:]
    tcp = roce[:23] + b"\x06" + roce[24:]
    frames = {"TCP, ignored": tcp, "UDP, ignored": other_port, "RoCE, 128 bytes exported": roce}
    kinds = {"xdp": bpf.PROG_XDP, "tc": bpf.PROG_SCHED_CLS}
    measured = {
        ("empty program", hook): (empty_program(kind), roce) for hook, kind in kinds.items()
    }
    measured |= {
        (what, hook): (bench.probes[hook], data) for what, data in frames.items() for hook in kinds
    }
    runs: dict[tuple[str, str], list[int]] = {key: [] for key in measured}
    for _ in range(RUNS):
        for key, (program, data) in measured.items():
            runs[key].append(run_program(program, data, repeat=REPEAT).nanoseconds)
            bench.empty_rings()
    for (what, hook), costs in runs.items():
        print_cost(f"{what:28} {hook:3}", costs, runs["empty program", hook])


def print_cost(what: str, costs: list[int], empty: list[int]) -> None:
    beyond = min(costs) - min(empty)
    print(f"{what:32} {min(costs):6} {beyond:10} {statistics.median(costs):10.0f}")


def varying(call: str, mask: int) -> str:
    """An XDP program that makes every frame another queue pair's of `mask` + 1, then calls."""
    return f"""
int varied(struct xdp_md *ctx)
{{
	rs_u8 *data = (rs_u8 *)frame_data(ctx);

	if (data + 80 > frame_end(ctx))
		return XDP_NEXT;
	rs_u32 psn = load32(data + 50) + 1;
	*(rs_u32 *)(data + 46) = NET32(psn & {mask});
	*(rs_u32 *)(data + 50) = NET32(psn);
	{call}
	return XDP_NEXT;
}}
"""


class CounterBench:
    """The counting probe on frames of one or many queue pairs, with its own maps."""

    def __init__(self) -> None:
        cpus = bpf.possible_cpus()
        set_bytes = WAYS * COUNTERS.itemsize
        self._maps = CounterMaps(
            bpf.create_map(bpf.MAP_ARRAY, 4, set_bytes, cpus * SETS, flags=bpf.MAPPABLE),
            SETS,
            bpf.create_map(bpf.MAP_ARRAY, 4, WAYS * ORDER_BYTES, 2 * SETS),
            2 * SETS,
            bpf.create_map(bpf.MAP_PERCPU_ARRAY, 4, TALLY.itemsize, 1),
            opcode_map(),
        )
        source = counter_source(ProgramOptions(), self._maps)
        self._source = source.replace("int count_xdp(", "INLINE int count_one(")

    def program(self, flows: int, counted: bool = True) -> int:
        text = self._source + varying("count_one(ctx);" if counted else "", flows - 1)
        code = known_machine_code(text, ("varied",), self._maps.descriptors)["varied"]
        return load(bpf.PROG_XDP, marked(code, 0) if counted else code, "varied")


def counter_costs() -> None:
    """Counting, and the cost of making the frames differ."""
    counters = CounterBench()
    programs = {
        _EMPTY: empty_program(bpf.PROG_XDP),
        "frames changed, not counted": counters.program(1, counted=False),
    }
    for flows in (1, 1024, 8192):
        programs[f"counted, {flows} flow{'s' * (flows > 1)}"] = counters.program(flows)
    runs: dict[str, list[int]] = {what: [] for what in programs}
    for _ in range(RUNS):  # interleaved: whatever else the machine does hits all of them
        for what, program in programs.items():
            runs[what].append(run_program(program, frame(), repeat=REPEAT).nanoseconds)
    for what, costs in runs.items():
        print_cost(f"{what:28} xdp", costs, runs[_EMPTY])


def parallel_cost(bench: Bench) -> None:
    """The same export on one CPU, then on two at once."""

    def on_cpu(cpu: int, results: list[float]) -> None:
        os.sched_setaffinity(0, {cpu})
        results.append(run_program(bench.probes["xdp"], frame(), repeat=REPEAT).nanoseconds)

    cpus = sorted(os.sched_getaffinity(0))[:2]
    single, double = [], []
    for _ in range(RUNS):
        for group, results in ((cpus[:1], single), (cpus, double)):
            threads = [threading.Thread(target=on_cpu, args=(cpu, results)) for cpu in group]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            bench.empty_rings()
    one, two = statistics.median(single), statistics.median(double)
    print(f"{'export on one CPU':32} {'':17} {one:10.0f}")
    print(f"{f'export on {len(cpus)} CPUs at once':32} {'':17} {two:10.0f}")


def drain_rates(bench: Bench) -> None:
    """Million records a second: scanned in place, and decoded into packet tables."""
    taps = Taps()
    taps.add(Tap("bench", LINKTYPE_ETHERNET))
    decoder = Decoder(Registry(taps=taps))

    def fill() -> Drain:
        bench.empty_rings()
        drain = Drain(bench.rings)
        drain.warm_up(decoder)
        run_program(bench.probes["xdp"], frame(), repeat=REPEAT)
        return drain

    def seconds(use: Callable[[Drain], None]) -> float:
        runs = []
        for _ in range(RUNS):
            drain = fill()
            begin = time.thread_time()
            use(drain)
            runs.append((time.thread_time() - begin) / REPEAT)
            assert drain.frames == REPEAT
        return statistics.median(runs)

    def scan(drain: Drain) -> None:
        while drain.frames < REPEAT:
            drain.gather()
            drain.release()

    def scan_and_decode(drain: Drain) -> None:
        while drain.frames < REPEAT:
            for batch in drain.gather():
                decoder.decode(batch)
            drain.release()

    for what, use in (("drained", scan), ("drained and decoded", scan_and_decode)):
        print(f"{what + ', M records/s of CPU':50} {1e-6 / seconds(use):10.1f}")


def main() -> None:
    bench = Bench()
    print(f"{'nanoseconds per packet':32} {'raw':>6} {'beyond':>10} {'raw median':>10}")
    program_costs(bench)
    counter_costs()
    parallel_cost(bench)
    drain_rates(bench)


if __name__ == "__main__":
    main()
