"""What a layer's summary counts, on neurons whose numbers are known."""

import pytest
import torch
from torch import nn

from nero.core.sphere import BALANCED
from nero.diagnostics.angle import measure
from nero.diagnostics.neurons import NamedNeurons
from nero.diagnostics.summary import summarize
from nero.layout import neurons


def summary(before, after):
    param = nn.Parameter(before)
    each = NamedNeurons("weight", param, neurons(0).at(param.shape), BALANCED)
    return summarize(measure(before, after, None), each, too_far=1.0)


def test_a_tiny_turn_is_not_standing_still():
    before = torch.tensor([[1.0, 0.0], [1.0, 0.0]], dtype=torch.float64)
    after = torch.tensor([[1.0, 1e-9], [1.0, 0.0]], dtype=torch.float64)
    assert summary(before, after)["num_still"] == 1


def test_drift_of_the_mean_is_the_cosine_to_a_constant():
    after = torch.tensor([[2.0, 2.0, 2.0, 2.0], [1.0, -1.0, 1.0, -1.0]])
    assert summary(after, after)["mean_drift"] == pytest.approx(1.0)
    assert summary(after[1:], after[1:])["mean_drift"] == 0
