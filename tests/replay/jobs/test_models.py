"""Sizes of models are the published ones."""

from __future__ import annotations

import pytest

from rocescope.replay.jobs.models import MODELS


@pytest.mark.parametrize(
    ("model", "parameters"),
    [
        ("alexnet", 61_100_840),
        ("vgg16", 138_357_544),
        ("resnet50", 25_557_032),
        ("bert-base", 109_482_240),
    ],
)
def test_layers_add_up_to_the_published_number(model, parameters):
    assert sum(MODELS[model]) == parameters
