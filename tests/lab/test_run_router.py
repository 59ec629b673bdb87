"""Real runs of the lab, short ones: the truth is what the kernel counted and the hosts met."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from examples import first

from .__main__ import draw_and_run
from .packets import Captured
from .rules import DAMAGE, DROP
from .run import run
from .scenario import Expected, Scenario, Step, through_spine
from .score import line, score
from .topology import LINKS, SNAP_BYTES, SPINES
from .traffic import Traffic

pytestmark = pytest.mark.usefixtures("root", "live_capture")


@pytest.fixture(autouse=True)
def tools(need_tool: Callable[[str], str]) -> None:
    for tool in ("ip", "tc", "tcpdump"):
        need_tool(tool)


def uncompressed(folder: Path) -> Captured:
    import gzip

    for path in folder.glob("*.pcap.gz"):
        path.with_suffix("").write_bytes(gzip.decompress(path.read_bytes()))
    return Captured(folder)


@pytest.mark.thorough
@pytest.mark.parametrize("family", [4, pytest.param(6, marks=pytest.mark.thorough)])
def test_a_clean_run_loses_and_repeats_nothing(tmp_path: Path, family: int) -> None:
    traffic = Traffic(seed=1, seconds=1, rate=500, family=family, timeout_s=5)
    truth = run(Scenario("clean", traffic, hash_seeds=(5, 6)), tmp_path)
    captured = uncompressed(tmp_path)
    counters = [host["counters"] for host in truth["hosts"].values()]
    sent = sum(each["sent"] for each in counters)
    assert sent == sum(each["received"] for each in counters) > 1500
    for requester in (each for host in truth["hosts"].values() for each in host["requesters"]):
        assert requester["retransmitted"] == requester["timeouts"] == 0
        assert 0 <= requester["packets"] - requester["acknowledged"] <= 64
    # Every packet is captured on four links, in the order of its way.
    assert {link: len(packets) > 0 for link, packets in captured.by_link.items()} == dict.fromkeys(
        LINKS, True
    )
    assert sum(map(len, captured.by_link.values())) == 4 * sent
    for leaf in (1, 2):
        for spine in SPINES:
            hop = through_spine(spine, leaf).hop
            assert captured.lost(hop).packets == captured.copied(hop).packets == 0
            assert captured.overtaken(hop).packets == captured.changed(hop).packets == 0
    assert (tmp_path / "H1-leaf1.pcap").stat().st_size < len(captured.by_link["H1-leaf1"]) * (
        SNAP_BYTES + 16
    ) + 25


@pytest.mark.thorough
@pytest.mark.parametrize("family", first(1, [4, 6]))
def test_damaged_packets_are_dropped_by_their_hosts(tmp_path: Path, family: int) -> None:
    """The captures, the kernel and the hosts agree on the ICRCs that the rule makes wrong."""
    spot = through_spine(2, 2)
    scenario = Scenario(
        "corruption",
        Traffic(seed=2, seconds=1.5, rate=1000, family=family, icrc=True),
        rules=[spot.rule("CHANCE(50000)", DAMAGE)],
        steps=[Step(0.5, lambda lab: lab.rules[0].turn(True))],
        expected=[Expected(["corruption"], spot.hop, "damaged", rule=0)],
        hash_seeds=(5, 6),
    )
    truth = run(scenario, tmp_path)
    (found,) = truth["expected"]
    dropped = {host: result["counters"]["corrupt"] for host, result in truth["hosts"].items()}
    assert truth["rule_hits"] == [found["packets"]] == [dropped["H3"] + dropped["H4"]]
    assert dropped["H1"] == dropped["H2"] == 0


def test_gray_loss_is_what_the_kernel_counted(tmp_path: Path) -> None:
    spot = through_spine(2, 2)
    scenario = Scenario(
        "gray-loss",
        Traffic(seed=2, seconds=1.5, rate=1000),
        rules=[spot.rule("CHANCE(50000)", DROP)],
        steps=[Step(0.5, lambda lab: lab.rules[0].turn(True))],
        expected=[Expected(["loss"], spot.hop, "lost", rule=0)],
        hash_seeds=(5, 6),
    )
    truth = run(scenario, tmp_path)
    (found,) = truth["expected"]
    assert truth["rule_hits"] == [found["packets"]]
    assert 5 <= found["packets"] < found["of_packets"] / 5
    assert found["set_ns"] <= found["from_ns"] < found["until_ns"] <= truth["end_ns"] + 10**9
    assert (found["from_taps"], found["to_taps"]) == (["leaf1-spine2"], ["leaf2-spine2"])
    # The hosts of the other direction lost nothing; the victims repeated what was lost.
    assert sum(count for *_, count in found["affected"]) == found["packets"]
    assert {dst for _, dst, *_ in found["affected"]} <= {"10.2.3.10", "10.2.4.10"}
    retransmitted = {
        requester["number"]
        for host in ("H1", "H2")
        for requester in truth["hosts"][host]["requesters"]
        if requester["retransmitted"]
    }
    assert retransmitted


@pytest.mark.thorough
@pytest.mark.parametrize(
    "kind", first(1, ["pause", "mrc-plane", "silent-receiver", "collision", "small-mtu"])
)
def test_a_fault_of_a_link_and_nothing_else_is_diagnosed(tmp_path: Path, kind: str) -> None:
    """The neighbour pauses a link, or a plane fails: its effects are no findings of their own. A
    receiver sends no CNP for marks that are set between taps.
    """
    result = score(draw_and_run(2, kind, tmp_path))
    assert result.right, line(result)
    assert {match.packets_right for match in result.matches} <= {True, None}
