import warnings

import pytest
import torch
from torch import nn

import nero
from nero.layout import neurons
from nero.layout.observation import observe
from nero_tools.plan.simulate import fake_ranks


class InOut(nn.Module):
    """A linear layer that stores (in, out), with a step that depends on values."""

    def __init__(self, needs_values=False):
        super().__init__()
        self.kernel = nn.Parameter(torch.randn(4, 3))
        self.register_buffer("count", torch.zeros(()))
        self.needs_values = needs_values
        self.kept = None

    def forward(self, x, scale=1.0):
        self.count += 1
        self.kept = x
        if self.needs_values and x.sum() > 0:
            x = x[x.abs() > 0].view(-1, 4)
        return x @ self.kernel * scale


@pytest.mark.parametrize(
    "example",
    [
        torch.randn(2, 4),
        (torch.randn(2, 4),),
        [torch.randn(2, 4), 2.0],
        {"x": torch.randn(2, 4)},
        (torch.randn(2, 4), 2.0, "labels"),
        lambda model: model(torch.randn(2, 4)),
    ],
    ids=["tensor", "tuple", "arguments", "keywords", "batch with labels", "function"],
)
def test_every_form_of_an_example(example):
    observation = observe(InOut(), example)
    assert not observation.error
    assert observation.seen["kernel"].layouts == (neurons(1),)


class Shared(nn.Module):
    """One embedding under three names, as encoder-decoders have."""

    def __init__(self):
        super().__init__()
        self.shared = nn.Embedding(11, 4)
        self.encoder, self.decoder = InOut(), InOut()
        self.encoder.tokens = self.decoder.tokens = self.shared

    def forward(self, ids):
        encoded = self.encoder(self.encoder.tokens(ids))
        return self.decoder(self.decoder.tokens(ids)) + encoded


def test_a_module_with_several_names_keeps_its_parameters():
    model = Shared()
    before = dict(model.named_parameters(remove_duplicate=False))
    assert not observe(model, torch.arange(5)).error
    after = dict(model.named_parameters(remove_duplicate=False))
    assert len(before) == 5
    assert before.keys() == after.keys()
    assert all(after[name] is param for name, param in before.items())


@pytest.mark.filterwarnings("ignore:`torch.jit.script` is deprecated:DeprecationWarning")
def test_scripted_modules_are_followed():
    scripted = torch.jit.script(nn.Linear(4, 4))
    model = nn.Sequential(nn.Linear(4, 4), scripted, nn.Linear(4, 3))
    before = dict(model.named_parameters())
    observation = observe(model, torch.randn(2, 4))
    assert not observation.error
    assert {"0.weight", "2.weight"} <= observation.seen.keys()
    after = dict(model.named_parameters())
    assert all(torch.equal(after[name], param) for name, param in before.items())
    assert model(torch.randn(2, 4)).isfinite().all()


class Grows(InOut):
    """Makes a layer in its first forward pass, and has a buffer that is a parameter."""

    def __init__(self):
        super().__init__()
        self.register_buffer("alias", self.kernel)

    def forward(self, x):
        if not hasattr(self, "late"):
            self.late = nn.Linear(3, 2)
        return self.late(super().forward(x))


def test_a_layer_made_by_the_pass_is_forgotten_and_a_shared_buffer_is_a_parameter():
    model = Grows()
    observation = observe(model, torch.randn(2, 4))
    assert not observation.error
    assert observation.seen["kernel"].layouts == (neurons(1),)
    assert not hasattr(model, "late")
    assert type(model(torch.randn(2, 4))) is torch.Tensor


def test_nothing_of_the_model_changes():
    model = nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4), nn.Dropout(), InOut())
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    random = torch.get_rng_state()
    observe(model, torch.randn(2, 4))
    random_after = torch.get_rng_state()
    assert all(torch.equal(before[name], tensor) for name, tensor in model.state_dict().items())
    assert model[3].kept is None
    assert not model._forward_pre_hooks
    assert all(param.grad is None for param in model.parameters())
    # The example itself was drawn in between.
    torch.set_rng_state(random)
    torch.randn(2, 4)
    assert torch.equal(torch.get_rng_state(), random_after)


class Counts(InOut):
    """Writes to tensors that are neither parameters nor buffers."""

    def __init__(self):
        super().__init__()
        self.calls = torch.zeros(2, dtype=torch.long)

    def forward(self, x):
        self.calls += 1
        self.calls.view(-1)[:1].add_(1)
        self.kernel.data.mul_(2)
        return x[: self.calls.sum().item()] @ self.kernel


def test_no_tensor_of_the_model_is_written_to():
    model = Counts()
    kernel, calls = model.kernel.detach().clone(), model.calls
    observation = observe(model, torch.randn(5, 4))
    assert not observation.error
    assert not observation.invented
    assert calls is model.calls
    assert calls.tolist() == [0, 0]
    assert torch.equal(model.kernel, kernel)


def test_values_that_decide_are_invented():
    observation = observe(InOut(needs_values=True), torch.randn(2, 4))
    assert observation.seen["kernel"].layouts == (neurons(1),)
    assert observation.invented


class Grids(nn.Module):
    """Cuts a row of patches into images, whose sizes are numbers in the example."""

    def __init__(self):
        super().__init__()
        self.kernel = nn.Parameter(torch.randn(4, 3))
        self.register_buffer("stride", torch.tensor(2))

    def forward(self, patches, grids):
        ends = torch.repeat_interleave(grids.prod(-1), grids[:, 0]).cumsum(0)
        sizes = grids.prod(-1).tolist()
        images = patches.split(sizes)
        is_long = grids[:, 1] > 2
        assert len(ends.unique_consecutive()) == 3
        assert grids[is_long].shape == (1, 2)
        assert images[1].view(*grids[1].tolist(), 4).shape == (1, 3, 4)
        return patches[:: self.stride.item()] @ self.kernel


def test_integers_of_the_example_are_known():
    observation = observe(Grids(), (torch.randn(7, 4), torch.tensor([[2, 2], [1, 3]])))
    assert not observation.error
    assert not observation.invented
    assert observation.seen["kernel"].layouts == (neurons(1),)


class Gathers(InOut):
    def forward(self, x, sizes):
        ends = torch.tensor([size.sum() for size in sizes], device=x.device)
        return x[: ends.max().item()] @ self.kernel


@pytest.mark.parametrize("device", ["cpu", "meta"])
def test_constants_made_of_known_numbers_are_known(device):
    observation = observe(Gathers().to(device), (torch.randn(2, 4), torch.tensor([[1], [2]])))
    assert not observation.error
    assert not observation.invented


class Overwrites(InOut):
    def forward(self, x, sizes):
        sizes = sizes.clone()
        sizes[0].copy_(x.long().sum())
        return x[: sizes.sum().item()] @ self.kernel


def test_integers_that_data_overwrite_are_not_known():
    observation = observe(Overwrites(), (torch.randn(2, 4), torch.tensor([2, 2])))
    assert not observation.error
    assert observation.invented == {"_local_scalar_dense": 1}


def test_failed_pass_keeps_what_it_saw():
    model = nn.Sequential(InOut(), nn.Linear(7, 2))
    observation = observe(model, torch.randn(2, 4))
    assert "RuntimeError" in observation.error
    assert observation.seen["0.kernel"].layouts == (neurons(1),)
    with pytest.warns(nero.LayoutWarning, match="stopped early"):
        nero.Nero(model, example=torch.randn(2, 4))


def test_no_memory_is_taken():
    with torch.device("meta"):
        model = nn.Sequential(nn.Linear(4, 100_000), nn.Linear(100_000, 100_000))
    assert len(observe(model, torch.empty(2, 4)).seen) == 4


class TestOptimizer:
    def test_sees_what_nobody_registered(self):
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            optimizer = nero.Nero(InOut(), example=torch.randn(2, 4))
        assert optimizer.param_groups[0]["neuron_dims"] == (1,)

    def test_says_that_it_guesses(self):
        with pytest.warns(nero.LayoutWarning, match=r"`kernel` are guessed .*example="):
            nero.Nero(InOut())

    def test_override_comes_first(self):
        overrides = {"kernel": {"neuron_dims": (0,)}}
        optimizer = nero.Nero(InOut(), example=torch.randn(2, 4), overrides=overrides)
        assert optimizer.param_groups[0]["neuron_dims"] == (0,)

    def test_registered_layout_is_only_checked(self):
        class Transposed(nn.Linear):
            def forward(self, x):
                return x @ self.weight

        with pytest.warns(nero.LayoutWarning, match=r"registered as neurons along dims \(0,\)"):
            optimizer = nero.Nero(Transposed(4, 4, bias=False), example=torch.randn(2, 4))
        assert optimizer.param_groups[0]["neuron_dims"] == (0,)

    def test_contradictory_uses_need_an_override(self):
        class AutoEncoder(InOut):
            def forward(self, x):
                return super().forward(x) @ self.kernel.t()

        with pytest.raises(nero.LayoutError, match="decide with an override"):
            nero.Nero(AutoEncoder(), example=torch.randn(2, 4))

    def test_describe_says_where_it_was_seen(self):
        row = nero.describe(InOut(), example=torch.randn(2, 4)).rows[0]
        assert (row.num_neurons, row.fan_in, row.reason) == (3, 4, "seen in mm")

    def test_needs_a_model(self):
        with pytest.raises(TypeError, match="pass the model"):
            nero.Nero([nn.Parameter(torch.randn(2, 3))], example=torch.randn(2, 3))


class Boxed(nn.Module):
    """Keeps tensors where no module knows of them, and writes to them."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(4, 3)
        self.box = [torch.zeros(3), torch.zeros(3, dtype=torch.long), torch.zeros(3)]

    def forward(self, x):
        total, count, mean = self.box
        count.add_(1)
        total.add_(1).mul_(2)
        mean.to(torch.float32).add_(1)
        total[0] = 5
        return self.layer(x) + total


def test_tensors_in_a_list_are_not_written_to():
    model = Boxed()
    assert not observe(model, torch.randn(2, 4)).error
    assert not any(tensor.any() for tensor in model.box)


def test_a_sharded_model_is_refused_and_left_alone():
    from torch.distributed.fsdp import fully_shard

    with fake_ranks(2):
        model = fully_shard(InOut())
        for read in (observe, nero.annotate, nero.Nero):
            with pytest.raises(ValueError, match=r"^`kernel` is sharded.* pass them as overrides="):
                read(model, example=torch.randn(2, 4))
        model(torch.randn(2, 4)).sum().backward()
