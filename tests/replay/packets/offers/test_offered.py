"""Units of generated queue pairs carry what the engine sends."""

from __future__ import annotations

import numpy as np
import pytest

from rocescope.replay.compare.prepared import PreparedReplay
from rocescope.replay.compare.request import ReplayRequest
from rocescope.replay.fabrics.parse import parse_fabric
from rocescope.replay.generate.from_pattern import generate, offered_traffic
from rocescope.replay.generate.patterns.demands import Settings
from rocescope.replay.generate.queue_pairs import Sending
from rocescope.replay.hashing.keys import PacketKeys
from rocescope.replay.jobs.offered import offer_jobs
from rocescope.replay.jobs.spec import parse_jobs
from rocescope.replay.packets.model.model import Model
from rocescope.replay.packets.offers.collectives import collective
from rocescope.replay.packets.offers.offered import units_of

SPEC = "leaf-spine:leaves=2,spines=2,hosts=4,rate=100G"
FABRIC = parse_fabric(SPEC)


@pytest.mark.parametrize("every", [1, 4])
def test_units_have_the_packets_and_acks_of_their_messages(every: int) -> None:
    model = Model(payload_bytes=1000, header_bytes=50, ack_bytes=70, ack_every=every)
    load = collective("permutation", FABRIC, model, 4500, 1, messages=3)
    n, acks = len(load.src), 3 * -(-5 // every)
    assert load.traffic.packets.tolist() == [15] * n + [acks] * n
    assert load.traffic.wire_bytes.tolist() == [3 * (4500 + 5 * 50)] * n + [acks * 70] * n
    assert load.traffic.wire_bytes[:n].sum() == load.message_bytes().sum()
    assert (load.traffic.src_host[:n] == load.src).all()
    assert (load.traffic.src_host[n:] == load.dst).all()
    (job,) = parse_jobs(["collective=ring,workers=4,size=40kB"])(FABRIC, 1)
    ring = offer_jobs([job], FABRIC, model, 1).workload
    data = np.bincount(ring.flow, ring.message_bytes())
    assert ring.traffic.wire_bytes[: len(data)].tolist() == data.tolist()


@pytest.mark.parametrize("messages", [1, 3])
def test_units_are_those_of_the_packets_that_generate_writes(messages: int) -> None:
    """Row by row: addresses, ports, queue pairs, hosts and times, data first."""
    settings = Settings(8, 4500, messages, 100, None, 0.5, 10**11)
    pairs = generate("all-to-all", settings, Sending(qps=2, round_trip_ns=5_000), 7)
    n = len(pairs)
    expected = offered_traffic(pairs, FABRIC.addresses).take(
        np.concatenate([2 * np.arange(n), 2 * np.arange(n) + 1])
    )
    flow = np.repeat(np.arange(n), messages)
    units = units_of(pairs, FABRIC.addresses, flow, pairs.message_bytes[flow], Model())
    for name in PacketKeys._fields:
        assert (getattr(units.keys, name) == getattr(expected.keys, name)).all(), name
    for name in ("src_host", "dst_host", "flow", "first_ns", "last_ns", "has_data"):
        found, wanted = getattr(units, name), getattr(expected, name)
        assert (found == wanted).all() and found.dtype == wanted.dtype, name


@pytest.mark.parametrize("pattern", ["incast:fan-in=7,message-size=100kB", ""])
def test_links_of_acks_alone_have_their_fair_share(pattern: str) -> None:
    """Hosts without a choice of links load each of them exactly as an even split would."""
    request = ReplayRequest(
        fabric=SPEC,
        pattern=pattern,
        jobs=() if pattern else ("collective=tree,workers=8,size=100kB",),
        strategies=("switch-rr",),
        packets=True,
    )
    result, _ = PreparedReplay(request).by_packets(["switch-rr"])
    (one,) = result.strategies
    shares = {link.name: link.over_mean for link in one.links if link.over_mean is not None}
    hosts = [share for name, share in shares.items() if "host" in name]
    assert len(hosts) == 16 and hosts == pytest.approx([1.0] * 16)
    assert max(shares.values()) < 1.5
