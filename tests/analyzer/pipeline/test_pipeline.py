"""The pipeline as any source of packets drives it."""

from __future__ import annotations

import msgspec
import pytest
from captures import data

from rocescope.analyzer.pipeline.captures import analyze, open_captures
from rocescope.analyzer.pipeline.options import AnalyzeOptions
from rocescope.analyzer.pipeline.pipeline import Pipeline
from rocescope.analyzer.results.flow import Owner

OPTIONS = AnalyzeOptions()


class Fed(Pipeline):
    """A source with nothing of its own to tell but the summaries of the files it was fed from."""

    captures: list = []
    owners: dict = {}

    def summarize_captures(self, complete):
        return self.captures

    def find_host_owners(self):
        return self.owners


@pytest.fixture
def fed():
    """A pipeline that got the packets of c10 by hand, and the analysis of the file."""
    path = str(data("c10"))
    with open_captures([path], OPTIONS) as files:
        pipeline = Fed(OPTIONS, files.registry, many_taps=False)
        pipeline.measuring.tracker.see_taps(1)
        for table, messages in files._tables():
            pipeline.measuring.date_taps(files.registry.taps)
            pipeline.take(pipeline.filter_packets(table), messages)
    analysis = analyze([path], OPTIONS)
    pipeline.captures = analysis.captures
    return pipeline, analysis


def test_whoever_feeds_the_packets_the_conclusions_are_the_same(fed):
    pipeline, analysis = fed
    assert pipeline.packets == analysis.captures[0].roce_packets
    assert msgspec.json.encode(pipeline.conclude(complete=True)) == msgspec.json.encode(analysis)


def test_a_glance_shows_single_flows_and_changes_nothing(fed):
    pipeline, analysis = fed
    paired = next(flow for flow in analysis.flows if flow.connection is not None)
    flow = pipeline.glance().flow(paired.id)
    assert (flow.src, flow.packets) == (paired.src, paired.packets)
    assert flow.connection is None
    assert msgspec.json.encode(pipeline.conclude(complete=True)) == msgspec.json.encode(analysis)


def test_owners_of_the_source_reach_the_flows(fed):
    pipeline, _ = fed
    owner = Owner(4711, "python", 3, "destination")
    pipeline.owners = {0: owner}
    assert pipeline.find_owners() == {0: owner}
    assert pipeline.conclude(complete=True).flows[0].owner == owner


def test_a_limit_and_an_interruption_are_warned_of(fed):
    pipeline, _ = fed
    assert pipeline.conclude(complete=False).warnings[0].startswith("interrupted")
    pipeline.ended_by = "too much"
    assert pipeline.conclude(complete=False).warnings[0] == "ended early: too much"
