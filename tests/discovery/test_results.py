"""What was asked of devices."""

from __future__ import annotations

import jsonschema
import msgspec
import pytest
from answers import recorded

from rocescope.analyzer.errors import UsageError
from rocescope.discovery.discover import discover_folder
from rocescope.discovery.results import (
    ASKED,
    Asked,
    AskedCommand,
    Discovery,
    read_asked,
    write_asked,
)

# What was asked of devices.

ROUTE = AskedCommand(
    suffix="route.json", command="ip -j route", began_ns=1, ended_ns=5, output_bytes=9, problem=""
)
LLDP = AskedCommand(
    suffix="lldp.json", command="lldpctl", began_ns=2, ended_ns=6, output_bytes=0, problem="refused"
)


def test_it_comes_back_as_it_was_written(tmp_path):
    asked = {
        "leaf1": Asked(dialect="linux", kind="switch", ssh="leaf1", answers=[ROUTE, LLDP]),
        "h1": Asked(dialect="linux", kind="host", ssh="h1", problem="no answer"),
    }
    write_asked(tmp_path, asked)
    assert read_asked(tmp_path) == asked


def test_problems_and_times_of_questions():
    one = Asked(dialect="linux", kind="switch", ssh="leaf1", answers=[ROUTE, LLDP])
    assert [one.problem_of(s) for s in ("route.json", "lldp.json", "sysctl")] == ["", "refused", ""]
    assert [one.time_ns(s) for s in ("route.json", "sysctl")] == [5, None]


def test_no_file_and_other_content(tmp_path):
    assert read_asked(tmp_path) == {}
    asked = Asked(dialect="linux", kind="switch", ssh="leaf1", answers=[ROUTE])
    write_asked(tmp_path, {"leaf1": asked})
    good = (tmp_path / ASKED).read_bytes()
    huge = good.replace(b'"ended_ns": 5', b'"ended_ns": %d' % 10**24)
    early = good.replace(b'"ended_ns": 5', b'"ended_ns": -5')
    assert good not in (huge, early)
    other = (b"[", b"[]", b'{"leaf1": {"dialect": 1}}', b"\xff", b"[" * 100_000)
    for content in (*other, huge, early):
        (tmp_path / ASKED).write_bytes(content)
        with pytest.raises(UsageError, match=r"asked.json: not a list of asked devices"):
            read_asked(tmp_path)


# The JSON of a discovery.


def test_a_report_fits_its_schema_and_comes_back(tmp_path):
    report = discover_folder(recorded(tmp_path) / "flapped", 10**10, 500).report
    data = msgspec.json.encode(report)
    jsonschema.validate(msgspec.json.decode(data), msgspec.json.schema(Discovery))
    assert msgspec.json.decode(data, type=Discovery) == report
