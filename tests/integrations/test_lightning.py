"""The real Lightning: `configure_optimizers` returns Nero(self), and a run resumes to the bit."""

import logging

import lightning
import torch

from nero import Nero
from tests.integrations import lightning_tiny
from tests.integrations.lightning_tiny import batches
from tests.integrations.tiny import (
    assert_same_bits,
    bare_run,
    described,
    neurons,
)

pytestmark = lightning_tiny.QUIET
NUM_EPOCHS = 3


class Classifier(lightning_tiny.Classifier):
    def configure_optimizers(self):
        optimizer = Nero(self, lr=0.02)
        return [optimizer], [torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.5)]


def fit(folder, *, ckpt_path=None):
    from lightning.pytorch.callbacks import ModelCheckpoint

    logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
    module = Classifier()
    every_epoch = ModelCheckpoint(folder, "{epoch}", save_top_k=-1, save_on_train_epoch_end=True)
    trainer = lightning.Trainer(
        max_epochs=NUM_EPOCHS, accelerator="cpu", logger=False, enable_progress_bar=False,
        enable_model_summary=False, callbacks=[every_epoch],
    )  # fmt: skip
    trainer.fit(module, batches(), ckpt_path=ckpt_path)
    return module, trainer


def test_trains_resumes_to_the_bit_and_equals_the_bare_loop(tmp_path):
    unbroken, trainer = fit(tmp_path / "unbroken")
    assert type(trainer.optimizers[0]) is Nero
    assert neurons(trainer.optimizers[0], unbroken) == described(unbroken)

    first = tmp_path / "unbroken" / "epoch=0.ckpt"
    resumed, later = fit(tmp_path / "resumed", ckpt_path=first)
    assert resumed.losses == unbroken.losses[-len(resumed.losses) :]
    assert len(resumed.losses) == len(unbroken.losses) // NUM_EPOCHS * (NUM_EPOCHS - 1)
    assert_same_bits(resumed, unbroken, later.optimizers[0], trainer.optimizers[0])

    assert unbroken.losses == bare_run(NUM_EPOCHS, 8, decay=0.5)[1]
