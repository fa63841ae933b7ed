"""Cross entropy over a large vocabulary, without logits that leave the cache."""

from typing import Any, cast

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy, linear


def word_losses(features: Tensor, weight: Tensor, bias: Tensor | None, targets: Tensor) -> Tensor:
    """Return the cross entropy of each word after a linear layer.

    The softmax over a whole vocabulary is most of the work of a small model. On a CPU in bfloat16 it
    runs a few rows at a time, so that logits in float32 stay in the cache.
    """
    if features.device.type == "cpu" and torch.is_autocast_enabled("cpu"):
        bias = weight.new_zeros(len(weight)) if bias is None else bias
        losses = _WordLosses.apply(  # type: ignore[no-untyped-call]
            features, weight, bias, targets, torch.is_grad_enabled()
        )
        return cast(Tensor, losses)
    return cross_entropy(linear(features, weight, bias).float(), targets, reduction="none")


class _WordLosses(torch.autograd.Function):
    """With e = exp(logit - largest logit) and its sum z, a logit's gradient is e/z - [is target].

    Only e is kept, in bfloat16. Division by z moves to the small factor of each matrix product, and
    the targets are subtracted from the few rows of the result that they touch.
    """

    num_rows = 50

    @staticmethod
    def forward(
        ctx: Any, features: Tensor, weight: Tensor, bias: Tensor, targets: Tensor, keep: bool
    ) -> Tensor:
        with torch.autocast("cpu", enabled=False):
            low_features, low_weight = features.bfloat16(), weight.bfloat16()
            kept = low_weight.new_empty(len(features), len(weight)) if keep else None
            losses, sums = bias.new_empty(2, len(features), 1)
            for begin in range(0, len(features), _WordLosses.num_rows):
                rows = slice(begin, begin + _WordLosses.num_rows)
                logits = (low_features[rows] @ low_weight.t()).float().add_(bias)
                largest = logits.amax(dim=1, keepdim=True)
                losses[rows] = largest - logits.gather(1, targets[rows, None])
                exponentials = logits.sub_(largest).exp_()
                sums[rows] = exponentials.sum(dim=1, keepdim=True)
                if kept is not None:
                    kept[rows] = exponentials
            losses += sums.log()
        ctx.save_for_backward(features, low_weight, kept, sums, targets)
        return cast(Tensor, losses.squeeze(1))

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, Tensor, Tensor, None, None]:
        features, low_weight, kept, sums, targets = ctx.saved_tensors
        grad = grads[0][:, None]
        scale, features = grad / sums, features.float()
        # A last column of ones makes the gradient of the bias part of the same product.
        extended = torch.cat((features * scale, scale), dim=1).bfloat16()
        product = kept.t() @ extended
        grad_weight = product[:, :-1].float().index_add_(0, targets, features * grad, alpha=-1)
        grad_bias = product[:, -1].float().index_add_(0, targets, grad[:, 0], alpha=-1)
        grad_features = (kept @ low_weight) * scale - grad * low_weight[targets]
        return grad_features.to(ctx.saved_tensors[0].dtype), grad_weight, grad_bias, None, None
