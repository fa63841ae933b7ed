"""The cross entropy of large vocabularies, against torch's."""

import pytest
import torch
from torch.nn.functional import cross_entropy, linear

from nero_lab.models.word_losses import word_losses


@pytest.mark.parametrize("has_bias", [True, False])
def test_the_fast_losses_and_gradients_are_the_plain_ones(has_bias: bool) -> None:
    torch.manual_seed(0)
    rows, words, width = 123, 301, 40  # not a multiple of the rows that are done at once
    features = torch.randn(rows, width).bfloat16().float().requires_grad_()
    weight = (0.3 * torch.randn(words, width)).bfloat16().float().requires_grad_()
    bias = torch.randn(words, requires_grad=True) if has_bias else None
    targets = torch.randint(words, (rows,))
    inputs = [features, weight] if bias is None else [features, weight, bias]
    plain = cross_entropy(linear(features, weight, bias), targets, reduction="none")
    with torch.autocast("cpu", torch.bfloat16):
        fast = word_losses(features, weight, bias, targets)
    # Logits of about 2 are rounded to 8 bits: errors of 2**-8 each.
    torch.testing.assert_close(fast, plain, atol=0.03, rtol=0.0)
    factors = torch.rand(rows)
    for expected, found in zip(
        torch.autograd.grad((plain * factors).sum(), inputs),
        torch.autograd.grad((fast * factors).sum(), inputs),
        strict=True,
    ):
        # Relative to the whole tensor, the rounding of the products: below 2**-7.
        assert (found - expected).norm() < 2**-7 * expected.norm()


def test_huge_logits_give_finite_losses() -> None:
    features = torch.full((3, 4), 1e4, requires_grad=True)
    weight = torch.eye(4)[:, :4] * torch.tensor([1.0, -1.0, 1.0, 1.0])
    with torch.autocast("cpu", torch.bfloat16):
        losses = word_losses(features, weight, None, torch.tensor([0, 1, 2]))
    assert losses.isfinite().all()
    assert losses[1] > 1e4


def test_without_gradients_the_losses_are_the_same() -> None:
    torch.manual_seed(0)
    features, weight = torch.randn(5, 8, requires_grad=True), torch.randn(11, 8)
    targets = torch.randint(11, (5,))
    with torch.autocast("cpu", torch.bfloat16):
        losses = word_losses(features, weight, None, targets)
        with torch.no_grad():
            assert word_losses(features, weight, None, targets).equal(losses)
