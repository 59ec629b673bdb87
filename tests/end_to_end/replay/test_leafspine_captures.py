"""A real leaf-spine of Linux routers: what its hosts sent predicts what its links carried."""

from __future__ import annotations

import json
from collections import Counter
from ipaddress import ip_address
from pathlib import Path

import numpy as np
import pytest

from rocescope import analyze
from rocescope.analyzer.measures.spraying import fim
from rocescope.replay.compare.flows import replay
from rocescope.replay.fabrics.fabric import Fabric
from rocescope.replay.fabrics.parse import parse_fabric
from rocescope.replay.flows.loads import link_loads
from rocescope.replay.hashing.seeded import SeedRange
from rocescope.replay.seeds.recover import Wanted, recover_all
from rocescope.replay.seeds.tapped import Seen, directions, from_subnets, read_taps
from rocescope.replay.strategies.registry import parse_strategy
from rocescope.replay.traffic.observed import traffic_from_capture
from rocescope.replay.traffic.traffic import Traffic

SEED = 305_419_896
STRATEGY = f"ecmp:hash=linux,policy=1,seed={SEED},per-switch=equal"


@pytest.fixture(scope="module")
def run(data: Path) -> Path:
    return data / "leafspine" / "r01_clean_write"


@pytest.fixture(scope="module")
def fabric() -> Fabric:
    return parse_fabric("leaf-spine:leaves=2,spines=4,hosts=2")


@pytest.fixture(scope="module")
def traffic(run: Path, fabric: Fabric) -> Traffic:
    names = ("H1-leaf1", "H2-leaf1", "H3-leaf2", "H4-leaf2")
    paths = [str(run / f"{name}.pcap.xz") for name in names]
    return traffic_from_capture(paths, fabric, "order", window_ns=100_000_000)


@pytest.fixture(scope="module")
def seen(run: Path) -> Seen:
    return read_taps([str(run / f"leaf1-spine{i}.pcap.gz") for i in range(1, 5)])


def test_the_seed_of_the_routers_is_known(run: Path) -> None:
    sysctl = json.loads((run / "topology.json").read_text())["sysctl"]["leaf1"]
    assert f"net.ipv4.fib_multipath_hash_seed = {SEED}" in sysctl


def test_every_flow_is_on_its_predicted_link(run: Path, traffic: Traffic, fabric: Fabric) -> None:
    """Which flows every tapped link carried, and their packets, by an independent parser."""
    facts = json.loads((run / "run.facts.json").read_text())["captures"]
    outcome = parse_strategy(STRATEGY).place(traffic, fabric)
    crossed = 0
    for leaf in (1, 2):
        for spine in range(1, 5):
            capture = facts[f"leaf{leaf}-spine{spine}"]
            carried = {
                (s["src"], s["dst"], s["dest_qp"], *s["udp_sports"]): s["packets"]
                for s in capture["streams"]
            }
            links = fabric.find_links(f"leaf{leaf}-spine{spine}")
            units = np.flatnonzero(np.isin(outcome.placement.links, links).any(1))
            assert {named(traffic, unit): traffic.packets[unit] for unit in units} == carried
            assert traffic.packets[units].sum() == capture["roce"]
            crossed += len(units)
    assert crossed == 2 * 96  # every flow between the leaves crosses one link at each leaf
    loads = link_loads(outcome.placement, traffic, len(fabric.links.source))
    ours = loads.wire_bytes[fabric.find_links("leaf1-spine1")].sum()
    seen = facts["leaf1-spine1"]
    # That parser counts the bytes of frames that are not RoCE too: perftest's TCP.
    assert 0 <= seen["wire_bytes"] - ours <= 1514 * seen["not_roce"]


def named(traffic: Traffic, unit: int) -> tuple[str, str, int, int]:
    keys = traffic.keys
    src, dst = (str(ip_address(bytes(column[unit][12:]))) for column in (keys.src, keys.dst))
    return src, dst, int(keys.dest_qp[unit]), int(keys.sport[unit])


def test_fim_of_the_taps_is_fim_of_the_replay(traffic: Traffic, fabric: Fabric, seen: Seen) -> None:
    there, back = directions(seen)
    result = replay(traffic, fabric, [parse_strategy(STRATEGY)], ["run"])
    layer = {one.layer: one for one in result.strategies[0].layers}
    flows = np.concatenate([np.bincount(d.seen.link, minlength=4) for d in (there, back)])
    assert flows.tolist() == [15, 11, 11, 11, 15, 11, 11, 11]
    for name in ("leaf-spine", "spine-leaf"):
        assert layer[name].fim_all_flows_percent == pytest.approx(fim(flows))
        assert layer[name].fim_all_flows_percent == pytest.approx(12.5)
        assert (layer[name].flows, layer[name].data_flows) == (96, 48)
        assert layer[name].over_time is not None
    # leaf1's own choices, as its taps saw them: 15, 11, 11 and 11 flows on four uplinks.
    leaf1, leaf2 = layer["leaf-spine"].devices
    assert (leaf1.switch, leaf1.links, leaf1.flows) == ("leaf1", 4, 48)
    assert leaf1.fim_all_flows_percent == leaf2.fim_all_flows_percent == pytest.approx(12.5)


def test_a_fim_of_flows_is_the_same_in_analyze_and_replay(
    run: Path, traffic: Traffic, fabric: Fabric
) -> None:
    """It counts flows with data, not those of ACKs only."""
    result = replay(traffic, fabric, [parse_strategy(STRATEGY)], ["run"])
    layer = {one.layer: one for one in result.strategies[0].layers}
    taps = [run / f"leaf1-spine{i}.pcap.gz" for i in range(1, 5)]
    seen = {one.name.split(", from ")[1]: one for one in analyze(taps).imbalance}
    for device, senders in zip(layer["leaf-spine"].devices, sorted(seen), strict=True):
        assert device.data_flows == seen[senders].flows < device.flows
        assert device.fim_flows_percent == pytest.approx(seen[senders].fim_flows_percent)
        assert device.fim_all_flows_percent == pytest.approx(seen[senders].fim_all_flows_percent)
        assert device.fim_flows_percent != pytest.approx(device.fim_all_flows_percent)
    assert layer["leaf-spine"].choice and not layer["host-leaf"].choice


def test_the_seed_is_recovered_from_the_links_alone(seen: Seen) -> None:
    """In a narrow range around the truth; the whole range takes a minute of two cores."""
    wanted = Wanted(seeds=SeedRange(SEED - (1 << 20), SEED + (1 << 20)))
    result = recover_all(directions(seen), wanted, ["run"], None)
    first, second = result.switches
    assert first.direction == "from 10.1.2.10, 10.1.1.10"  # leaf1's own choices
    # The seed of the first direction is fitted to none of the flows of the second.
    for switch, held_back in ((first, 16), (second, 48)):
        (candidate,) = switch.candidates
        assert (candidate.hash, candidate.seed) == ("linux", SEED)
        assert candidate.seeds_that_fit == 1
        assert candidate.validated_flows == candidate.held_back_flows == held_back
    assert first.candidates[0].seeds_searched == 1 << 21


def test_senders_can_be_chosen(seen: Seen) -> None:
    chosen = from_subnets(seen, ["10.1.1.0/24", "10.1.2.10"])
    assert Counter(chosen.seen.names[i] for i in chosen.seen.source).keys() == {
        "10.1.1.10",
        "10.1.2.10",
    }


def test_the_order_of_links_matters(seen: Seen) -> None:
    turned = seen._replace(link=((seen.link + 1) % 4).astype(np.int32))
    wanted = Wanted(hash="linux", seeds=SeedRange(SEED - 500, SEED + 500))
    result = recover_all(directions(turned), wanted, ["run"], None)
    assert all("no hash fits" in switch.conclusion for switch in result.switches)
    assert "next-hop order" in result.switches[0].conclusion
