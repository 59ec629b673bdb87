"""The running agent: readings at intervals, and answers to requests from the last one."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from http import HTTPStatus

import msgspec
from prometheus_client import CollectorRegistry, Metric
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.exposition import choose_encoder
from prometheus_client.process_collector import ProcessCollector

from ..analyzer.errors import CaptureError, UsageError
from ..analyzer.words import printable_json
from .findings import AgentDiagnosis, AgentFinding, Flows, QueuePairs
from .metrics import State, families
from .readings import MOST_QUEUE_PAIRS, MOST_TOP, Readings
from .server import Answer, Request

_JSON = "application/json; charset=utf-8"
_STALE_INTERVALS, _STALE_S = 3, 10.0
_DEFAULT_TOP = 20
_MOST_SHARE = 60
"""A reading that takes long is repeated after this many times as long: 1.7 percent of a core."""
_MOST_PAUSE_S = 15.0
"""But not later: a burst of flows must not hide what follows it."""
_SLOW, _SLOW_S = 2, 5.0
"""Readings more than so many times further apart than asked for, and by seconds, are said."""
_SLOWLY = (
    "there are so many flows that readings are up to {:g} s apart, not {:g} s: findings come later,"
    " and shorter faults may be missed"
)
_INDEX = b"""rocescope agent
/metrics            Prometheus and OpenMetrics
/flows?top=20       the worst flows, as JSON
/queue-pairs?top=20 queue pairs of this host, as JSON
/diagnosis          findings of the last minute, as JSON
/healthy            200 while readings are recent
"""
_END = b"# EOF\n"


@dataclass(frozen=True, slots=True)
class Snapshot:
    """One reading, as requests see it."""

    state: State
    flows: Flows
    queue_pairs: QueuePairs
    diagnosis: AgentDiagnosis
    read_at: float
    """time.monotonic()"""
    encoded: dict[str, bytes]
    """Metrics by content type, as far as they were asked for."""


class Agent:
    """Reads at every interval, in one thread; `answer` may be called from any thread."""

    def __init__(
        self,
        readings: Readings,
        interval_s: float,
        record: Callable[[AgentFinding], None] | None = None,
    ) -> None:
        self._readings, self._interval_s, self._record = readings, interval_s, record
        self._pause_s = interval_s
        """Between readings at present."""
        self._stopping = threading.Event()
        self._lock = threading.Lock()
        self._process = CollectorRegistry()
        ProcessCollector(registry=self._process)
        self._snapshot = self._taken()

    def stop(self) -> None:
        """End `run` soon."""
        self._stopping.set()

    def run(self, check: Callable[[], None] = lambda: None) -> None:
        """Read until `stop`; CaptureError when all interfaces have gone.

        check: called after every reading.
        """
        due = time.monotonic()
        while True:
            due = max(due + self._pause_s, time.monotonic())
            if self._stopping.wait(due - time.monotonic()):
                return
            spent = time.thread_time()
            for finding in self._readings.read():
                if self._record is not None:
                    self._record(finding)
            self._snapshot = self._taken()
            pause_s = min(_MOST_SHARE * (time.thread_time() - spent), _MOST_PAUSE_S)
            self._pause_s = max(self._interval_s, pause_s)
            slow = _is_slow(self._pause_s, self._interval_s)
            self._readings.slow = _SLOWLY.format(_MOST_PAUSE_S, self._interval_s) if slow else ""
            check()
            if self._readings.all_gone:
                raise CaptureError("all interfaces have disappeared or lost their probes")

    def _taken(self) -> Snapshot:
        readings = self._readings
        return Snapshot(
            state=readings.state,
            flows=readings.top_flows(MOST_TOP),
            queue_pairs=readings.queue_pairs(MOST_QUEUE_PAIRS),
            diagnosis=readings.diagnosis(),
            read_at=time.monotonic(),
            encoded={},
        )

    def answer(self, request: Request) -> Answer:
        """What a request gets, from the last reading. UsageError for a bad query."""
        snapshot = self._snapshot
        match request.path:
            case "/metrics":
                return self._metrics(snapshot, request.accept)
            case "/flows":
                flows = snapshot.flows
                return _json(
                    msgspec.structs.replace(flows, flows=flows.flows[: _top(request, MOST_TOP)])
                )
            case "/queue-pairs":
                pairs = snapshot.queue_pairs
                kept = pairs.queue_pairs[: _top(request, MOST_QUEUE_PAIRS)]
                return _json(msgspec.structs.replace(pairs, queue_pairs=kept))
            case "/diagnosis":
                return _json(snapshot.diagnosis)
            case "/healthy":
                return self._healthy(snapshot)
            case "/":
                return Answer(_INDEX)
            case _:
                return Answer(b"not found\n", status=HTTPStatus.NOT_FOUND)

    def _healthy(self, snapshot: Snapshot) -> Answer:
        age = time.monotonic() - snapshot.read_at
        if age > _STALE_INTERVALS * self._pause_s + _STALE_S:
            line = f"the last reading is {age:.0f} s old\n".encode()
            return Answer(line, status=HTTPStatus.SERVICE_UNAVAILABLE)
        return Answer(b"ok\n")

    def _metrics(self, snapshot: Snapshot, accept: str) -> Answer:
        """The reading is encoded once per format, however many ask for it."""
        try:
            encode, content_type = choose_encoder(accept)
        except (TypeError, ValueError):  # a version that is no number
            encode, content_type = choose_encoder("")
        with self._lock:
            body = snapshot.encoded.get(content_type)
            if body is None:
                body = encode(_Collected(partial(families, snapshot.state)))
                snapshot.encoded[content_type] = body
            age = time.monotonic() - snapshot.read_at
            paces = self._pause_s, self._interval_s
            now = encode(_Collected(partial(_now, age, *paces, self._process)))
        return Answer(now.removesuffix(_END) + body, content_type)


class _Collected(CollectorRegistry):
    """What an encoder takes: metrics, made when they are asked for."""

    def __init__(self, collect: Callable[[], list[Metric]]) -> None:
        super().__init__()
        self._collect = collect

    def collect(self) -> list[Metric]:
        return self._collect()


def _is_slow(pause_s: float, interval_s: float) -> bool:
    return pause_s > max(_SLOW * interval_s, _SLOW_S)


def _now(
    age_s: float, pause_s: float, interval_s: float, process: CollectorRegistry
) -> list[Metric]:
    """What is true at the time of a request."""
    age = GaugeMetricFamily(
        "rocescope_data_age_seconds", "Time since the last reading", value=round(age_s, 3)
    )
    pause = GaugeMetricFamily(
        "rocescope_interval_seconds",
        "Time between readings: --interval, or longer where a reading takes long",
        value=round(pause_s, 3),
    )
    slow = GaugeMetricFamily(
        "rocescope_slow_readings",
        "1: readings are more than 5 s, and more than twice --interval, apart",
        value=int(_is_slow(pause_s, interval_s)),
    )
    return [age, pause, slow, *process.collect()]


def _json(record: msgspec.Struct) -> Answer:
    return Answer(printable_json(msgspec.json.encode(record)) + b"\n", _JSON)


def _top(request: Request, most: int) -> int:
    text = request.query.get("top", str(_DEFAULT_TOP))
    if not (text.isascii() and text.isdigit() and 1 <= int(text[:9]) <= most):
        raise UsageError(f"top takes a number from 1 to {most}")
    return int(text)
