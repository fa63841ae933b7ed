"""What Nero offers beyond the shared contract."""

import pytest
import torch
from torch import nn

from nero import Nero, Sphere, describe


def test_gain_penalty_is_a_term_of_the_loss():
    torch.manual_seed(0)
    by_option, by_loss = (nn.Sequential(nn.Linear(4, 3), nn.LayerNorm(3)) for _ in range(2))
    by_loss.load_state_dict(by_option.state_dict())
    x, penalty = torch.randn(8, 4), 0.3
    optimizers = Nero(by_option, gain_penalty=penalty), Nero(by_loss)
    for _ in range(20):
        for model, optimizer in zip((by_option, by_loss), optimizers, strict=True):
            optimizer.zero_grad()
            loss = (model(x) - 3).square().mean()
            if model is by_loss:
                loss = loss + penalty / 2 * (model[1].weight - 1).square().sum()
            loss.backward()
            optimizer.step()
    for p, q in zip(by_option.parameters(), by_loss.parameters(), strict=True):
        torch.testing.assert_close(p, q)


def test_gain_penalty_without_gains_is_a_warning():
    with pytest.warns(UserWarning, match="gain_penalty has no effect"):
        Nero(nn.LayerNorm(3).parameters(), gain_penalty=0.1)


def test_options_differ_per_group():
    model = nn.Sequential(nn.Linear(4, 3), nn.Linear(3, 2))
    optimizer = Nero(
        model,
        overrides=[
            ("1.weight", {"constraint": Sphere(radius=2.0), "lr": 0.0}),
            ("*.bias", {"beta": 0.9}),
        ],
    )
    torch.testing.assert_close(model[1].weight.norm(dim=1), torch.full((2,), 2.0))
    before = model[1].weight.detach().clone()
    model(torch.randn(5, 4)).square().mean().backward()
    optimizer.step()
    assert torch.equal(model[1].weight, before)
    assert {g["beta"] for g in optimizer.param_groups if g["role"] == "bias"} == {0.9}


def test_describe_counts_no_state_for_frozen_parameters():
    model = nn.Linear(4, 3)
    model.weight.requires_grad_(False)
    optimizer = Nero(model)
    held = sum(t.nbytes for state in optimizer.state.values() for t in state.values())
    assert describe(model).state_bytes == held


def test_overrides_need_a_model():
    with pytest.raises(TypeError, match="pass the model"):
        Nero(nn.Linear(3, 2).parameters(), overrides=[("weight", {"lr": 0.1})])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"weight_decay": 0.1}, "weight_decay must be 0 but is 0.1"),
        ({"beta": 1.0}, "Invalid beta value: 1.0"),
        ({"bias_scale": 0.0}, "Invalid bias_scale value: 0.0"),
        ({"gain_penalty": -1.0}, "Invalid gain_penalty value: -1.0"),
        ({"nonfinite": "ignore"}, "nonfinite must be one of"),
        ({"constraint": "cube"}, "constraint must be a Sphere or one of"),
        ({"fused": True}, "no fused kernel"),
        ({"lr": -1.0}, "Invalid learning rate: -1.0"),
        ({"lr": float("nan")}, "Invalid learning rate: nan"),
    ],
    ids=str,
)
def test_bad_options_are_errors_that_say_what_to_do(options, message):
    with pytest.raises(ValueError, match=message):
        Nero(nn.Linear(3, 2), **options)


def test_foreach_true_warns():
    with pytest.warns(UserWarning, match="foreach=True has no effect"):
        Nero(nn.Linear(3, 2), foreach=True)


def test_only_real_parameters_can_turn():
    with pytest.raises(TypeError, match="only real floating-point"):
        Nero([nn.Parameter(torch.ones(3, 3, dtype=torch.complex64))])


def resnet50():
    from transformers import ResNetConfig, ResNetForImageClassification

    return ResNetForImageClassification(ResNetConfig(num_labels=1000))


def gpt2_124m():
    from transformers import GPT2Config, GPT2LMHeadModel

    return GPT2LMHeadModel(GPT2Config())


@pytest.mark.parametrize(
    ("build", "num_parameters"), [(resnet50, 25_557_032), (gpt2_124m, 124_439_808)]
)
def test_state_is_at_most_a_five_hundredth_of_adamws(build, num_parameters, capsys):
    model = build()
    assert sum(p.numel() for p in model.parameters()) == num_parameters

    def state_bytes(optimizer):
        return sum(
            t.numel() * t.element_size()
            for state in optimizer.state.values()
            for t in state.values()
        )

    for param in model.parameters():
        param.grad = torch.zeros_like(param)
    adamw = torch.optim.AdamW(model.parameters(), fused=True)
    adamw.step()
    adamw_bytes = state_bytes(adamw)
    del adamw
    nero_bytes = state_bytes(Nero(model))
    with capsys.disabled():
        print(
            f"\nstate of {build.__name__}: Nero {nero_bytes:,} B, AdamW {adamw_bytes:,} B, "
            f"{nero_bytes / adamw_bytes:.4%}"
        )
    assert nero_bytes <= 0.002 * adamw_bytes
    assert nero_bytes == describe(model).state_bytes
