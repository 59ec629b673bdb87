"""`--pattern`: its options are named as they are written there."""

from __future__ import annotations

import pytest

from rocescope.analyzer.errors import UsageError
from rocescope.replay.compare.specs import pairs_of
from rocescope.replay.fabrics.parse import parse_fabric

FABRIC = parse_fabric("leaf-spine:leaves=2,spines=2,hosts=4")
ONE = parse_fabric("leaf-spine:leaves=1,spines=1,hosts=1")


def test_options_and_defaults() -> None:
    pairs, acks = pairs_of("permutation:qps=3,acks=no", FABRIC)
    assert (len(pairs), acks) == (24, False)
    assert pairs_of("incast:fan-in=2", FABRIC)[1]


@pytest.mark.parametrize(
    ("spec", "mtu", "told"),
    [
        ("permutation", 9000, "--model: mtu=9000: a path MTU of RoCE is one of 256, 512"),
        ("permutation:qps=0", 4096, "--pattern permutation: qps must be 1 to 4096, not 0"),
        ("permutation:hosts=9", 4096, "--pattern permutation: 9 hosts, but the fabric has 8"),
        ("permutation:messages=0", 4096, "--pattern permutation: message-size, messages and"),
        ("incast:fan-in=9", 4096, "--pattern incast: fan-in must be 1 to 7 for 8 hosts"),
        ("jam", 4096, "--pattern jam: there is no pattern 'jam'; there are permutation"),
        (
            "permutation:fan=1",
            4096,
            "--pattern permutation has no option 'fan' at column 13; did you mean fan-in?",
        ),
        ("permutation:acks=1", 4096, "--pattern permutation: acks=1: use yes or no"),
    ],
)
def test_mistakes(spec: str, mtu: int, told: str) -> None:
    with pytest.raises(UsageError) as caught:
        pairs_of(spec, FABRIC, path_mtu=mtu)
    assert str(caught.value).startswith(told)


def test_a_fabric_of_one_host_has_no_traffic() -> None:
    with pytest.raises(UsageError, match="^--pattern permutation: hosts must be 2 to .*, not 1$"):
        pairs_of("permutation", ONE)
