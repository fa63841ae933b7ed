"""Real LoRA adapters: their neurons are found, and what is frozen is left alone."""

import peft
import torch

from nero import Nero
from tests.integrations.tiny import described, gpt2, neurons, sentences


def adapted():
    config = peft.LoraConfig(r=2, target_modules=["c_attn"], fan_in_fan_out=True, lora_dropout=0.0)
    return peft.get_peft_model(gpt2(), config)


def batch():
    rows = sentences()
    return {key: torch.stack([row[key] for row in rows]) for key in rows[0]}


def test_adapters_learn_and_the_rest_stays():
    model = adapted()
    before = {name: param.detach().clone() for name, param in model.named_parameters()}
    optimizer = Nero(model, lr=0.1, constraint="none")
    losses = []
    for _ in range(20):
        optimizer.zero_grad()
        loss = model(**batch()).loss
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < losses[0]
    for name, param in model.named_parameters():
        assert torch.equal(param, before[name]) != param.requires_grad, name
        assert bool(optimizer.state.get(param)) == param.requires_grad, name


def test_neurons_of_adapters_are_rows():
    model = adapted()
    optimizer = Nero(model, lr=0.1, constraint="none")
    found = neurons(optimizer, model)
    assert found == described(model)
    trained = {name: found[name] for name, param in model.named_parameters() if param.requires_grad}
    # c_attn takes 16 features to 48, through a rank of 2, in each of 2 blocks.
    assert sorted(trained.values()) == [("neuron", 2, 16)] * 2 + [("neuron", 48, 2)] * 2


def test_only_adapters_are_saved_and_resume_to_the_bit(tmp_path):
    models, optimizers = [adapted(), adapted()], []
    for model in models:
        model.load_state_dict(models[0].state_dict())
        optimizers.append(Nero(model, lr=0.1, constraint="none"))
    for step in range(4):
        if step == 2:
            models[0].save_pretrained(tmp_path)
            kept = peft.load_peft_weights(str(tmp_path))
            peft.set_peft_model_state_dict(models[1], kept)
            optimizers[1].load_state_dict(optimizers[0].state_dict())
        for model, optimizer in [*zip(models, optimizers, strict=True)][: 1 + step // 2]:
            optimizer.zero_grad()
            model(**batch()).loss.backward()
            optimizer.step()
    for p, q in zip(models[0].parameters(), models[1].parameters(), strict=True):
        assert torch.equal(p, q)
