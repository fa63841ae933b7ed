"""The plain backend cuts large tensors into blocks; whatever they are, the result is the same."""

import pytest
import torch
from torch import nn

from nero import Nero
from nero.backends import plain


def trained(block, shape, dtype=torch.float32, groups=None, **options):
    torch.manual_seed(0)
    param = nn.Parameter(torch.randn(shape).to(dtype))
    optimizer = Nero([{"params": [param], **(groups or {})}], fused=False, **options)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(plain, "_BLOCK", block)
        patch.setattr(torch, "get_num_threads", lambda: 1)
        for step in range(3):
            param.grad = torch.randn(shape).to(dtype)
            param.grad[step] = 0
            param.grad[-1 - step] *= torch.nan
            optimizer.step()
    return param.detach(), optimizer.state[param]["exp_avg_norm"], optimizer.num_skipped


@pytest.mark.parametrize(
    ("shape", "dtype", "groups", "options"),
    [
        ((13, 10), torch.float32, None, {}),
        ((13, 10), torch.float32, None, {"constraint": "none", "maximize": True}),
        ((13, 10), torch.float64, None, {}),
        ((13, 10), torch.bfloat16, None, {}),
        ((13, 10), torch.bfloat16, None, {"stochastic_rounding": True, "lr": 0.001}),
        ((13, 10), torch.float32, None, {"momentum": 0.9}),
        ((13, 10), torch.float32, None, {"momentum": 0.9, "momentum_dtype": "bfloat16"}),
        ((13, 2, 5), torch.float32, {"neuron_dims": (0,)}, {}),
        ((13, 2, 5), torch.float32, {"neuron_dims": (0, 1)}, {}),
        ((13, 2, 5), torch.float32, {"neuron_dims": (0, 2)}, {}),
        ((13, 10), torch.float32, {"neuron_dims": (1,)}, {}),
        ((12, 4, 5), torch.float32, {"neuron_dims": (1,), "num_groups": 3}, {}),
        ((130,), torch.float32, {"role": "gain", "gain_penalty": 0.1}, {}),
        ((130,), torch.bfloat16, {"role": "bias"}, {"stochastic_rounding": True}),
    ],
    ids=str,
)
@pytest.mark.parametrize("block", [1, 40, 99])
def test_blocks_change_no_bit(block, shape, dtype, groups, options):
    whole = trained(1 << 20, shape, dtype, groups, **options)
    in_blocks = trained(block, shape, dtype, groups, **options)
    assert torch.equal(whole[0].isnan(), in_blocks[0].isnan())
    assert torch.equal(whole[0].nan_to_num(), in_blocks[0].nan_to_num())
    # A sum over a block may run in another order than one over the whole.
    torch.testing.assert_close(whole[1], in_blocks[1], rtol=1e-7, atol=0)
    assert whole[2] == in_blocks[2]


def test_a_scalar_is_stepped():
    param = nn.Parameter(torch.tensor(0.5))
    optimizer = Nero([{"params": [param], "role": "other"}], lr=0.01, fused=False)
    param.grad = torch.tensor(3.0)
    optimizer.step()
    assert param.item() == pytest.approx(0.5 - 0.01 * 0.5)
