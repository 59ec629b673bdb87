"""`replay --packets`: the packet-level replay, and its options."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...analyzer.errors import UsageError
from ...analyzer.units import parse_size
from ..options.output import whole_file
from ..options.progress import ProgressAs
from ..options.steps import steps_shown
from .failure_options import parse_conditions
from .traffic_source import Source

if TYPE_CHECKING:
    from ...replay.compare.packets import Load
    from ...replay.fabrics.fabric import Fabric
    from ...replay.packets.model.model import EngineResult, Model
    from ...replay.results.replay import ReplayResult

_SIZES = {
    "mtu": "payload_bytes",
    "header": "header_bytes",
    "ack": "ack_bytes",
    "gap": "gap_bytes",
    "buffer": "buffer_bytes",
    "trim": "trim_bytes",
}
KEPT_BYTES = 128
"""Of every frame in a pcap of received packets: all headers, as `generate` keeps them."""
KEYS = (*_SIZES, "ack-every", "ecn", "offer")


def parse_model(text: str) -> tuple[Model, bool]:
    """(model, whether captured traffic is offered at its times) from `buffer=800kB,ecn=80kB+320kB`.

    UsageError names the key and what it takes.
    """
    from ...analyzer.key_values import parse_options
    from ...replay.packets.model.model import Model

    options = parse_options(text, "--model")
    for key in options:
        if key not in KEYS:
            raise UsageError(f"--model has no {key!r}; it has {', '.join(KEYS)}")
    values: dict[str, Any] = {}
    for key, field in _SIZES.items():
        if key in options:
            where = f"--model: {key}"
            values[field] = 0 if options[key] == "0" else parse_size(options[key], where)
    if "ack-every" in options:
        number = options["ack-every"]
        if not number.isascii() or not number.isdecimal():
            raise UsageError(f"--model: ack-every={number} is not a whole number")
        values["ack_every"] = int(number)
    if "ecn" in options:
        low, plus, high = options["ecn"].partition("+")
        values["ecn_low_bytes"] = parse_size(low, "--model: ecn")
        values["ecn_high_bytes"] = (
            parse_size(high, "--model: ecn") if plus else parse_size(low, "--model: ecn")
        )
    offer = options.get("offer", "captured")
    if offer not in ("captured", "asap"):
        raise UsageError(f"--model: offer={offer}: use captured (times of the capture) or asap")
    try:
        model = Model(**values)
    except UsageError as error:
        raise UsageError(_with_keys(str(error))) from None
    if model.trim_bytes is not None:
        packet = model.payload_bytes + model.header_bytes
        if model.buffer_bytes is None:
            raise UsageError("--model: trim needs buffer: queues without a limit trim nothing")
        if model.trim_bytes >= packet:
            raise UsageError(f"--model: trim must be less than a packet of {packet:,} B")
    return model, offer == "captured"


def _with_keys(text: str) -> str:
    """What is wrong with a model, in the words of the option."""
    for key, field in {**_SIZES, "ack-every": "ack_every"}.items():
        text = text.replace(field, key)
    return f"--model: {text}"


def by_packets(
    source: Source,
    fabric: Fabric,
    strategies: Sequence[str],
    model: str,
    runs: int,
    seed: int,
    progress: ProgressAs,
    received: Path | None,
    transport: str | None = None,
    fail: Sequence[str] = (),
    converge: str = "never",
) -> tuple[ReplayResult, bool]:
    """The result, and whether all runs finished. UsageError when the parts do not fit.

    received: a pcap of the data packets as the first strategy delivered them in the first run.
    """
    from ...replay.compare.packets import check_runs, replay_packets
    from ...replay.strategies.registry import ALL, expanded, parse_packet_strategy

    check_runs(runs)
    if not 0 <= seed < 1 << 48:
        raise UsageError(f"--seed must be 0 to 2^48 - 1, not {seed}")
    chosen = [parse_packet_strategy(text) for text in expanded(strategies, packets=True)]
    sizes, as_captured = parse_model(model)
    under = parse_conditions(transport or "", fail, converge, fabric)
    if source.pattern is not None and "offer=" in model:
        raise UsageError("--model: offer is for captures; patterns are sent as fast as possible")
    load = source.loads(fabric, sizes, as_captured, progress)

    def write(one: Load, result: EngineResult) -> None:
        from ...replay.generate.pcap_writer import write_pcap
        from ...replay.packets.received.received import received_packets
        from ...replay.packets.received.received_pcap import write_received

        assert received is not None
        with whole_file(received) as file:
            if one.pairs is None:
                write_received(file, one.workload, result)
                return
            packets = received_packets(one.workload, result)
            write_pcap(file, one.pairs, fabric.addresses, KEPT_BYTES, None, [packets])

    with steps_shown(progress) as tell:
        result, complete = replay_packets(
            load,
            fabric,
            chosen,
            sizes,
            source.names,
            runs=runs,
            seed=seed,
            progress=tell,
            first=write if received is not None else None,
            conditions=under,
            leave_out=ALL in strategies,
        )
    return result, complete
