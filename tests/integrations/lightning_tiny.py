"""What both tests of Lightning train: the tiny network as a module, its batches, and no noise."""

import lightning
import pytest
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from tests.integrations.tiny import examples, network

QUIET = [
    pytest.mark.filterwarnings("ignore:.*:UserWarning:lightning"),
    pytest.mark.filterwarnings("ignore:.*does not have many workers"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::FutureWarning"),
]


class Classifier(lightning.LightningModule):
    """Without `configure_optimizers`."""

    def __init__(self):
        super().__init__()
        self.model, self.losses = network(), []

    def training_step(self, batch):
        loss = nn.functional.cross_entropy(self.model(batch[0]), batch[1])
        self.losses.append(loss.item())
        return loss


def batches():
    return DataLoader(TensorDataset(*examples()), batch_size=8)
