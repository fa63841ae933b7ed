"""Perplexity: the exponential of the mean loss of a word."""

import math
from collections.abc import Mapping


def perplexities(averages: Mapping[str, float]) -> dict[str, float]:
    """Return the exponential of each mean loss, under the name of a perplexity.

    Example:
        >>> perplexities({"valid_loss": 0.0, "train_loss": 1e6, "train_accuracy": 1.0})
        {'valid_perplexity': 1.0, 'train_perplexity': inf}
    """
    return {
        name.removesuffix("loss") + "perplexity": math.exp(loss) if loss < 700 else math.inf
        for name, loss in averages.items()
        if name.endswith("_loss")
    }
