"""The hash of real routers, learned from what they say."""

from __future__ import annotations

from dataclasses import replace

import pytest
from examples import first
from router_namespaces import ip
from traced_lab import lab

from rocescope.analyzer.errors import RocescopeError, UsageError
from rocescope.discovery.asking import Namespaces, Said
from rocescope.discovery.tracing.learn import AGAIN, ANSWERS, learn
from rocescope.replay.fabrics.parse import parse_fabric
from rocescope.replay.hashing.seeded import SeedRange
from rocescope.replay.hashing.settings import HashSettings
from rocescope.replay.seeds.recover import Wanted, is_explained

pytestmark = pytest.mark.usefixtures("root")
SEEDS = SeedRange(0, 1 << 16)


@pytest.fixture(scope="module")
def routers(need_tool):
    need_tool("ip")
    with lab(spines=3, parallel=1) as made:
        yield made


@pytest.fixture
def fabric(routers, tmp_path):
    """The fabric with no hash: what is learned comes from answers alone."""
    routers.set_routes()
    read = routers.fabric(tmp_path / "answers")
    return replace(read, hash_settings=(None,) * read.switches)


@pytest.mark.thorough
@pytest.mark.parametrize("policy", [0, 1])
@pytest.mark.parametrize("weighted", first(1, [False, True]))
def test_policy_and_seed_of_a_router(policy, weighted, routers, tmp_path):
    routers.set_routes(weight=lambda cable: cable.spine if weighted else 1)
    routers.hash_by("leaf1", policy, 54321)
    read = routers.fabric(tmp_path / "answers")
    blind = replace(read, hash_settings=(None,) * read.switches)
    (found,) = learn(blind, Namespaces(routers.prefix), "leaf1", Wanted(seeds=SEEDS)).switches
    if policy == 0:  # two hosts on each side are four pairs: no seed can be claimed
        assert not any(map(is_explained, found.candidates))
        assert found.asked_again is None
        return
    best = next(c for c in found.candidates if is_explained(c))
    assert (best.hash, best.seed, best.parameters) == ("linux", 54321, {"policy": "1"})
    assert found.flows == ANSWERS
    assert (found.asked_again, found.agreeing_again) == (AGAIN, AGAIN)


def test_a_router_that_changes_its_hash_between_the_questions(routers, fabric):
    routers.hash_by("leaf1", 1, 777)
    real, calls = Namespaces(routers.prefix), []

    def run(requests):
        calls.append(requests)
        if len(calls) == 2:
            routers.hash_by("leaf1", 1, 778)
        return real(requests)

    (found,) = learn(fabric, run, "leaf1", Wanted(seeds=SEEDS)).switches
    assert found.asked_again == AGAIN
    assert found.agreeing_again < AGAIN * 0.6


def test_answers_outside_the_group_contradict(routers, fabric):
    """A route over another port appears between the questions."""
    routers.hash_by("leaf1", 1, 777)
    real, calls = Namespaces(routers.prefix), []

    def run(requests):
        calls.append(requests)
        if len(calls) == 2:
            target = requests[0].stdin.split()[2].decode()
            ip([f"route add {target}/32 dev swp2"], routers.name("leaf1"))
            moved.append(requests[0].stdin.count(b"route get " + target.encode() + b" "))
        return real(requests)

    moved: list[int] = []
    result = learn(fabric, run, "leaf1", Wanted(seeds=SEEDS))
    target = calls[1][0].stdin.split()[2].decode()
    ip([f"route del {target}/32 dev swp2"], routers.name("leaf1"))
    (found,) = result.switches
    assert 0 < moved[0] < AGAIN
    assert (found.asked_again, found.agreeing_again) == (AGAIN, AGAIN - moved[0])
    (warning,) = result.warnings
    assert warning.startswith(f"{moved[0]} of {ANSWERS + AGAIN} answers of leaf1 name ports")


@pytest.mark.thorough
def test_a_group_without_a_link_that_the_router_uses(routers, fabric):
    routers.hash_by("leaf1", 1, 777)
    result = learn(
        fabric.down(["leaf1-spine1"]), Namespaces(routers.prefix), "leaf1", Wanted(seeds=SEEDS)
    )
    (found,) = result.switches
    (warning,) = result.warnings
    outside = int(warning.split()[0])
    assert (found.flows + outside, found.asked_again) == (ANSWERS, None)
    assert 60 < outside < 140  # a third


def test_a_router_that_names_only_ports_outside_the_group(routers, fabric):
    real, calls = Namespaces(routers.prefix), []
    ports = [routers.up(cable) for cable in routers.cables if cable.leaf == 1]

    def run(requests, first):
        """Says swp2 in place of every uplink."""
        calls.append(requests)
        said = real(requests)
        if len(calls) < first:
            return said
        output = said[0].output
        for port in ports:
            output = output.replace(f'"dev":"{port}"'.encode(), b'"dev":"swp2"')
        return [Said(output, "")]

    with pytest.raises(RocescopeError, match="leaf1 named only ports outside its group"):
        learn(fabric, lambda asked: run(asked, 1), "leaf1", Wanted(seeds=SEEDS))
    calls.clear()
    routers.hash_by("leaf1", 1, 777)
    (found,) = learn(fabric, lambda asked: run(asked, 2), "leaf1", Wanted(seeds=SEEDS)).switches
    assert (found.asked_again, found.agreeing_again) == (AGAIN, 0)


def test_mistakes(routers, fabric):
    run = Namespaces(routers.prefix)
    with pytest.raises(UsageError, match="no switch 'leaf9'"):
        learn(fabric, run, "leaf9", Wanted())
    with pytest.raises(UsageError, match="spine1 has no group of several next hops"):
        learn(fabric, run, "spine1", Wanted())
    with pytest.raises(RocescopeError, match="leaf1 did not name a next hop: gone"):
        learn(fabric, lambda asked: [Said(b"", "gone")], "leaf1", Wanted())
    plain = parse_fabric("leaf-spine:leaves=2,spines=2,hosts=1")
    plain = replace(plain, hash_settings=(HashSettings("linux"),) * plain.switches)
    with pytest.raises(UsageError, match="names of ports"):
        learn(plain, run, "leaf1", Wanted())
