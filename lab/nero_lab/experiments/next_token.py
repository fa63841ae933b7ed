"""The experiment that all GPTs share: predict the next token at every position of a window of text."""

from abc import abstractmethod
from collections.abc import Iterator

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from nero_lab.engine.task import Experiment, Setting, Sums, Take

Windows = tuple[Tensor, Tensor]
"""Tokens (window, position), and those that come next."""


class NextToken(Experiment):
    """Train one network, the player ``"gpt"``; what is left open is where windows come from."""

    def __init__(self, setting: Setting, model: nn.Module) -> None:
        self.setting = setting
        self.players = {"gpt": model}

    @abstractmethod
    def valid_windows(self) -> Iterator[Windows]:
        """Yield this rank's share of the windows to score, in batches, the same for every seed."""

    def advance(self, batch: Windows, take: Take) -> Sums:
        """Train on one batch of windows."""
        loss = self.loss(batch)
        take("gpt", loss)
        count = batch[1].numel()
        return {"loss": (loss.detach() * count, count)}

    def score(self) -> Sums:
        """Score the network on the validation windows."""
        total, count = torch.zeros((), device=self.setting.device), 0
        for batch in self.valid_windows():
            total += self.loss(batch) * batch[1].numel()
            count += batch[1].numel()
        return {"loss": (total, count)}

    def loss(self, batch: Windows) -> Tensor:
        """Return the mean cross-entropy of the next tokens, in nats."""
        inputs, targets = (tokens.to(self.setting.device) for tokens in batch)
        logits = self.players["gpt"](inputs)
        return cross_entropy(logits.flatten(0, 1).float(), targets.flatten())
