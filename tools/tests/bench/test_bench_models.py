"""Are the models those that their names promise?"""

import pytest
import torch

from nero import describe
from nero_tools.models import MODELS


@pytest.mark.parametrize(
    ("name", "num_parameters"),
    [
        ("gpt2-124m", 124_439_808),
        ("gpt2-350m", 354_823_168),
        ("resnet50", 25_557_032),
        ("vit-b16", 86_567_656),  # torchvision's vit_b_16
        ("llama-1b", 1_100_048_384),  # TinyLlama
        ("mlp-100", 99 * 784**2 + 784 * 10),
    ],
)
def test_parameter_counts_are_those_of_the_originals(name, num_parameters):
    with torch.device("meta"):
        model = MODELS[name]()
    assert sum(p.numel() for p in model.parameters()) == num_parameters


@pytest.mark.parametrize("name", MODELS)
def test_every_layout_is_known(name):
    with torch.device("meta"):
        rows = describe(MODELS[name]()).rows
    assert not [row.name for row in rows if "not registered" in row.reason]


def test_the_gpt_can_be_trained():
    torch.manual_seed(0)
    model = MODELS["gpt-tiny"]()
    tokens = torch.randint(64, (2, 9))
    logits = model(tokens[:, :-1])
    torch.nn.functional.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten()).backward()
    assert all(p.grad.isfinite().all() for p in model.parameters())
    changed = tokens[:, :-1].clone()
    changed[:, -1] = (changed[:, -1] + 1) % 64
    # Causal: the last token is seen by the last position alone.
    assert torch.equal(model(changed)[:, :-1], logits[:, :-1])
