"""Stochastic rounding is right on average, and its noise has no pattern."""

import pytest
import torch

from nero.core.rounding import round_stochastic, uniform_noise


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("value", [1.0009, -1.0009, 3.3e-5, -0.7002, 0.0])
def test_the_mean_is_what_was_rounded(value, dtype):
    x = torch.full((200_000,), value)
    noise = uniform_noise(x, seed=0, stream=0, step=1)
    rounded = round_stochastic(x, dtype, noise).double()
    # The standard error of 200,000 draws is at most a thousandth of a spacing; four of them.
    spacing = torch.finfo(dtype).eps * max(abs(value), torch.finfo(dtype).smallest_normal)
    assert abs(rounded.mean().item() - x[0].item()) <= 0.0045 * spacing


def test_seeds_streams_steps_positions_and_lanes_have_noise_of_their_own():
    like = torch.empty(1000)
    base = {"seed": 0, "stream": 0, "step": 1, "offset": 0, "lane": 0}
    noise = uniform_noise(like, **base)
    for name in base:
        other = uniform_noise(like, **{**base, name: base[name] + 1})
        assert (noise == other).float().mean() < 0.01, name
        assert abs(torch.corrcoef(torch.stack([noise, other]))[0, 1]) < 0.15, name
    assert torch.equal(uniform_noise(like[100:], **{**base, "offset": 100}), noise[100:])


def test_a_shard_draws_the_noise_of_its_places():
    options = {"seed": 3, "stream": 1, "step": 4}
    whole = uniform_noise(torch.empty(6, 5, 4), **options)
    piece = whole[2:5, 1:3]
    start = 2 * 20 + 1 * 4
    assert torch.equal(
        uniform_noise(torch.empty(3, 2, 4), **options, offset=start, strides=(20, 4, 1)), piece
    )
