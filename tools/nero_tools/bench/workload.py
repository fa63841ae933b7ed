"""What all competitors step: one set of parameters, and gradients that move between steps."""

import torch
from torch import Tensor, nn

_ALIGNMENT_BYTES = 64
_NUM_SAMPLED = 1024


class Workload:
    """A model on its device and in its dtype, with a gradient for every parameter.

    All competitors step the same tensors: copies of a model lie elsewhere in memory, and large ones do not
    all fit. The gradients move by a cache line before every step, as those of a real training loop do
    after ``zero_grad()``, so that an optimizer which remembers their addresses pays for it here too.
    """

    def __init__(self, model: nn.Module, *, dtype: torch.dtype, device: str) -> None:
        self.model = model.to(device=device, dtype=dtype)
        self.params = list(model.parameters())
        self._pad = _ALIGNMENT_BYTES // dtype.itemsize
        self._is_shifted = True
        random = torch.Generator(device).manual_seed(0)
        self._grads = []
        with torch.no_grad():
            for param in self.params:
                # Gains too: near one, a small bfloat16 update would be rounded away.
                param.normal_(0, 0.02, generator=random)
                grad = torch.empty(param.numel() + self._pad, dtype=dtype, device=device)
                self._grads.append(grad.normal_(0, 0.01, generator=random))
        self._sampled = [
            torch.randint(p.numel(), (min(p.numel(), _NUM_SAMPLED),), device=device)
            for p in self.params
        ]
        self.move_gradients_()

    def move_gradients_(self) -> None:
        """Put every gradient at another address, without touching its contents."""
        self._is_shifted = not self._is_shifted
        start = self._pad if self._is_shifted else 0
        for param, grad in zip(self.params, self._grads, strict=True):
            param.grad = grad[start : start + param.numel()].view(param.shape)

    def sampled(self) -> list[Tensor]:
        """Return some weights of every parameter, always the same ones."""
        with torch.no_grad():
            return [p.view(-1)[i] for p, i in zip(self.params, self._sampled, strict=True)]

    def share_changed(self, before: list[Tensor]) -> float:
        """Return the share of weights that differ from an earlier `sampled`, by size of parameter.

        Speed does not count if it comes from leaving weights alone: torch 2.13's fused SGD skips most
        bfloat16 and float16 weights on CPU (pytorch#191763).
        """
        changed = 0.0
        for old, new, param in zip(before, self.sampled(), self.params, strict=True):
            changed += (new != old).float().mean().item() * param.numel()
        return changed / sum(param.numel() for param in self.params)
