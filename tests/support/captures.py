"""The bundled real captures, tracked, and what is known of them independently."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path

import numpy as np

from rocescope.analyzer.capture.source import open_capture
from rocescope.analyzer.decode.decoder import Decoder
from rocescope.analyzer.decode.merge import merge_tables
from rocescope.analyzer.track.pairing import CmPairs, settle
from rocescope.analyzer.track.tracker import FlowTracker
from rocescope.analyzer.wire.registry import Registry

DATA = Path(__file__).parents[1] / "data"


def data(name):
    """The one bundled file whose name begins so."""
    (found,) = sorted(p for p in DATA.glob(f"{name}*") if ".json" not in p.name)
    return found


def truth(name):
    """(run, facts): the JSON files beside the capture."""
    stem = data(name).name.split(".at")[0] if ".at" in name else name
    (run,) = [p for p in DATA.glob(f"{stem}*.json") if "facts" not in p.name]
    (facts,) = DATA.glob(f"{stem}*.facts.json")
    return json.loads(run.read_text()), json.loads(facts.read_text())


class Tracked:
    """A tracker that has seen whole captures."""

    def __init__(self, paths, batch_frames=1 << 16):
        registry = Registry()
        self.endpoints = registry.endpoints
        self.tracker, self.cm = FlowTracker(), CmPairs()
        captures = [open_capture(str(p), registry.taps, batch_frames=batch_frames) for p in paths]
        decoders = [Decoder(registry) for _ in captures]
        sources = [
            (d.decode(frames) for frames in c.batches())
            for c, d in zip(captures, decoders, strict=True)
        ]
        verdicts = []
        for table in merge_tables(sources):
            verdicts.append(self.tracker.update(table).verdict)
            self.cm.note([m for d in decoders for m in d.take_cm_messages()])
        self.verdicts = np.concatenate(verdicts)
        settle(self.tracker, self.cm)

    def total(self, field, which=None):
        """Sum of a stream's field over all flows (and both streams)."""
        streams = self.tracker.state.streams[: 2 * len(self.tracker)]
        return int((streams if which is None else streams[which::2])[field].sum())

    def missing(self):
        """Missing PSNs of all flows."""
        return sum(self.tracker.missing(f, w)[0] for f in range(len(self.tracker)) for w in (0, 1))

    def keys(self):
        """(source, destination, destination QPN) of every flow."""
        text = self.endpoints.text
        return [(text(f["src"]), text(f["dst"]), int(f["dest_qp"])) for f in self.tracker.flows]


@cache
def tracked(*names, batch_frames=1 << 16):
    """The tracker after these captures, as several taps."""
    return Tracked([data(n) for n in names], batch_frames)
