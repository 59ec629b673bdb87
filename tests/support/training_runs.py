"""Generated runs of training jobs for tests."""

from __future__ import annotations

from functools import cache

from rocescope.replay.fabrics.parse import parse_fabric
from rocescope.replay.training.faults import parse_faults, parse_taps
from rocescope.replay.training.jobs import parse_plan
from rocescope.replay.training.run import Settings
from rocescope.replay.training.truth import Made, make

FABRIC = parse_fabric("leaf-spine:leaves=2,spines=2,hosts=4,rate=1G,uplink_rate=2G,delay=1us")


@cache
def training_run(
    jobs: tuple[str, ...], faults: tuple[str, ...] = (), taps: str = "leaf1", seed: int = 1
) -> Made:
    """Jobs such as `job:kind=ddp`; the result is shared: do not change it."""
    plans = [parse_plan(text, number) for number, text in enumerate(jobs)]
    return make(
        plans,
        Settings(FABRIC, seed),
        lambda hosts: parse_faults(faults, plans, hosts, FABRIC),
        lambda hosts: parse_taps(taps, FABRIC, hosts),
    )
