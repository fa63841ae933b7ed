"""From bytes to what a network reads."""

from torch import Tensor


def normalized(pixels: Tensor, mean: tuple[float, ...], std: tuple[float, ...]) -> Tensor:
    """Return byte images (images, height, width, channels) as numbers (images, channels, ...).

    Args:
        pixels: the bytes. The result keeps their order in memory, in which convolutions are fastest.
        mean: what to take away from each channel, on a scale of 0 to 1.
        std: what to divide each channel by afterwards.

    Example:
        >>> normalized(torch.full((1, 2, 2, 1), 255, dtype=torch.uint8), (0.5,), (0.25,)).unique()
        tensor([2.])
    """
    images = pixels.float() / 255
    return ((images - images.new_tensor(mean)) / images.new_tensor(std)).permute(0, 3, 1, 2)
