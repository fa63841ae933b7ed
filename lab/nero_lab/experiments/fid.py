"""The Fréchet distance between two sets of images, by the features of a network.

Published scores (FID) use an Inception network whose weights are a download. Without them
we take the same distance by the features of our own classifier (``fid_classifier.py``). The two are
different scales: ours compares our runs with one another, never with a published FID.
"""

import importlib.util
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

if TYPE_CHECKING:  # importing torchmetrics takes seconds, which only a run should spend
    from torchmetrics.image.fid import FrechetInceptionDistance

INCEPTION_WEIGHTS = "weights-inception-2015-12-05-6726825d.pth"
"""The file of torch-fidelity's release 0.2.0: looked for in the data folder and in torch's cache."""


def frechet(features: nn.Module, real: Tensor) -> "FrechetInceptionDistance":
    """Return a metric that holds the real images; call ``update(fakes, real=False)`` on it.

    Args:
        features: maps images to (images, num_features), and has the attribute ``num_features``.
        real: the images to measure from.

    Example:
        >>> from nero_lab.experiments.fid_classifier import Classifier
        >>> images = torch.randint(256, (50, 3, 32, 32), dtype=torch.uint8)
        >>> metric = frechet(Classifier(2).eval(), images)
        >>> metric.update(images, real=False)
        >>> bool(metric.compute() < 1e-3)
        True
    """
    from torchmetrics.image.fid import FrechetInceptionDistance

    return _with_real(FrechetInceptionDistance(features, reset_real_features=False), real)


def inception(real: Tensor, *, cache_dir: Path) -> "FrechetInceptionDistance | None":
    """Return the metric of published scores, or None without torch-fidelity and its weights."""
    from torchmetrics.image.fid import FrechetInceptionDistance

    folders = cache_dir, Path(torch.hub.get_dir()) / "checkpoints"
    paths = [path for folder in folders if (path := folder / INCEPTION_WEIGHTS).exists()]
    if not paths or importlib.util.find_spec("torch_fidelity") is None:
        return None
    metric = FrechetInceptionDistance(
        2048, reset_real_features=False, feature_extractor_weights_path=str(paths[0])
    )
    return _with_real(metric, real)


def update(metric: "FrechetInceptionDistance", images: Tensor, *, real: bool) -> None:
    """Add images to one side of a metric, in float32 whatever precision a run computes in."""
    with torch.no_grad(), torch.autocast(images.device.type, enabled=False):
        metric.update(images, real=real)


def _with_real(metric: "FrechetInceptionDistance", real: Tensor) -> "FrechetInceptionDistance":
    metric.to(real.device)
    for part in real.split(250):
        update(metric, part, real=True)
    return metric
