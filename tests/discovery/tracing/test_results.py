"""The JSON of a trace."""

from __future__ import annotations

from dataclasses import replace

import jsonschema
import msgspec
from answers import recorded, traffic_of, truth

from rocescope.discovery.discover import discover_folder
from rocescope.discovery.tracing.results import TraceResult
from rocescope.discovery.tracing.trace import trace
from rocescope.report.files.results import encode, json_schema


def test_a_trace_fits_its_schema_and_has_a_row_per_flow(tmp_path):
    folder = recorded(tmp_path)
    fabric = discover_folder(folder / "healthy", 10**10, 500).fabric
    result = trace(traffic_of(fabric, truth(folder, "healthy")), fabric, [], ["x"])
    data = encode(result, "json")
    jsonschema.validate(msgspec.json.decode(data), json_schema("trace"))
    assert msgspec.json.decode(data, type=TraceResult) == result
    rows = encode(result, "csv").decode().splitlines()
    assert len(rows) == 1 + 256
    assert rows[0].startswith("flow,src,dst,src_port,dest_qp,packets,wire_bytes,complete,links")


def test_names_of_devices_are_no_formulas_in_a_spreadsheet(tmp_path):
    folder = recorded(tmp_path)
    fabric = discover_folder(folder / "healthy", 10**10, 500).fabric
    names = ("=1+1" if name == "h1" else name for name in fabric.nodes.names)
    fabric = replace(fabric, nodes=fabric.nodes._replace(names=tuple(names)))
    flows = [flow for flow in truth(folder, "healthy") if flow["src"] == "10.1.1.10"]
    rows = encode(trace(traffic_of(fabric, flows), fabric, [], ["x"]), "csv").decode().splitlines()
    assert all(",'=1+1>leaf1 " in row for row in rows[1:])
    assert len(rows) > 1
