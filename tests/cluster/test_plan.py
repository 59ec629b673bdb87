"""Partitions by host pair."""

from __future__ import annotations

import inspect
import os
import shutil
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from captures import data
from clusters import SPRAYED, in_tasks, planned
from hypothesis import given
from hypothesis import strategies as st

from rocescope.analyzer.decode.mirrors import MirrorOptions
from rocescope.analyzer.errors import UnreadableInput, UsageError
from rocescope.analyzer.filtering.compiler import Ranks
from rocescope.analyzer.measures.conformance.options import ConformanceOptions
from rocescope.analyzer.pipeline.options import AnalyzeOptions
from rocescope.analyzer.summary.names import PlaneBy
from rocescope.analyzer.wire.registry import UsidFormat
from rocescope.cluster.merge import merge
from rocescope.cluster.reduce import reduce_partition
from rocescope.cluster.split import map_capture
from rocescope.cluster.work import (
    Partitions,
    PlannedOptions,
    Work,
    analyze_options,
    check_unchanged,
    make_plan,
    read_plan,
    write_plan,
)

# Partitions by host pair.

ADDRESSES = [f"10.0.{i // 250}.{i % 250}" for i in range(500)] + ["fd00::1", "fd00::2"]


@given(st.lists(st.tuples(st.integers(0, 501), st.integers(0, 501))), st.integers(1, 9))
def test_both_directions_have_one_partition_whatever_the_numbers(
    pairs: list[tuple[int, int]], count: int
) -> None:
    one, other = Partitions(count), Partitions(count)
    one.see(ADDRESSES[:100])
    one.see(ADDRESSES)
    other.see(ADDRESSES[::-1])
    src, dst = (np.array([pair[i] for pair in pairs], np.uint32) for i in range(2))
    found = one.of(src, dst)
    assert np.array_equal(found, one.of(dst, src))
    assert np.array_equal(found, other.of(501 - dst, 501 - src))
    assert ((found >= 0) & (found < count)).all()


def test_pairs_spread_over_the_partitions() -> None:
    partitions = Partitions(8)
    partitions.see(ADDRESSES)
    src, dst = np.triu_indices(64, 1)
    share = np.bincount(partitions.of(src.astype(np.uint32), dst.astype(np.uint32)), minlength=8)
    assert share.min() > len(src) / 8 * 0.7


def test_an_ipv4_address_and_its_gid_are_one_host() -> None:
    partitions = Partitions(1 << 20)
    partitions.see(["10.0.0.1", "::ffff:10.0.0.1", "10.0.0.2"])
    one, gid = (
        partitions.of(np.array([n], np.uint32), np.array([2], np.uint32)).item() for n in (0, 1)
    )
    assert one == gid


# The plan: what it holds, and what tasks do not compute.

OPTIONS = AnalyzeOptions()


def test_a_plan_comes_back(tmp_path: Path) -> None:
    options = AnalyzeOptions(
        path_by="tap",
        window_ns=5,
        filter="not cnp",
        concat=False,
        tap_names={SPRAYED[0]: os.path.basename(SPRAYED[0])},
        udp_ports=(4791, 9),
        icrc=True,
        link_rate_bits_per_second=10**9,
        max_flows=99,
        flow_label="outer",
        usid=UsidFormat(48, 16),
    )
    work = Work(planned(tmp_path, SPRAYED, 7, options))
    plan = read_plan(work)
    assert analyze_options(plan) == options
    assert plan.partitions == 7
    assert [source.taps_before for source in plan.sources] == list(range(12))
    assert [tap.name for tap in plan.taps] == [os.path.basename(path) for path in SPRAYED]
    assert plan.many_taps
    write_plan(work, plan)  # the same again is no other plan


def test_another_analysis_needs_another_folder(tmp_path: Path) -> None:
    planned(tmp_path, SPRAYED[:1], 2)
    with pytest.raises(UsageError, match="holds another analysis"):
        planned(tmp_path, SPRAYED[:1], 3)


def test_of_two_plans_at_once_the_first_stays(tmp_path: Path) -> None:
    """The other one may have found no plan in the folder."""
    work = Work(str(tmp_path))
    first, other = (make_plan(SPRAYED[:1], OPTIONS, partitions) for partitions in (2, 3))
    real = os.path.exists
    write_plan(work, first)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os.path, "exists", lambda p: not str(p).endswith("plan") and real(p))
        with pytest.raises(UsageError, match="holds another analysis"):
            write_plan(work, other)
    assert read_plan(work) == first


def test_no_task_takes_results_of_another_plan(tmp_path: Path) -> None:
    first, other = str(data("c10")), str(data("c40"))
    in_tasks(tmp_path, [first], 1)
    (tmp_path / "plan").unlink()
    planned(tmp_path, [other], 1)
    for task in (
        lambda: map_capture(str(tmp_path), 0),
        lambda: reduce_partition(str(tmp_path), 0),
        lambda: merge(str(tmp_path)),
    ):
        with pytest.raises(UsageError, match="is of another plan"):
            task()
    shutil.rmtree(tmp_path / "map")
    map_capture(str(tmp_path), 0)
    with pytest.raises(UsageError, match=r"reduce/0/outline is of another plan"):
        merge(str(tmp_path))


@pytest.mark.parametrize(
    ("options", "named"),
    [
        (replace(OPTIONS, filter="rank == 3"), "rank"),
    ],
)
def test_what_crosses_host_pairs_is_refused(options: AnalyzeOptions, named: str) -> None:
    with pytest.raises(UsageError, match=f"{named}.* without --cluster"):
        make_plan(SPRAYED[:1], options, 2)


REFUSED: dict[str, tuple[Any, str]] = {
    "follow": (True, "--follow"),
    "idle_ns": (1, "--idle-after"),
    "conformance": (ConformanceOptions(), "--conformance"),
    "job_logs": (("x",), "--nccl-log"),
    "ranks": (Ranks({}), "ranks"),
    "mirror": (MirrorOptions(), "--mirror-format"),
    "plane_by": (PlaneBy("tap"), "--plane-by"),
    "trimmed_dscps": ((12,), "--trimmed-dscp"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_options_without_tasks_are_refused(name: str) -> None:
    value, named = REFUSED[name]
    with pytest.raises(UsageError, match=f"{named}.* without --cluster"):
        make_plan(SPRAYED[:1], replace(OPTIONS, **{name: value}), 2)


def test_every_option_is_planned_or_left_to_stage_merge_or_refused() -> None:
    planned_ones = set(PlannedOptions.__struct_fields__)
    of_merge = set(inspect.signature(merge).parameters) - {"folder", "tell"}
    groups = [planned_ones, of_merge, set(REFUSED)]
    assert sum(map(len, groups)) == len(set.union(*groups))
    assert set.union(*groups) == {field.name for field in fields(AnalyzeOptions)}


@pytest.mark.parametrize("partitions", [0, -1, 4097])
def test_numbers_of_partitions(partitions: int) -> None:
    with pytest.raises(UsageError, match="give 1 to 4096"):
        make_plan(SPRAYED[:1], OPTIONS, partitions)


def test_inputs_that_are_no_captures(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for path in ("-", str(tmp_path / "pipe"), str(tmp_path)):
        with pytest.raises(UsageError, match="is not a file"):
            make_plan([path], OPTIONS, 2)
    with pytest.raises(UnreadableInput, match="none"):
        make_plan([str(tmp_path / "none")], OPTIONS, 2)
    with pytest.raises(UsageError, match="no capture"):
        make_plan([], OPTIONS, 2)


def test_a_file_that_changed_or_went_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "c.pcap"
    shutil.copy(data("c10"), path)
    plan = make_plan([str(path)], OPTIONS, 2)
    check_unchanged(plan, plan.sources[0])
    os.utime(path, ns=(1, 1))
    with pytest.raises(UsageError, match="changed after the plan"):
        check_unchanged(plan, plan.sources[0])
    path.unlink()
    with pytest.raises(UnreadableInput, match=r"c\.pcap: no such file"):
        check_unchanged(plan, plan.sources[0])
