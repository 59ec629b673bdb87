"""Loads in flows against a count by hand."""

from __future__ import annotations

from collections import Counter

from answers import recorded, traffic_of, truth

from rocescope.discovery.discover import discover_folder
from rocescope.discovery.tracing.flow_loads import flow_loads
from rocescope.discovery.tracing.trace import trace


def test_flows_per_link_and_layer(tmp_path):
    folder = recorded(tmp_path)
    fabric = discover_folder(folder / "healthy", 10**10, 500).fabric
    result = trace(traffic_of(fabric, truth(folder, "healthy")), fabric, [], ["x"])
    (traced,) = flow_loads(result.loads)
    counts = Counter(link for flow in result.flows for link in flow.links)
    assert {one.name: one.flows for one in traced.links if one.flows} == dict(counts)
    most = [one.flows for one in traced.links]
    assert most == sorted(most, reverse=True)
    assert traced.layers
    for layer in traced.layers:
        own = [one.flows for one in traced.links if one.layer == layer.layer]
        assert (layer.links, layer.flows) == (len(own), sum(own))
        assert layer.flows == sum(device.flows for device in layer.devices)
