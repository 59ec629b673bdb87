"""Models that jobs train: layers with their gradients and compute times.

Sizes of real models follow from the layers of their papers: AlexNet (one tower, arXiv:1404.5997;
61,100,840 parameters), VGG-16 (arXiv:1409.1556; 138,357,544), ResNet-50 (arXiv:1512.03385;
25,557,032), BERT-base (arXiv:1810.04805; 109,482,240). How the compute time spreads over layers is
assumed: a third forward, then the layers backward in equal parts.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final


def _resnet50() -> tuple[int, ...]:
    """Convolutions and normalisations by block; each block is one layer here."""
    blocks, channels = [64 * 3 * 49 + 128], 64
    for width, count in ((64, 3), (128, 4), (256, 6), (512, 3)):
        for block in range(count):
            size = channels * width + 9 * width * width + 4 * width * width + 12 * width
            if block == 0:
                size += channels * 4 * width + 8 * width
            blocks.append(size)
            channels = 4 * width
    return (*blocks, 2048 * 1000 + 1000)


_BLOCK = 4 * (768 * 768 + 768) + (768 * 3072 + 3072) + (3072 * 768 + 768) + 4 * 768
MODELS: Final[Mapping[str, tuple[int, ...]]] = {
    "alexnet": (23_296, 307_392, 663_936, 884_992, 590_080, 37_752_832, 16_781_312, 4_097_000),
    "vgg16": (
        1_792, 36_928, 73_856, 147_584, 295_168, 590_080, 590_080, 1_180_160, 2_359_808,
        2_359_808, 2_359_808, 2_359_808, 2_359_808, 102_764_544, 16_781_312, 4_097_000,
    ),
    "resnet50": _resnet50(),
    "bert-base": (23_837_184, *[_BLOCK] * 12, 768 * 768 + 768),
}  # fmt: skip
"""Parameters per layer, from the front to the back."""
SYNTHETIC: Final[Mapping[str, float]] = {"comm": 2.0, "comp": 0.5}
"""Communication-heavy and computation-heavy: time on the line over time of computing."""
