"""The real LightningCLI: `--optimizer nero.Nero` on a command line, or in a file, with no code."""

import logging

import lightning
import pytest
import torch

from nero import Nero
from tests.integrations.lightning_tiny import QUIET, Classifier, batches
from tests.integrations.tiny import bare_run, described, neurons

LightningCLI = pytest.importorskip("lightning.pytorch.cli").LightningCLI
pytestmark = QUIET


class Batches(lightning.LightningDataModule):
    def train_dataloader(self):
        return batches()


def fit(folder, *options):
    logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
    trainer = {
        "accelerator": "cpu", "logger": "false", "enable_progress_bar": "false",
        "enable_model_summary": "false", "max_epochs": "3", "default_root_dir": str(folder),
    }  # fmt: skip
    given = [f"--trainer.{name}={value}" for name, value in trainer.items()]
    return LightningCLI(
        Classifier, Batches, args=["fit", *given, *options], save_config_callback=None
    )


def test_the_optimizer_of_a_command_line_is_that_of_the_model(tmp_path):
    options = ["--optimizer=nero.Nero", "--optimizer.lr=0.02"]
    schedule = ["--lr_scheduler=ExponentialLR", "--lr_scheduler.gamma=0.5"]
    cli = fit(tmp_path, *options, *schedule)
    (optimizer,) = cli.trainer.optimizers
    assert type(optimizer) is Nero
    assert neurons(optimizer, cli.model) == described(cli.model)
    assert cli.model.losses == bare_run(3, 8, decay=0.5)[1]


def test_a_file_of_options_and_a_checkpoint_resume_to_the_bit(tmp_path):
    file = tmp_path / "nero.yaml"
    file.write_text(
        "optimizer:\n  class_path: nero.Nero\n  init_args: {lr: 0.02, preset: rows, fused: false}\n"
    )
    whole = fit(tmp_path, f"--config={file}")
    assert {group["momentum"] for group in whole.trainer.optimizers[0].param_groups} == {0.9}
    first = fit(tmp_path, f"--config={file}", "--trainer.max_epochs=1")
    first.trainer.save_checkpoint(tmp_path / "first.ckpt")
    resumed = fit(tmp_path, f"--config={file}", f"--ckpt_path={tmp_path / 'first.ckpt'}")
    for p, q in zip(whole.model.parameters(), resumed.model.parameters(), strict=True):
        assert torch.equal(p, q)
    assert first.model.losses + resumed.model.losses == whole.model.losses


def test_a_misspelt_option_is_refused_by_the_command_line(tmp_path, capsys):
    with pytest.raises(SystemExit):
        fit(tmp_path, "--optimizer=nero.Nero", "--optimizer.betas=[0.9,0.99]")
    assert "betas" in capsys.readouterr().err
