"""The real Trainer: the model's neurons, the bare loop's losses, and exact resume."""

import pytest
import torch

from nero import Nero
from nero.integrations.huggingface import NeroFactory, TurningCallback, nero_for
from tests.integrations.tiny import assert_same_bits, described, gpt2, neurons, sentences

NUM_STEPS = 4


def arguments(folder, **options):
    from transformers import TrainingArguments

    options = {"learning_rate": 0.02, **options}
    return TrainingArguments(
        output_dir=str(folder), max_steps=NUM_STEPS, per_device_train_batch_size=8, logging_steps=1,
        save_strategy="steps", save_steps=2, report_to=[], use_cpu=True, disable_tqdm=True,
        max_grad_norm=0.0, train_sampling_strategy="sequential", **options,
    )  # fmt: skip


def trainer_of(args, **how):
    from transformers import Trainer

    how = how or {"optimizer_cls_and_kwargs": nero_for(args)}
    return Trainer(gpt2(), args, train_dataset=sentences(), **how)


def logged(trainer):
    return [line["loss"] for line in trainer.state.log_history if "loss" in line]


def test_trains_resumes_to_the_bit_and_equals_the_bare_loop(tmp_path):
    args = arguments(tmp_path)
    unbroken = trainer_of(args)
    unbroken.train()
    optimizer = unbroken.optimizer.optimizer
    assert type(optimizer) is Nero
    assert neurons(optimizer, unbroken.model) == described(unbroken.model)

    resumed = trainer_of(args)
    resumed.train(resume_from_checkpoint=str(tmp_path / "checkpoint-2"))
    assert resumed.state.global_step == NUM_STEPS
    assert_same_bits(
        resumed.model, unbroken.model, resumed.optimizer.optimizer, unbroken.optimizer.optimizer
    )

    # The Trainer divides a sum of losses by the number of tokens, so the last bits may differ.
    torch.testing.assert_close(logged(unbroken), bare_losses(), rtol=1e-5, atol=0)


def bare_losses():
    model = gpt2()
    optimizer = Nero(model, lr=0.02)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 1 - step / NUM_STEPS)
    rows, losses = torch.stack([each["input_ids"] for each in sentences()]), []
    for step in range(NUM_STEPS):
        batch = rows.view(2, 8, -1)[step % 2]
        loss = model(input_ids=batch, labels=batch).loss
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()
        losses.append(loss.item())
    return losses


@pytest.mark.parametrize(
    ("arguments", "options", "lr"),
    [
        ({}, {}, 0.01),
        ({}, {"preset": "rows"}, 0.03),
        ({}, {"preset": "polar"}, 0.03),
        ({"max_steps": 2000}, {"preset": "polar"}, 0.03),
        ({"max_steps": 2000, "learning_rate": 0.005}, {"preset": "polar"}, 0.005),
        ({"learning_rate": 0.005}, {}, 0.005),
        ({"learning_rate": 0.005}, {"preset": "polar", "lr": None}, 0.005),
        ({"learning_rate": 0.005, "max_steps": 2000}, {"preset": "polar", "lr": 0.02}, 0.02),
    ],
    ids=str,
)
def test_a_rate_that_was_chosen_wins_over_the_presets(tmp_path, arguments, options, lr):
    """The default of TrainingArguments is AdamW's, and no choice. Warnings are errors here."""
    from transformers import TrainingArguments

    args = TrainingArguments(output_dir=str(tmp_path), report_to=[], use_cpu=True, **arguments)
    trainer = trainer_of(args, optimizer_cls_and_kwargs=nero_for(args, **options))
    rates = [group["lr"] for group in trainer.create_optimizer().param_groups]
    assert rates == pytest.approx([lr] * len(rates))


def test_a_rate_of_ones_own_wins_and_draws_none(tmp_path):
    args = arguments(tmp_path, learning_rate=5e-5)
    trainer = trainer_of(args, optimizer_cls_and_kwargs=nero_for(args, lr=0.03, beta=0.9))
    group = trainer.create_optimizer().param_groups[0]
    assert (group["lr"], group["beta"]) == (0.03, 0.9)


def test_axolotl_calls_the_factory_with_its_arguments_too(tmp_path):
    args = arguments(tmp_path)
    factory, options = nero_for(args, beta=0.9)
    assert type(factory()(gpt2(), args, **options)) is Nero


def test_what_are_no_training_arguments_is_refused():
    with pytest.raises(TypeError, match="args must be the Trainer's TrainingArguments, not str"):
        nero_for("runs")


def test_weight_decay_is_not_used_and_says_so(tmp_path):
    args = arguments(tmp_path, weight_decay=0.01)
    with pytest.warns(UserWarning, match=r"weight_decay=0.01 .* no effect") as caught:
        trainer = trainer_of(args, optimizer_cls_and_kwargs=nero_for(args))
    assert len(caught) == 1
    assert caught[0].filename == __file__
    assert {group["weight_decay"] for group in trainer.create_optimizer().param_groups} == {0.0}


def test_the_callback_watches_the_optimizer_that_the_trainer_built(tmp_path):
    callback = TurningCallback(every=2)
    args = arguments(tmp_path)
    how = {"optimizer_cls_and_kwargs": (NeroFactory, {"lr": 0.02}), "callbacks": [callback]}
    trainer = trainer_of(args, **how)
    trainer.train()
    names = {layer.name for layer in callback.monitor.last_report.layers}
    assert "transformer.h.0.attn.c_attn.weight" in names
    assert callback.monitor.step == NUM_STEPS
    trainer.optimizer.optimizer.step()
    assert callback.monitor.step == NUM_STEPS  # detached
