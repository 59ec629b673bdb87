"""The registry: every hash model by name, with its settings."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import TypeAlias

import numpy as np
from numpy.typing import ArrayLike

from ...analyzer.errors import UsageError
from ...kernels.kernel import UInt32s
from . import functions, linux
from . import keys as key_fields
from .bound import BoundHash
from .keys import KeyBytes, PacketKeys
from .seeded import Fill, LinearHash, SeededHash, Shape
from .settings import REDUCTIONS, SEED_USES, HashSettings, Knob

Linear: TypeAlias = Callable[[KeyBytes, HashSettings, int], UInt32s]
"""uint32[n]: values of rows of bytes; the last argument is XORed into the start value."""
Seeded: TypeAlias = Callable[[KeyBytes, bool], Fill]
"""Fills in the values of rows of bytes; whether the seed is prepended."""


@dataclass(frozen=True)
class HashModel:
    """A hash function a switch may have: linear in its seed, seeded, or the Linux kernel's."""

    name: str
    help: str
    source: str
    bits: int = 32
    half: str = ""
    """lo or hi: only these 16 bits are used."""
    knobs: tuple[Knob, ...] = ()
    """Settings for `HashSettings.extra`."""
    linear: Linear | None = None
    seeded: Seeded | None = None

    def bind(
        self, keys: PacketKeys, settings: HashSettings, ingress_port: ArrayLike | None = None
    ) -> BoundHash:
        """Prepare keys; `ingress_port` is one number or one per unit.

        UsageError for settings the model does not have.
        """
        self._check(settings)
        if self.linear is None and self.seeded is None:
            return linux.LinuxHash(keys, settings)
        if settings.symmetric:
            keys = key_fields.symmetric(keys)
        data = key_fields.fields_matrix(keys, settings.field_set, ingress_port)
        shape = Shape(self.bits, self.half, settings.rotate, settings.offset)
        reduction = settings.reduction or "modulo"
        if self.seeded is not None and settings.seed_use != "xor":
            fill = self.seeded(data, settings.seed_use == "prepend")
            return SeededHash(keys.units, fill, shape, reduction)
        evaluate = partial(self._evaluate, settings, shape)
        return LinearHash(data, evaluate, shape.bits, reduction)

    def _evaluate(self, settings: HashSettings, shape: Shape, data: KeyBytes, seed: int) -> UInt32s:
        """uint32[n]: finished values under one seed that acts linearly."""
        if settings.seed_use == "prepend":
            front = np.tile(np.frombuffer(seed.to_bytes(4, "big"), np.uint8), (len(data.data), 1))
            data = KeyBytes(np.concatenate([front, data.data], axis=1), data.lengths + 4)
        if self.linear is not None:
            start = seed if settings.seed_use == "init" else 0
            values = self.linear(data, settings, start)[None]
        else:
            assert self.seeded is not None
            values = np.empty((1, len(data.data)), np.uint32)
            self.seeded(data, False)(np.zeros(1, np.uint32), values)
        shape.apply(values, seed if settings.seed_use == "xor" else 0)
        finished: UInt32s = values[0]
        return finished

    def _check(self, settings: HashSettings) -> None:
        for name, value in settings.extra.items():
            knob = next((k for k in self.knobs if k.name == name), None)
            if knob is None:
                known = ", ".join(k.name for k in self.knobs) or "no settings"
                raise UsageError(f"hash {self.name} has no setting {name!r} (it has {known})")
            if knob.choices and str(value) not in knob.choices:
                raise UsageError(f"{name}={value}: use {', '.join(knob.choices)}")
        if settings.seed_use not in SEED_USES:
            raise UsageError(f"seed use {settings.seed_use!r}: use {', '.join(SEED_USES)}")
        if settings.reduction is not None and settings.reduction not in REDUCTIONS:
            raise UsageError(f"reduction {settings.reduction!r}: use {', '.join(REDUCTIONS)}")


_BROADCOM = "Broadcom SDK, RTAG7 hash functions"
_SAI = "SAI sai_hash_algorithm_t"
_DELL = "Dell OS9 hash-algorithm"
_REVENG = "Catalogue of parametrised CRC algorithms"


def _crc(parameters: functions.Crc) -> Linear:
    return lambda data, settings, start: functions.crc(parameters, data, start)


def _crc_xor(data: KeyBytes, settings: HashSettings, start: int) -> UInt32s:
    bits = int(settings.extra.get("fold", 8))
    return functions.crc(functions.CRC16_BISYNC, data, start) ^ functions.fold(data, bits)


def _toeplitz(data: KeyBytes, settings: HashSettings, start: int) -> UInt32s:
    return functions.toeplitz(
        data, functions.key_of(str(settings.extra.get("key", "microsoft"))), start
    )


def _fold(bits: int) -> Linear:
    return lambda data, settings, start: functions.fold(data, bits, start)


_ALL = [
    HashModel(
        "linux",
        "a Linux router, exactly (seeded since 6.11)",
        "Linux net/ipv4/route.c, net/ipv6/route.c",
        31,
        knobs=linux.KNOBS,
    ),
    HashModel(
        "crc16-ccitt",
        "CRC-16/XMODEM",
        f"{_REVENG}; {_BROADCOM}; {_SAI} CRC_CCITT",
        16,
        linear=_crc(functions.CRC16_CCITT),
    ),
    HashModel(
        "crc16-bisync",
        "CRC-16/ARC",
        f"{_REVENG}; {_BROADCOM}",
        16,
        linear=_crc(functions.CRC16_BISYNC),
    ),
    *(
        HashModel(
            f"{name}{'-' if half else ''}{half}",
            f"{title}{words}",
            f"{_REVENG}; {_BROADCOM}; {_SAI} CRC_32LO, CRC_32HI",
            half=half,
            linear=_crc(parameters),
        )
        for name, title, parameters in (
            ("crc32", "CRC-32 of Ethernet", functions.CRC32),
            ("crc32c", "CRC-32C (Castagnoli)", functions.CRC32C),
        )
        for half, words in (("", ""), ("lo", ", lower 16 bits"), ("hi", ", upper 16 bits"))
    ),
    HashModel(
        "crc-xor",
        "CRC-16/ARC XORed with an XOR fold",
        f"{_BROADCOM} CRC16XOR1 to CRC16XOR8, {_SAI} CRC_XOR (their combination is inferred)",
        16,
        knobs=(Knob("fold", 8, "bits of the XOR fold", ("1", "2", "4", "8", "16"), _BROADCOM),),
        linear=_crc_xor,
    ),
    *(
        HashModel(
            f"xor{bits}",
            f"XOR of all pieces of {bits} bits",
            f"{_DELL}; {_SAI} XOR",
            bits,
            linear=_fold(bits),
        )
        for bits in functions.FOLD_BITS
    ),
    HashModel(
        "toeplitz",
        "Toeplitz (receive-side scaling)",
        "Microsoft, RSS hashing functions",
        knobs=(Knob("key", "microsoft", "microsoft, symmetric, or hexadecimal"),),
        linear=_toeplitz,
    ),
    *(
        HashModel(
            f"jenkins{'-' if half else ''}{half}",
            f"lookup3{words}",
            f"Bob Jenkins, lookup3.c; {_SAI} JENKINS_LO, JENKINS_HI",
            half=half,
            seeded=functions.prepare_jenkins,
        )
        for half, words in (("", ""), ("lo", ", lower 16 bits"), ("hi", ", upper 16 bits"))
    ),
    HashModel("fnv1a", "FNV-1a", "RFC 9923", seeded=functions.prepare_fnv1a),
    HashModel(
        "random-oracle", "ideal random hashing", "splitmix64", seeded=functions.prepare_oracle
    ),
]

MODELS: dict[str, HashModel] = {model.name: model for model in _ALL}
"""Every model by name."""


def bind(
    keys: PacketKeys, settings: HashSettings, ingress_port: ArrayLike | None = None
) -> BoundHash:
    """Prepare keys for the model of the settings. UsageError for an unknown model or setting."""
    model = MODELS.get(settings.model)
    if model is None:
        raise UsageError(f"unknown hash {settings.model!r}: use {', '.join(MODELS)}")
    return model.bind(keys, settings, ingress_port)
