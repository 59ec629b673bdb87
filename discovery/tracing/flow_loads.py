"""Loads in flows where bytes are not known: what a result of strategies tells without bytes."""

from __future__ import annotations

from ...replay.results.replay import DeviceLoad, LayerLoad, ReplayResult
from .results import DeviceFlows, FlowLoads, LayerFlows, LinkFlows


def flow_loads(result: ReplayResult) -> list[FlowLoads]:
    """The loads of every strategy in flows."""
    return [
        FlowLoads(
            name=strategy.name,
            fim_percent=strategy.fim_percent,
            layers=[_layer(layer) for layer in strategy.layers if layer.choice],
            links=[
                LinkFlows(name=link.name, layer=link.layer, flows=link.flows)
                for link in sorted(strategy.links, key=lambda link: -(link.flows or 0))
            ],
        )
        for strategy in result.strategies
    ]


def _layer(layer: LayerLoad) -> LayerFlows:
    return LayerFlows(
        layer=layer.layer,
        links=layer.links,
        idle_links=layer.idle_links,
        flows=layer.flows,
        fim_flows_percent=layer.fim_flows_percent,
        fim_flows_best_percent=layer.fim_flows_best_percent,
        fim_chance_percent=layer.fim_chance_percent,
        devices=[_device(device) for device in layer.devices],
    )


def _device(device: DeviceLoad) -> DeviceFlows:
    return DeviceFlows(
        switch=device.switch,
        links=device.links,
        flows=device.flows,
        fim_flows_percent=device.fim_flows_percent,
        fim_flows_best_percent=device.fim_flows_best_percent,
    )
