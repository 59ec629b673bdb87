"""Connections, grants and programs of collectives, beside what NCCL's source says."""

from __future__ import annotations

from collections import Counter

import numpy as np
from examples import examples
from hypothesis import given
from hypothesis import strategies as st
from training_runs import FABRIC

from rocescope.replay.training.faults import Faults
from rocescope.replay.training.jobs import Trained, parse_plan, train
from rocescope.replay.training.nccl import DATA, GRANT, Channels, Nccl, Programs, pairs, ring, tree
from rocescope.replay.training.run import Run, Settings, generations_of, hosts_of, simulate


def _sent(programs: Programs) -> Counter[tuple[int, int, int]]:
    """Bytes by (channel, sender, receiver)."""
    sent: Counter[tuple[int, int, int]] = Counter()
    for every in programs.values():
        for action in (action for program in every for action in program):
            for edge in action.sends:
                sent[edge.channel, edge.sender, edge.receiver] += action.size
    return sent


@given(
    n=st.integers(2, 9),
    size=st.integers(1, 1 << 20),
    slot=st.sampled_from([4096, 32768, 1 << 20]),
    channels=st.integers(1, 3),
    kind=st.sampled_from(["all_reduce", "all_gather", "reduce_scatter"]),
)
@examples(60)
def test_a_ring_has_two_slices_per_step_and_rank_on_every_edge(
    n: int, size: int, slot: int, channels: int, kind: str
) -> None:
    to = Channels("world", tuple(range(n)), channels, slot)
    programs = ring(Nccl(n), to, kind, size)  # type: ignore[arg-type]
    steps = 2 * (n - 1) if kind == "all_reduce" else n - 1
    for every in programs.values():
        for program in every:
            sends = [action for action in program if action.sends]
            assert len(sends) == sum(bool(action.receives) for action in program)
            assert len(sends) % (2 * steps) == 0  # loops of whole steps
            assert all(action.size <= slot for action in sends)
    # Together the ranks send every byte `steps` times, in each channel over its own edges.
    assert sum(_sent(programs).values()) == steps * size
    if size < channels:
        return
    assert len(_sent(programs)) == channels * n


def test_tiny_rings_consist_of_empty_slices() -> None:
    """4 bytes are in the first slice of the first part: one message of 12 on an edge has data
    in each of its turns."""
    programs = ring(Nccl(4), Channels("world", (0, 1, 2, 3), 1, 32768), "all_reduce", 4)
    sizes = Counter(a.size for every in programs.values() for p in every for a in p if a.sends)
    assert sizes == {0: 42, 4: 6}


@given(n=st.integers(2, 9), size=st.integers(1, 1 << 20), channels=st.integers(1, 3))
@examples(40)
def test_a_tree_carries_all_bytes_up_and_down_each_edge(n: int, size: int, channels: int) -> None:
    programs = tree(Nccl(n), Channels("world", tuple(range(n)), channels, 1 << 16), size)
    sent = _sent(programs)
    for (channel, a, b), amount in sent.items():
        assert sent[channel, b, a] == amount
    assert sum(sent.values()) == 2 * (n - 1) * size


def test_pairs_send_what_they_are_told() -> None:
    sizes = {(0, 1): 100_000, (1, 0): 7, (2, 0): 65_536}
    programs = pairs(Nccl(3), Channels("experts", (0, 1, 2), 2, 16_384), sizes)
    sent: Counter[tuple[int, int]] = Counter()
    for (_, a, b), size in _sent(programs).items():
        sent[a, b] += size
    assert sent == sizes


def _run(text: str) -> tuple[Trained, Run]:
    plan, settings = parse_plan(text, 0), Settings(FABRIC, 3)
    hosts = hosts_of([plan], FABRIC, 3)
    generations = generations_of([plan], hosts, Faults(), settings, {})
    return generations[0].trained, simulate(generations, settings)[0]


@given(
    kind=st.sampled_from(["ddp", "ddp,algorithm=tree", "fsdp", "moe", "pipeline"]),
    channels=st.integers(1, 2),
    qps=st.sampled_from([1, 2, 3]),
)
@examples(15)
def test_messages_follow_grants_and_grants_follow_free_slots(
    kind: str, channels: int, qps: int
) -> None:
    trained, run = _run(
        f"job:kind={kind},steps=2,size=200KiB,channels={channels},qps={qps},compute=10ms"
    )
    assert (run.ends >= 0).all()
    for edge in trained.nccl.connections:
        assert len(edge.data) == len(edge.grants) == len(edge.taken) == edge.posted
        granted, arrived, taken = (
            run.ends[nodes] for nodes in (edge.grants, edge.data, edge.taken)
        )
        assert (arrived > granted).all() and (taken >= arrived).all()
        # At most `slots` messages are granted and not yet taken out of their slots.
        late = slice(edge.slots, None)
        assert (granted[late] > taken[: len(taken[late])]).all()
    kinds = Counter(message.kind for message in trained.nccl.messages.values())
    assert kinds[DATA] == kinds[GRANT] > 0


def test_messages_take_the_queue_pairs_of_a_connection_in_turn() -> None:
    trained = train(parse_plan("job:kind=ddp,qps=3,steps=1", 0), [], 1)
    nodes = trained.nccl.job("a", np.arange(4, dtype=np.int32), 0)
    assert nodes.queue_pair is not None
    for edge in trained.nccl.connections:
        used = nodes.queue_pair[edge.data]
        assert (used == np.resize(edge.queue_pairs, len(used))).all()
        assert (nodes.queue_pair[edge.grants] == edge.queue_pairs[0]).all()
