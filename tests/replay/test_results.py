"""Results of `aggregate` as JSON."""

from __future__ import annotations

import msgspec

from rocescope.replay.results import LinkBytes


def test_records_are_json_objects_with_the_names_of_their_fields():
    link = LinkBytes(link="leaf1>host1", wire_bytes=306.0)
    assert msgspec.json.encode(link) == b'{"link":"leaf1>host1","wire_bytes":306.0}'
