"""Events of the tracker, of connection management and of traffic classes."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import numpy as np

from ..decode.control import GENERAL_SERVICES_QP, CmMessage
from ..measures.congestion import dscp_outliers
from ..measures.measuring import Measuring
from ..results.base import Event
from ..track import state as st
from ..track.pairing import service_name
from ..wire.bth import NAK_NAMES
from .hidden import PSN_EVENTS
from .names import Names


def first_events(
    measuring: Measuring,
    names: Names,
    sampled: Collection[str],
    mrc_events: list[Event],
    limit: int,
) -> tuple[list[Event], int]:
    """The first `limit` events in capture order, and the number of further events.

    Findings about the whole capture are first. sampled: names of the taps with samples only, where
    gaps between samples look like PSN jumps.
    """
    used = measuring.tracker.state.used
    known = int(used[st.USED_EVENTS])
    shown = min(known, limit)
    omitted = known - shown + int(used[st.OMITTED_EVENTS])
    in_order = [
        event
        for event in tracked_events(measuring, names, 0, shown)
        if event.kind not in PSN_EVENTS or event.tap not in sampled
    ]
    in_order += cm_events(measuring, names)
    in_order += mrc_events
    omitted += measuring.mrc.omitted
    in_order.sort(key=lambda event: event.time_ns)
    omitted += max(len(in_order) - limit, 0) + measuring.cm.omitted
    return _odd_dscps(measuring, names) + in_order[:limit], omitted


def tracked_events(measuring: Measuring, names: Names, first: int, stop: int) -> list[Event]:
    """Tracked events number `first` up to `stop`, in the order of detection."""
    return [_event(event, names) for event in measuring.tracker.state.events[first:stop]]


def _event(event: Any, names: Names) -> Event:
    """One record of the tracker."""
    kind, value = st.EVENT_NAMES[event["kind"]], int(event["value"])
    where = names.flow(int(event["flow"]))
    psn = int(event["psn"])
    if kind == "nak":
        text = f"{where}: NAK, {NAK_NAMES.get(value, f'code 0x{value:02x}')}, PSN {psn}"
    elif kind == "rnr_nak":
        text = f"{where}: RNR NAK, PSN {psn}"
    elif kind == "rewind":
        text = f"{where}: retransmits from PSN {psn} ({st.TRIGGER_NAMES[value]})"
    else:
        text = f"{where}: PSN jumps to {psn}: the queue pair restarted or packets were not captured"
    return Event(
        time_ns=int(event["time"]),
        kind=kind,
        flow=int(event["flow"]),
        frame_number=int(event["frame_number"]),
        tap=names.taps[event["tap"]],
        text=text,
    )


def cm_events(measuring: Measuring, names: Names) -> list[Event]:
    """Connection setup and teardown (CM messages)."""
    return [
        Event(
            time_ns=message.time_ns,
            kind="cm",
            flow=None,
            frame_number=message.frame_number,
            tap=names.taps[message.tap],
            text=_cm_text(message, names.addresses),
        )
        for message in measuring.cm.messages
    ]


def _cm_text(message: CmMessage, addresses: list[str]) -> str:
    src, dst = addresses[message.src], addresses[message.dst]
    text = f"{src} > {dst}: CM {message.kind}"
    if message.qpn is not None:
        text += f", QP 0x{message.qpn:06x}"
    if message.starting_psn is not None:
        text += f", starting PSN {message.starting_psn}"
    if message.service_id is not None:
        text += f", service {service_name(message.service_id)}"
    if message.reason is not None:
        text += f", reason {message.reason}"
    return text


def _odd_dscps(measuring: Measuring, names: Names) -> list[Event]:
    """Queue pairs in another traffic class than comparable queue pairs."""
    flows = measuring.tracker.flows
    with_data = np.flatnonzero(
        (flows["payload_bytes"] > 0) & (flows["dest_qp"] != GENERAL_SERVICES_QP)
    ).tolist()
    usual = {f: measuring.congestion.usual_dscp(f) for f in with_data}
    known = {f: dscp for f, dscp in usual.items() if dscp is not None}
    events = []
    for finding in dscp_outliers(known, flows["src"], flows["dst"]):
        hosts = [names.addresses[h] for h in finding.hosts or ()]
        first = min(f for odd in finding.flows.values() for f in odd)
        events.append(
            Event(
                time_ns=int(flows[first]["first_time"]),
                kind="dscp",
                flow=first,
                frame_number=None,
                tap=None,
                text=finding.text(*hosts),
            )
        )
    return events
