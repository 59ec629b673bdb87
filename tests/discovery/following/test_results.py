"""The JSON of events."""

from __future__ import annotations

import jsonschema
import msgspec

from rocescope.discovery.following.results import FollowEvent, Move


def test_an_event_fits_its_schema_and_comes_back():
    move = Move(
        flow=1, src="10.0.0.1", dst="10.0.0.2", src_port=49152, dest_qp=7,
        before=["h1>leaf1"], after=[], ends_because="no route",
    )  # fmt: skip
    event = FollowEvent(
        time="2026-01-01T00:00:00.000+00:00", kind="changed", devices=["leaf1"], flows=2,
        seconds=0.5, complete_flows=1, moved_flows=1, moves=[move], fim_percent=None,
        lost_devices=[],
    )  # fmt: skip
    data = msgspec.json.encode(event)
    jsonschema.validate(msgspec.json.decode(data), msgspec.json.schema(FollowEvent))
    assert msgspec.json.decode(data, type=FollowEvent) == event
