"""Traffic and fabric as `replay` and `sweep` are told of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from ...analyzer.errors import UsageError
from ...analyzer.units import parse_duration, parse_size
from ..options.inputs import check_inputs, input_name
from ..options.progress import ProgressAs, shown

if TYPE_CHECKING:
    from ...replay.compare.packets import Load
    from ...replay.fabrics.fabric import Fabric
    from ...replay.generate.queue_pairs import QueuePairs
    from ...replay.packets.model.model import Model
    from ...replay.traffic.traffic import Traffic

_COUNTS = ("hosts", "qps", "messages", "spray", "flows", "fan-in", "seed")


@dataclass(frozen=True)
class Source:
    """Where traffic comes from: captures, or a pattern that is generated."""

    files: Sequence[Path]
    pattern: str | None
    map: str = "exact"
    filter: str | None = None
    concat: bool = False
    window: str | None = None

    @property
    def names(self) -> list[str]:
        """For the report."""
        return [self.pattern] if self.pattern else [input_name(path) for path in self.files]

    def read(self, fabric: Fabric, progress: ProgressAs, *, messages: bool = False) -> Traffic:
        """The traffic on the hosts of a fabric; messages: one by one, in place of windows."""
        if bool(self.files) == (self.pattern is not None):
            raise UsageError("give captures, or --pattern for traffic without a capture")
        window_ns = parse_duration(self.window, "--window") if self.window else None
        if self.pattern is not None:
            self._only_pattern()
            return _generated(self.pattern, fabric, window_ns)
        check_inputs(self.files)
        if self.filter is not None:
            from ...analyzer.filtering import compile_filter

            compile_filter(self.filter)

        from ...analyzer.analysis.progress import Progress
        from ...replay.traffic.observed import traffic_from_capture

        with shown(progress) as report:

            def tell(done: int, total: int | None) -> None:
                if report is not None:
                    report(Progress(self.names[0], done, total, 0, 0))

            return traffic_from_capture(
                self.names,
                fabric,
                self.map,
                window_ns=None if messages else window_ns,
                filter=self.filter,
                concat=self.concat,
                messages=messages,
                progress=tell,
            )

    def _only_pattern(self) -> None:
        if self.map != "exact" or self.filter or self.concat:
            raise UsageError("--map, --filter and --concat are for captures")

    def loads(
        self, fabric: Fabric, model: Model, as_captured: bool, progress: ProgressAs
    ) -> Callable[[int], Load]:
        """What the packet engine offers in run r: the pattern with its seed + r, or the capture."""
        from ...replay.compare.flows import mapped
        from ...replay.compare.packets import Load
        from ...replay.packets.offers.captured import captured
        from ...replay.packets.offers.collectives import ITERATED, from_queue_pairs

        if self.pattern is None:
            if self.window and not as_captured:
                raise UsageError("--window is for packets at their times, not for offer=asap")
            window_ns = parse_duration(self.window, "--window") if self.window else None
            traffic, warnings = mapped(self.read(fabric, progress, messages=True), fabric)
            workload, notes = captured(traffic, model, as_captured=as_captured, window_ns=window_ns)
            offered = "captured" if as_captured else "asap"
            if self.window:
                offered = f"captured, by windows of {self.window}"
            return lambda _run: Load(workload, (*warnings, *notes), offered=offered)
        if self.files:
            raise UsageError("give captures, or --pattern for traffic without a capture")
        if self.window:
            raise UsageError("--window is for captures and for whole flows, not with --packets")
        self._only_pattern()
        pattern = self.pattern

        def load(run: int) -> Load:
            name, _, rest = pattern.partition(":")
            if "messages=" not in rest:
                rest = f"{rest},messages=1"
            pairs, _ = _pairs(f"{name}:{rest}", fabric, run, model.payload_bytes)
            workload = from_queue_pairs(pairs, fabric, model, name in ITERATED)
            return Load(workload, pairs=pairs, offered="pattern")

        return load


def _generated(spec: str, fabric: Fabric, window_ns: int | None) -> Traffic:
    """`permutation:qps=4,message-size=1MiB` on the hosts of the fabric."""
    from ...replay.generate.from_pattern import offered_traffic

    pairs, acks = _pairs(spec, fabric)
    traffic = offered_traffic(pairs, fabric.addresses, window_ns)
    # Flow 2i is the data of pair i, flow 2i+1 its ACKs.
    return traffic if acks else traffic.take(traffic.flow % 2 == 0)


def _pairs(
    spec: str, fabric: Fabric, more_seed: int = 0, path_mtu: int = 4096
) -> tuple[QueuePairs, bool]:
    """(queue pairs, whether ACKs are wanted)."""
    from ...analyzer.key_values import parse_options
    from ...replay.generate.from_pattern import generate
    from ...replay.generate.patterns.demands import Settings
    from ...replay.generate.queue_pairs import Sending

    name, _, rest = spec.partition(":")
    options = parse_options(rest, f"--pattern {name}")
    for key in options:
        if key not in (*_COUNTS, "message-size", "acks"):
            known = ", ".join((*_COUNTS, "message-size", "acks"))
            raise UsageError(f"--pattern {name} has no option {key!r}; it has {known}")

    def number(key: str, default: int) -> int:
        text = options.get(key, str(default))
        if not text.isascii() or not text.isdecimal():
            raise UsageError(f"--pattern {name}: {key}={text} is not a whole number")
        return int(text)

    hosts = number("hosts", fabric.hosts)
    if hosts > fabric.hosts:
        raise UsageError(f"--pattern {name}: {hosts} hosts, but the fabric has {fabric.hosts}")
    rate = int(fabric.links.rate_bits_per_second.max())
    size = parse_size(options.get("message-size", "1MiB"), f"--pattern {name}: message-size")
    pairs = generate(
        name,
        Settings(
            hosts=hosts,
            message_bytes=size,
            messages=number("messages", 4),
            flows=number("flows", 100),
            fan_in=number("fan-in", 0) or None,
            load=0.5,
            rate_bits_per_second=rate,
        ),
        Sending(
            qps=number("qps", 1),
            entropy_values=number("spray", 1),
            rate_bits_per_second=rate,
            path_mtu=path_mtu,
        ),
        number("seed", 1) + more_seed,
    )
    acks = options.get("acks", "yes")
    if acks not in ("yes", "no"):
        raise UsageError(f"--pattern {name}: acks={acks}: use yes or no")
    return pairs, acks == "yes"
