"""The JSON of a discovery."""

from __future__ import annotations

import jsonschema
import msgspec
from answers import recorded

from rocescope.discovery.discover import discover_folder
from rocescope.discovery.results import Discovery


def test_a_report_fits_its_schema_and_comes_back(tmp_path):
    report = discover_folder(recorded(tmp_path) / "flapped", 10**10, 500).report
    data = msgspec.json.encode(report)
    jsonschema.validate(msgspec.json.decode(data), msgspec.json.schema(Discovery))
    assert msgspec.json.decode(data, type=Discovery) == report
