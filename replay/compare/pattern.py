"""`--pattern`: generated traffic in place of captures."""

from __future__ import annotations

from ...analyzer.errors import UsageError
from ...analyzer.spec import parse_spec
from ...analyzer.units import parse_size
from ..fabrics.fabric import Fabric
from ..generate.from_pattern import generate, offered_traffic
from ..generate.patterns import Settings
from ..generate.queue_pairs import PATH_MTUS, QueuePairs, Sending
from ..packets.model.model import Model, Workload
from ..packets.offers import ITERATED, from_queue_pairs
from ..traffic.traffic import Traffic

_COUNTS = ("hosts", "qps", "messages", "spray", "flows", "fan-in", "seed")
KEYS = (*_COUNTS, "message-size", "acks")


def generated(spec: str, fabric: Fabric, window_ns: int | None) -> Traffic:
    """`permutation:qps=4,message-size=1MiB` on the hosts of the fabric."""
    pairs, acks = pairs_of(spec, fabric)
    traffic = offered_traffic(pairs, fabric.addresses, window_ns)
    # Flow 2i is the data of pair i, flow 2i+1 its ACKs.
    return traffic if acks else traffic.take(traffic.flow % 2 == 0)


def offered(spec: str, fabric: Fabric, model: Model, more_seed: int) -> tuple[Workload, QueuePairs]:
    """The same for the packet engine: one message per pair unless the pattern sets more."""
    pairs, _ = pairs_of(spec, fabric, more_seed, model.payload_bytes, messages=1)
    iterated = spec.partition(":")[0] in ITERATED
    return from_queue_pairs(pairs, fabric, model, iterated), pairs


def pairs_of(
    spec: str, fabric: Fabric, more_seed: int = 0, path_mtu: int = 4096, messages: int = 4
) -> tuple[QueuePairs, bool]:
    """(queue pairs, whether ACKs are generated); messages: per pair, unless the pattern says."""
    name, options = parse_spec(spec, "--pattern")
    options.check_known(KEYS, f"--pattern {name} has no option")
    hosts = options.whole("hosts", str(fabric.hosts))
    if hosts > fabric.hosts:
        raise UsageError(f"--pattern {name}: {hosts} hosts, but the fabric has {fabric.hosts}")
    rate = int(fabric.links.rate_bits_per_second.max())
    size = parse_size(options.get("message-size", "1MiB"), f"--pattern {name}: message-size")
    if path_mtu not in PATH_MTUS:
        allowed = ", ".join(map(str, PATH_MTUS))
        raise UsageError(f"--model: mtu={path_mtu}: a path MTU of RoCE is one of {allowed}")
    settings = Settings(
        hosts=hosts,
        message_bytes=size,
        messages=options.whole("messages", str(messages)),
        flows=options.whole("flows", "100"),
        fan_in=options.whole("fan-in", "0") or None,
        load=0.5,
        rate_bits_per_second=rate,
    )
    sending = Sending(
        qps=options.whole("qps", "1"),
        entropy_values=options.whole("spray", "1"),
        rate_bits_per_second=rate,
        path_mtu=path_mtu,
    )
    try:
        pairs = generate(
            name, settings, sending, options.whole("seed", "1", most=1 << 62) + more_seed
        )
    except UsageError as error:  # with the options of `rocescope generate`
        words = str(error).removeprefix(f"{name}: ").replace("--", "")
        raise UsageError(f"--pattern {name}: {words}") from None
    return pairs, options.switched_on("acks")
