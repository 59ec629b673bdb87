"""`--model`: packets, queues, and when captured packets are offered."""

from __future__ import annotations

from typing import Any

from ....analyzer.errors import UsageError
from ....analyzer.key_values import only_known, parse_options
from ....analyzer.units import parse_size
from ...packets.model.model import Model
from .shape import SHAPE
from .values import share, size, whole
from .words import ASAP, CAPTURED

_SIZES = {
    "mtu": "payload_bytes",
    "header": "header_bytes",
    "ack": "ack_bytes",
    "gap": "gap_bytes",
    "buffer": "buffer_bytes",
    "trim": "trim_bytes",
}
KEYS = (
    *_SIZES,
    "drop",
    "jitter",
    "ack-every",
    "ecn",
    "ecn-last-hop",
    "forwarding",
    "offer",
    *SHAPE,
)
CUT_THROUGH, STORE = "cut-through", "store"
"""Values of forwarding."""


def parse_model(text: str, offer: str = CAPTURED) -> tuple[Model, bool]:
    """(model, whether packets are offered at captured times) from `buffer=800kB,ecn=80kB+320kB`.

    offer: the default for the key offer. UsageError names the key and its valid values.
    """
    options = parse_options(text, "--model")
    only_known(options, KEYS, "--model has no")
    values: dict[str, Any] = {}
    for key, field in _SIZES.items():
        if key in options:
            values[field] = size(options[key], f"--model: {key}")
    if "drop" in options:
        values["drop"] = options["drop"]
    if "jitter" in options:
        values["jitter"] = share(options["jitter"], "--model: jitter")
    if "ack-every" in options:
        values["ack_every"] = whole(options["ack-every"], "--model: ack-every")
    if "ecn" in options:
        low, *others = options["ecn"].split("+")
        if len(others) > 2:
            raise UsageError(
                f"--model: ecn={options['ecn']}: use Kmin, Kmin+Kmax or Kmin+Kmax+Pmax%"
            )
        values["ecn_low_bytes"] = parse_size(low, "--model: ecn")
        values["ecn_high_bytes"] = parse_size(others[0] if others else low, "--model: ecn")
        if len(others) == 2:
            values["ecn_most"] = share(others[1], "--model: ecn")
    if "ecn-last-hop" in options:
        wanted = options["ecn-last-hop"]
        if wanted not in ("yes", "no"):
            raise UsageError(f"--model: ecn-last-hop={wanted}: use yes or no")
        if "ecn" not in options:
            raise UsageError("--model: ecn-last-hop needs ecn")
        values["ecn_last_hop"] = wanted == "yes"
    forwarding = options.get("forwarding", STORE)
    if forwarding not in (CUT_THROUGH, STORE):
        raise UsageError(f"--model: forwarding={forwarding}: use {STORE} or {CUT_THROUGH}")
    values["cut_through"] = forwarding == CUT_THROUGH
    offer = options.get("offer", offer)
    if offer not in (CAPTURED, ASAP):
        raise UsageError(f"--model: offer={offer}: use captured (times of the capture) or asap")
    try:
        model = Model(**values)
    except UsageError as error:
        raise UsageError(_with_keys(str(error))) from None
    if "drop" in options and model.buffer_bytes is None:
        raise UsageError("--model: drop needs buffer: unlimited queues do not drop")
    if model.buffer_bytes is not None and (model.ecn_low_bytes or 0) >= model.buffer_bytes:
        raise UsageError(
            f"--model: ecn: Kmin ({model.ecn_low_bytes:,} B) is not below buffer "
            f"({model.buffer_bytes:,} B): no packet would be marked"
        )
    if model.trim_bytes is not None:
        packet = model.payload_bytes + model.header_bytes
        if model.buffer_bytes is None:
            raise UsageError("--model: trim needs buffer: unlimited queues do not trim")
        if model.trim_bytes >= packet:
            raise UsageError(f"--model: trim must be less than a packet of {packet:,} B")
    return model, offer == CAPTURED


def _with_keys(text: str) -> str:
    """Check a model; UsageError names the option."""
    for key, field in {**_SIZES, "ack-every": "ack_every", "ecn: Pmax": "ecn_most"}.items():
        text = text.replace(field, key)
    return f"--model: {text}"
