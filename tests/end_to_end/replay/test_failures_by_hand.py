"""What failures cost, against numbers worked out by hand: one queue pair at 100 Gb/s over 5 us."""

from __future__ import annotations

import numpy as np
import pytest
from host_ports import port_links

from rocescope.replay.fabrics.fabric import Fabric
from rocescope.replay.fabrics.parse import parse_fabric
from rocescope.replay.flows.checks import links_of
from rocescope.replay.packets.event_driven import FeedbackResult, run_event_driven
from rocescope.replay.packets.failures import LOSSY, SLOW, Failures, LinkEvent, outage
from rocescope.replay.packets.hosts.transport import Transport
from rocescope.replay.packets.model.model import Model
from rocescope.replay.packets.offers import workload_of
from rocescope.replay.strategies.registry import parse_packet_strategy

US = 1_000_000
DATA, ACK, DELAY = 332_800, 5_120, 5 * US  # 4,160 B, 64 B, one link
PATH = parse_fabric("leaf-spine:leaves=2,spines=1,hosts=2,rate=100G,delay=5us")
TWO = parse_fabric("leaf-spine:leaves=2,spines=2,hosts=2,rate=100G,delay=5us")
PLANES = parse_fabric("multi-plane:planes=4,leaves=2,spines=2,hosts=2,rate=100G,delay=5us")


def run(
    fabric: Fabric, strategy: str, packets: int, failures: Failures, recovery: str = "ideal"
) -> FeedbackResult:
    """One message from host 1 to host 3."""
    size = np.array([packets * 4096])
    load = workload_of(np.array([0]), np.array([2]), size, None, Model(pfc=None))  # type: ignore[arg-type]
    return run_event_driven(
        load,
        fabric,
        parse_packet_strategy(strategy),
        Model(pfc=None),
        1,
        transport=Transport(recovery=recovery),
        failures=failures,
    )


def test_a_slow_link() -> None:
    """At half the rate packets are twice as far apart, and the ACK takes twice as long there."""
    events = tuple(LinkEvent(0, link, SLOW, 50e9) for link in ("leaf1>spine1", "spine1>leaf1"))
    result = run(PATH, "host-spray", 10, Failures(events))
    way = DATA + 10 * 2 * DATA + 2 * DATA + 4 * DELAY
    assert result.engine.completion_ps == way + 3 * ACK + 2 * ACK + 4 * DELAY


def test_a_link_that_loses_everything_for_three_packets() -> None:
    """Packet i is at the spine at (i + 2) DATA + 2 DELAY. Each lost one is retransmitted at once,
    before the others, so everything ends three packets later."""
    begin, end = (2 * DELAY + n * DATA - 1 for n in (5, 8))
    events = (
        LinkEvent(begin, "leaf1>spine1", LOSSY, 1.0),
        LinkEvent(end, "leaf1>spine1", LOSSY, 0),
    )
    result = run(PATH, "host-spray", 60, Failures(events))
    assert (result.tally.lost_on_links, result.tally.sent_again, result.tally.data_sent) == (
        3,
        3,
        63,
    )
    assert result.engine.completion_ps == 4 * (DATA + DELAY) + 62 * DATA + 4 * (ACK + DELAY)


@pytest.mark.parametrize("g_us", [0, 7, None])
def test_until_routing_converges_half_the_packets_are_lost(g_us: int | None) -> None:
    """spine1-leaf2 dies at 20 us. leaf1 sends every second packet to spine1, which is beside the
    dead link: until it knows another way, after G, it drops what comes."""
    packets, down = 200, 20 * US
    failures = Failures(
        outage(["spine1-leaf2"], down), convergence_ps=None if g_us is None else g_us * US
    )
    result = run(TWO, "switch-rr:reshuffle=0", packets, failures, "none")
    at_spine = 2 * (DELAY + DATA) + DATA * np.arange(packets)
    half = int((at_spine > down).sum()) / 2  # 171 packets
    if g_us is not None:  # 21 packets in 7 us
        half = int(((at_spine > down) & (at_spine < down + g_us * US)).sum()) / 2
    # The start of leaf1's turns with the new routes is drawn, so two of one spine may follow.
    assert abs(result.engine.no_route - half) <= 1
    # One packet was in service when the link died.
    assert result.tally.lost_on_links == 1 and result.tally.data_lost == result.engine.no_route + 1
    used = [int(result.engine.link_packets[TWO.find_links(f"leaf1>spine{i}")[0]]) for i in (1, 2)]
    learned = packets if g_us is None else int((at_spine - DATA - DELAY < down + g_us * US).sum())
    assert abs(used[0] - learned / 2) <= 1  # from then on leaf1 uses spine2 alone
    assert sum(used) >= packets


def test_a_dead_port_and_a_dead_plane_leave_three_quarters() -> None:
    """400 packets over four ports take 100 each; over three 134, 133 and 133."""
    alone = 4 * (DATA + DELAY) + 4 * (ACK + DELAY)
    for links in (port_links(PLANES, 0, 2), links_of(PLANES, "plane3").tolist()):
        result = run(PLANES, "mrc:evs=8", 400, Failures(outage(links, 0), 0))
        assert sorted(result.port_bytes[0].tolist()) == [0, *(4160 * n for n in (133, 133, 134))]
        assert result.port_bytes[0, 2] == 0 and result.tally.sent_again == 0
        assert result.engine.completion_ps == alone + 133 * DATA
    whole = run(PLANES, "mrc:evs=8", 400, Failures(()))
    assert whole.engine.completion_ps == alone + 99 * DATA
