"""A direction that a user registers: who follows it, what it gets, and what is refused."""

import pytest
import torch
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import Shard, distribute_tensor

import nero
from nero import Nero
from nero.core import directions
from tests.distributed.ranks import on_ranks


def balanced_norms(matrices):
    """Rows and columns of equal norms, by turns."""
    for _ in range(3):
        for dim in (-1, -2):
            norms = matrices.norm(dim=dim, keepdim=True)
            matrices = matrices / torch.where(norms > 0, norms, 1.0)
    return matrices


@pytest.fixture
def registry(monkeypatch):
    """A registry of its own for each test."""
    monkeypatch.setattr(directions, "_FUNCTIONS", dict(directions._FUNCTIONS))


@pytest.mark.usefixtures("registry")
class TestRegistered:
    @pytest.mark.parametrize("fused", [False, None])
    @pytest.mark.parametrize("momentum", [0.0, 0.9])
    def test_hidden_layers_follow_it(self, fused, momentum):
        nero.register_direction("norms", balanced_norms)
        torch.manual_seed(0)
        model = nn.Sequential(nn.Embedding(5, 8), nn.Linear(8, 6), nn.Linear(6, 3, bias=False))
        grads = [torch.randn_like(p) for p in model.parameters()]
        reference = nn.ParameterList(p.detach().clone() for p in model.parameters())
        roles = [{"role": "embedding"}, {}, {"role": "bias"}, {}]
        plain = Nero(
            [{"params": [p], **role} for p, role in zip(reference, roles, strict=True)],
            fused=fused,
        )
        optimizer = Nero(model, direction="norms", momentum=momentum, fused=fused)
        for p, q, grad in zip(model.parameters(), reference, grads, strict=True):
            p.grad = grad.clone()
            # The first step of an average is along the gradient itself.
            q.grad = balanced_norms(grad[None])[0] if q.ndim == 2 and len(q) != 5 else grad.clone()
        optimizer.step()
        plain.step()
        for p, q in zip(model.parameters(), reference, strict=True):
            torch.testing.assert_close(p, q, rtol=1e-5, atol=1e-6)

    def test_it_gets_finite_matrices(self):
        seen = []

        def watched(matrices):
            seen.append(matrices)
            return matrices

        nero.register_direction("watched", watched)
        weight = nn.Parameter(torch.randn(4, 2, 3, 3))
        optimizer = Nero([weight], direction="watched")
        weight.grad = torch.randn_like(weight)
        weight.grad[1, 0, 0, 0] = torch.nan
        before = weight.detach().clone()
        optimizer.step()
        assert [matrices.shape for matrices in seen] == [(1, 4, 18)]
        assert seen[0].isfinite().all()
        assert torch.equal(weight[1], before[1])
        assert optimizer.num_skipped == 1
        assert (weight[[0, 2, 3]] != before[[0, 2, 3]]).all(dim=(1, 2, 3)).all()

    def test_describe_and_checkpoints_name_it(self):
        nero.register_direction("norms", balanced_norms)
        model = nn.Linear(4, 3)
        row = nero.describe(model, direction="norms").rows[0]
        assert row.reason.endswith("turns against its norms direction")
        saved = Nero(model, direction="norms").state_dict()
        assert saved["param_groups"][0]["direction"] == "norms"
        loaded = Nero(model)
        loaded.load_state_dict(saved)
        assert loaded.param_groups[0]["direction"] == "norms"
        del directions._FUNCTIONS["norms"]
        with pytest.raises(ValueError, match=r"not 'norms'; nero\.register_direction adds others"):
            Nero(model).load_state_dict(saved)

    def test_a_result_of_another_shape_is_refused(self):
        nero.register_direction("first", lambda matrices: matrices[:, :1])
        weight = nn.Parameter(torch.randn(4, 3))
        optimizer = Nero([weight], direction="first")
        weight.grad = torch.randn_like(weight)
        with pytest.raises(ValueError, match=r"direction 'first' returned shape \(1, 1, 3\)"):
            optimizer.step()

    @pytest.mark.parametrize("result", [None, torch.ones(1, 4, 3, dtype=torch.complex64)])
    def test_a_result_that_is_no_real_tensor_is_refused(self, result):
        nero.register_direction("odd", lambda matrices: result)
        weight = nn.Parameter(torch.randn(4, 3))
        optimizer = Nero([weight], direction="odd")
        weight.grad = torch.randn_like(weight)
        with pytest.raises(TypeError, match="direction 'odd' must return a real tensor"):
            optimizer.step()

    def test_a_function_that_raises_leaves_no_trace(self):
        calls = []

        def second_raises(matrices):
            calls.append(matrices)
            if len(calls) == 2:
                raise RuntimeError("not today")
            return matrices

        nero.register_direction("raises", second_raises)
        weights = [nn.Parameter(torch.randn(4, 3)) for _ in range(2)]
        optimizer = Nero(weights, direction="raises", momentum=0.9)
        for weight in weights:
            weight.grad = torch.randn_like(weight)
        before = [weight.detach().clone() for weight in weights]
        with pytest.raises(RuntimeError, match="not today"):
            optimizer.step()
        for weight, old in zip(weights, before, strict=True):
            assert torch.equal(weight, old)
            assert not optimizer.state[weight]["exp_avg"].any()

    @pytest.mark.parametrize("name", ["gradient", "polar"])
    def test_built_in_names_are_taken(self, name):
        with pytest.raises(ValueError, match=f"'{name}' is built in; choose another"):
            nero.register_direction(name, balanced_norms)

    def test_wrong_types_are_refused(self):
        with pytest.raises(TypeError, match="needs a name, not 3"):
            nero.register_direction(3, balanced_norms)
        with pytest.raises(TypeError, match="must be a function of matrices, not 3"):
            nero.register_direction("three", 3)


def test_an_unknown_direction_is_refused():
    with pytest.raises(ValueError, match=r"\('gradient', 'polar'\), not 'polr'"):
        Nero(nn.Linear(4, 3), direction="polr")


def test_shards_follow_it_bit_for_bit():
    on_ranks(2, _shards)


def _shards():
    nero.register_direction("norms", balanced_norms)
    mesh = init_device_mesh("cpu", (2,))
    for dim in (0, 1):
        torch.manual_seed(0)
        weight = torch.randn(5, 6)
        whole = nn.Parameter(weight.clone())
        cut = nn.Parameter(distribute_tensor(weight, mesh, [Shard(dim)]))
        options = {"direction": "norms", "preset": "rows", "fused": False}
        optimizers = [Nero([{"params": [p], "role": "neuron"}], **options) for p in (whole, cut)]
        for _ in range(3):
            whole.grad = torch.randn_like(whole)
            cut.grad = distribute_tensor(whole.grad.clone(), mesh, [Shard(dim)])
            for optimizer in optimizers:
                optimizer.step()
        assert torch.equal(cut.full_tensor(), whole), dim
