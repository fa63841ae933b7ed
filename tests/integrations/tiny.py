"""Small models and data for every framework, and what two runs are compared by."""

import torch
from torch import nn

from nero import Nero, describe

NUM_TOKENS = 29


def gpt2():
    """GPT-2 keeps its weights as (in, out), so that shapes alone would be read wrongly."""
    from transformers import GPT2Config, GPT2LMHeadModel

    torch.manual_seed(0)
    config = GPT2Config(
        n_layer=2, n_head=2, n_embd=16, n_positions=16, vocab_size=NUM_TOKENS, bos_token_id=0,
        eos_token_id=0, resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0,
    )  # fmt: skip
    return GPT2LMHeadModel(config)


def sentences(num=16):
    ids = torch.randint(NUM_TOKENS, (num, 12), generator=torch.Generator().manual_seed(1))
    labels = ids.clone()
    labels[:, 0] = -100  # predicted from nothing; the Trainer would count it all the same
    return [{"input_ids": i, "labels": t} for i, t in zip(ids, labels, strict=True)]


def network():
    """A transposed convolution and a norm: read from shapes, both would be something else."""
    torch.manual_seed(0)
    return nn.Sequential(
        nn.ConvTranspose1d(4, 6, 3), nn.Flatten(), nn.LayerNorm(36), nn.ReLU(), nn.Linear(36, 2)
    )


def examples(num=16):
    generator = torch.Generator().manual_seed(1)
    return torch.randn(num, 4, 4, generator=generator), torch.arange(num) % 2


def bare_run(num_epochs, batch_size, *, max_norm=None, decay=1.0):
    """Train `network` on `examples` without a framework: the model, and the loss of every step."""
    model, losses = network(), []
    optimizer = Nero(model, lr=0.02)
    schedule = torch.optim.lr_scheduler.ExponentialLR(optimizer, decay)
    for _ in range(num_epochs):
        for inputs, labels in zip(*(each.split(batch_size) for each in examples()), strict=True):
            loss = nn.functional.cross_entropy(model(inputs), labels)
            optimizer.zero_grad()
            loss.backward()
            if max_norm is not None:
                nn.utils.clip_grad_norm_(model.parameters(), max_norm)
            optimizer.step()
            losses.append(loss.item())
        schedule.step()
    return model, losses


def neurons(optimizer, model):
    """Role, number of neurons and fan-in by name, as the optimizer has them."""
    from nero.core.neurons import neurons_from_options

    names = {param: name for name, param in model.named_parameters()}
    found = {}
    for group in optimizer.param_groups:
        for param in group["params"]:
            dims = neurons_from_options(group, param.shape)
            found[names[param]] = group["role"], dims.num_neurons, dims.fan_in
    return found


def described(model, *, only_trained=False):
    """The same, as the model has them."""
    is_trained = {name: param.requires_grad for name, param in model.named_parameters()}
    return {
        row.name: (row.role, row.num_neurons, row.fan_in)
        for row in describe(model).rows
        if is_trained[row.name] or not only_trained
    }


def assert_same_bits(model, other, optimizer=None, other_optimizer=None):
    """Compare weights, and what is kept of them."""
    for (name, p), (_, q) in zip(model.named_parameters(), other.named_parameters(), strict=True):
        assert torch.equal(p, q), name
        if optimizer is not None:
            mine, theirs = optimizer.state[p], other_optimizer.state[q]
            assert mine.keys() == theirs.keys()
            for key in mine:
                assert torch.equal(mine[key], theirs[key]), (name, key)
