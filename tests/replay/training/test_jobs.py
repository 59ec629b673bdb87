"""Plans of training jobs, their faults and taps."""

from __future__ import annotations

import numpy as np
import pytest
from training_runs import FABRIC

from rocescope.analyzer.errors import UsageError
from rocescope.replay.fabrics.parse import parse_fabric
from rocescope.replay.training.faults import parse_faults, parse_taps
from rocescope.replay.training.jobs import _one_forward_one_backward, parse_plan, train
from rocescope.replay.training.run import hosts_of


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("job:kind=dpd", "there is no kind 'dpd'; did you mean ddp"),
        ("job:kind=ddp,bukets=3", "no key 'bukets' at column 14; did you mean buckets"),
        ("job:kind=ddp,layers=3", "job:kind=ddp has no key 'layers'"),
        ("job:ranks=1", "ranks"),
        ("job:kind=pipeline,ranks=6,stages=4", "stages=4 does not divide ranks=6"),
        ("job:ranks=6,nics=4", "no two or more hosts of nics=4"),
        ("job:kind=pipeline,ranks=8,nics=2", "nics is for"),
        ("job:compute=0", "compute is above 0"),
        ("job:nccl=2.19", "nccl=2.19: use 2.26 or 2.20"),
        ("job:place=near", "place=near: use packed or spread or random"),
        ("job:clip=on", "clip=on: use yes or no"),
        ("job:ranks", "'ranks' is not key=value (column 5)"),
    ],
)
def test_a_wrong_job_has_one_clear_error(text: str, words: str) -> None:
    with pytest.raises(UsageError) as error:
        parse_plan(text, 0)
    assert words in str(error.value)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("slow-gp:rank=1", "no fault 'slow-gp'; did you mean slow-gpu"),
        ("slow-gpu:rnak=1", "'rnak' at column 10; did you mean rank"),
        ("slow-gpu:factor=2", "needs rank=NUMBER"),
        ("slow-gpu:rank=4", "rank is 0 to 3, not '4'"),
        ("slow-gpu:rank=1,from=10", "from"),
        ("slow-gpu:job=x,rank=1", "no job 'x'"),
        ("congested-link:factor=0.1", "needs link=NAME"),
        ("congested-link:link=leaf1>spine9", "spine9"),
        ("loss:link=leaf1>spine1,from=soon", "soon"),
        ("loss:link=leaf1>spine1,from=3,until=3", "until=3 is not after from=3"),
        ("loss:link=leaf1>spine1,rank=1", "link and rank cannot be combined"),
        ("hang:rank=1,from=3,lost-steps=1", "lost-steps needs restart"),
        ("hang:rank=1,from=3,restart=1s,lost-steps=4", "lost-steps"),
    ],
)
def test_a_wrong_fault_has_one_clear_error(text: str, words: str) -> None:
    plans = [parse_plan("job:kind=ddp", 0)]
    with pytest.raises(UsageError) as error:
        parse_faults([text], plans, hosts_of(plans, FABRIC, 1), FABRIC)
    assert words in str(error.value)


def test_a_job_hangs_once() -> None:
    plans = [parse_plan("job:", 0), parse_plan("job:with=a", 1)]
    hosts = hosts_of(plans, FABRIC, 1)
    parse_faults(["hang:rank=1", "hang:job=b,rank=1"], plans, hosts, FABRIC)
    with pytest.raises(UsageError, match="a hangs twice"):
        parse_faults(["hang:rank=1", "hang:rank=2,restart=1s"], plans, hosts, FABRIC)


def test_jobs_draw_compute_times_of_their_own() -> None:
    """Also if their names begin alike."""

    def drawn(name: str) -> list[int]:
        return train(parse_plan(f"job:steps=1,name={name}", 0), [], 1).nccl._columns[2]

    assert drawn("training1") != drawn("training2")


def test_jobs_must_fit_on_the_hosts_and_have_names_of_their_own() -> None:
    plans = [parse_plan("job:ranks=4", 0), parse_plan("job:ranks=4,with=a", 1)]
    first, second = hosts_of(plans, FABRIC, 1)
    assert (first == second).all()
    for texts, words in (
        (("job:ranks=9",), "has 9 ranks"),
        (("job:name=x", "job:name=x"), "two jobs"),
        (("job:with=z",), "no such job"),
    ):
        with pytest.raises(UsageError, match=words):
            hosts_of([parse_plan(text, i) for i, text in enumerate(texts)], FABRIC, 1)


def test_interfaces_of_a_rail_are_on_different_leaves() -> None:
    """Hosts in turn on both leaves, so that uplinks see every rail."""
    (hosts,) = hosts_of([parse_plan("job:ranks=8,nics=2", 0)], FABRIC, 1)
    leaf = np.asarray(FABRIC.attachments.switch)[hosts, 0]
    assert sorted(hosts.tolist()) == list(range(8))
    for rail in (leaf[0::2], leaf[1::2]):
        assert (rail[:-1] != rail[1:]).all()


def test_taps_by_name() -> None:
    def names(text: str) -> list[str]:
        return sorted(tap.name for tap in parse_taps(text, FABRIC, [0, 5]))

    assert names("leaf1") == ["leaf1-spine1", "leaf1-spine2"]
    assert names("spine2") == ["leaf1-spine2", "leaf2-spine2"]
    assert names("hosts") == ["host1", "host6"]
    assert len(names("uplinks")) == 4
    assert names("leaf2-spine1+host3-leaf1") == ["host3", "leaf2-spine1"]
    with pytest.raises(UsageError):
        names("leaf7")


def test_taps_have_names_of_their_own() -> None:
    """Several interfaces of a host, and parallel links."""
    planes = parse_fabric("multi-plane:planes=2,leaves=2,spines=2,hosts=2,rate=1G")
    taps = parse_taps("hosts+uplinks", planes, range(4))
    assert len({tap.name for tap in taps}) == len(taps) == 16
    for tap in taps:
        assert set(tap.links) == set(planes.find_links(tap.name).tolist())


def test_stages_of_a_pipeline_alternate_after_their_warm_up() -> None:
    assert _one_forward_one_backward(3, 4, 2) == [(0, 0), (1, 0), (0, 1), (1, 1)]
    assert _one_forward_one_backward(0, 3, 4)[:4] == [(0, 0), (0, 1), (0, 2), (1, 0)]
    for stage in range(4):
        tasks = _one_forward_one_backward(stage, 4, 6)
        assert sorted(tasks) == [(back, batch) for back in (0, 1) for batch in range(6)]
