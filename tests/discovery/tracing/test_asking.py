"""Paths that real routers name, against the ways that frames take."""

from __future__ import annotations

import tracemalloc
from dataclasses import replace

import numpy as np
import pytest
from traced_lab import lab, units_of, ways_of

from rocescope.discovery.asking import Namespaces, Said
from rocescope.discovery.tracing.asking import SAMPLE, Asking
from rocescope.discovery.tracing.paths import ASKED, COMPUTED, NAMED_ANOTHER, NO_HASH, trace_paths
from rocescope.replay.fabrics.parse import parse_fabric
from rocescope.replay.hashing.settings import HashSettings

pytestmark = pytest.mark.usefixtures("root")


@pytest.fixture(scope="module")
def routers(need_tool):
    need_tool("ip")
    with lab() as made:
        yield made


@pytest.fixture(autouse=True)
def settings(routers):
    routers.set_routes(weight=lambda cable: cable.parallel)
    for number, node in enumerate(routers.routers):
        routers.hash_by(node, 1, 90 + number)


def asked_switches(asking):
    return {one.switch: one for one in asking.report().switches}


@pytest.mark.thorough
@pytest.mark.parametrize("policy", [0, 1, 2, 3])
def test_all_hops_of_512_flows(policy, routers, tmp_path):
    for number, node in enumerate(routers.routers):
        routers.hash_by(node, policy, 900 + number)
    fabric = routers.fabric(tmp_path / "answers")
    for family in (4, 6):
        keys = routers.flows(512, family, seed=policy)
        asking = Asking(Namespaces(routers.prefix), "all")
        found = trace_paths(units_of(keys, fabric), fabric, asking)
        assert ways_of(found.placement.links, fabric) == routers.ways(keys)
        report = asking.report()
        asks = family == 4 or policy == 1
        for one in report.switches:
            assert one.questions == one.answers == one.computed_too == one.agreeing
        assert np.count_nonzero(found.evidence == ASKED) == (1024 if asks else 0)
        # For IPv6 the model is right where `ip route get` is not.
        assert list(report.not_asked.values()) == ([] if asks else [1024])


def test_ipv6_without_flow_label_is_asked_with_policy_0(routers, tmp_path):
    for number, node in enumerate(routers.routers):
        routers.hash_by(node, 0, 900 + number)
    fabric = routers.fabric(tmp_path / "answers")
    keys = routers.flows(200, 6)
    keys = keys._replace(flow_label=np.zeros_like(keys.flow_label))
    asking = Asking(Namespaces(routers.prefix), "all")
    found = trace_paths(units_of(keys, fabric), fabric, asking)
    assert ways_of(found.placement.links, fabric) == routers.ways(keys)
    assert not asking.report().not_asked


def test_a_sample_of_the_computed_hops(routers, tmp_path):
    fabric = routers.fabric(tmp_path / "answers")
    keys = routers.flows(300, 4)
    asking = Asking(Namespaces(routers.prefix), "sample")
    found = trace_paths(units_of(keys, fabric), fabric, asking)
    assert {one.questions for one in asking.report().switches} == {SAMPLE}
    assert np.count_nonzero(found.evidence == ASKED) == 3 * SAMPLE
    assert np.count_nonzero(found.evidence == COMPUTED) == 600 - 3 * SAMPLE


def test_a_switch_that_contradicts_is_asked_about_all(routers, tmp_path):
    fabric = routers.fabric(tmp_path / "answers")
    routers.hash_by("leaf1", 1, 4711)  # after its settings were read
    keys = routers.flows(300, 4)
    asking = Asking(Namespaces(routers.prefix), "sample")
    found = trace_paths(units_of(keys, fabric), fabric, asking)
    leaf1 = asked_switches(asking)["leaf1"]
    assert (leaf1.questions, leaf1.answers) == (300, 300)
    assert leaf1.agreeing < 200
    assert ways_of(found.placement.links, fabric) == routers.ways(keys)


def test_a_switch_without_a_known_seed_is_asked(routers, tmp_path):
    read = routers.fabric(tmp_path / "answers")
    fabric = replace(read, hash_settings=(HashSettings("linux", seed=0), *read.hash_settings[1:]))
    keys = routers.flows(200, 4)
    units = units_of(keys, fabric)
    assert (trace_paths(units, fabric).reason == NO_HASH).all()
    found = trace_paths(units, fabric, Asking(Namespaces(routers.prefix), "sample"))
    assert not found.placement.dropped.any()
    assert ways_of(found.placement.links, fabric) == routers.ways(keys)


def test_a_next_hop_outside_the_tables_ends_the_path(routers, tmp_path):
    fabric = routers.fabric(tmp_path / "answers")
    one = fabric.down(["leaf1-spine1"])  # tables that were read while leaf1 had no link to spine1
    keys = routers.flows(200, 4)
    found = trace_paths(units_of(keys, one), one, Asking(Namespaces(routers.prefix), "all"))
    there = np.array([way[0][1].startswith("up1") for way in routers.ways(keys)])
    assert 20 < np.count_nonzero(there) < 180
    assert (found.reason[there] == NAMED_ANOTHER).all()
    assert found.placement.dropped[there].all()
    assert not found.placement.dropped[~there].any()


def test_many_questions_are_several_batches(routers, tmp_path, monkeypatch):
    monkeypatch.setattr("rocescope.discovery.tracing.asking.MOST_QUERIES", 70)
    fabric = routers.fabric(tmp_path / "answers")
    real, sizes = Namespaces(routers.prefix), []

    def run(requests):
        sizes.extend(one.stdin.count(b"\n") for one in requests if one.device == "leaf1")
        return real(requests)

    keys = routers.flows(300, 4)
    asking = Asking(run, "all")
    found = trace_paths(units_of(keys, fabric), fabric, asking)
    assert sizes == [70, 70, 70, 70, 20]
    assert ways_of(found.placement.links, fabric) == routers.ways(keys)
    leaf1 = asked_switches(asking)["leaf1"]
    assert (leaf1.questions, leaf1.answers, leaf1.agreeing) == (300, 300, 300)


def test_a_large_fabric_takes_memory_for_units_not_for_switches(routers, tmp_path):
    fabric = parse_fabric("leaf-spine:leaves=400,spines=100,hosts=1")
    small = routers.fabric(tmp_path / "answers")
    units = units_of(routers.flows(10, 6), small).take(np.zeros(100_000, np.int64))
    asking = Asking(Namespaces(routers.prefix), "all")
    tracemalloc.start()
    asking.begin(units, fabric)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 100 * len(units)  # a byte per switch and unit are 500


def test_a_device_that_does_not_answer_leaves_the_computation(routers, tmp_path):
    fabric = routers.fabric(tmp_path / "answers")
    real = Namespaces(routers.prefix)

    def run(requests):
        return [
            Said(b"", "no route to host") if one.device == "leaf1" else real([one])[0]
            for one in requests
        ]

    keys = routers.flows(100, 4)
    asking = Asking(run, "all")
    found = trace_paths(units_of(keys, fabric), fabric, asking)
    assert ways_of(found.placement.links, fabric) == routers.ways(keys)
    leaf1 = asked_switches(asking)["leaf1"]
    assert (leaf1.answers, leaf1.problem) == (0, "no route to host")
