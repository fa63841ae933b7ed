"""The real trainers that build the optimizer from a class and options: the neurons are the model's."""

import warnings

import pytest
import torch

import nero

pytest.importorskip("transformers")


def tiny_gpt2():
    from transformers import GPT2Config, GPT2LMHeadModel

    torch.manual_seed(0)
    config = GPT2Config(
        n_layer=2,
        n_head=2,
        n_embd=16,
        n_positions=16,
        vocab_size=29,
        bos_token_id=0,
        eos_token_id=0,
    )
    config.resid_pdrop = config.embd_pdrop = config.attn_pdrop = 0.0
    return GPT2LMHeadModel(config)


def layouts(optimizer):
    return {
        id(param): (group["role"], group["neuron_dims"], group["num_groups"])
        for group in optimizer.param_groups
        for param in group["params"]
    }


class TestHuggingFaceTrainer:
    def trained(self, tmp_path, model, **how):
        pytest.importorskip("accelerate")
        from transformers import Trainer, TrainingArguments

        torch.manual_seed(1)
        ids = torch.randint(29, (16, 12))
        data = [{"input_ids": row, "labels": row} for row in ids]
        args = TrainingArguments(
            output_dir=str(tmp_path), max_steps=6, per_device_train_batch_size=4, logging_steps=1,
            save_strategy="no", report_to=[], lr_scheduler_type="constant", learning_rate=0.02,
            max_grad_norm=0.0, use_cpu=True, disable_tqdm=True, seed=3,
        )  # fmt: skip
        trainer = Trainer(model, args, train_dataset=data, **how)
        trainer.train()
        return trainer, [line["loss"] for line in trainer.state.log_history if "loss" in line]

    def test_class_and_options_equal_the_model(self, tmp_path):
        whole = tiny_gpt2()
        optimizer = nero.Nero(whole, lr=0.02)
        _, expected = self.trained(tmp_path, whole, optimizers=(optimizer, None))
        model = nero.annotate(tiny_gpt2())
        with warnings.catch_warnings():
            warnings.simplefilter("error", nero.LayoutWarning)
            trainer, losses = self.trained(
                tmp_path, model, optimizer_cls_and_kwargs=(nero.Nero, {"lr": 0.02})
            )
        assert losses == expected
        assert layouts(trainer.optimizer.optimizer) == layouts(nero.Nero(model))

    def test_not_annotated_it_warns_once(self, tmp_path):
        with pytest.warns(nero.LayoutWarning) as caught:
            self.trained(tmp_path, tiny_gpt2(), optimizer_cls_and_kwargs=(nero.Nero, {"lr": 0.02}))
        assert len([w for w in caught if w.category is nero.LayoutWarning]) == 1


def test_stable_baselines_passes_an_iterator_that_leads_to_the_policy():
    sb3 = pytest.importorskip("stable_baselines3")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # gymnasium's own
        warnings.simplefilter("error", nero.LayoutWarning)
        agent = sb3.PPO(
            "MlpPolicy", "CartPole-v1", n_steps=32, batch_size=32, n_epochs=1, learning_rate=0.01,
            policy_kwargs={"optimizer_class": nero.Nero}, device="cpu", seed=0,
        )  # fmt: skip
        agent.learn(64)
    assert layouts(agent.policy.optimizer) == layouts(nero.Nero(agent.policy))


def decay_groups(model):
    """Sort as timm does: matrices decay, vectors do not."""
    params = [*model.parameters()]
    return [
        {"params": [p for p in params if p.ndim <= 1], "weight_decay": 0.0},
        {"params": [p for p in params if p.ndim > 1], "weight_decay": 0.0, "lr_scale": 1.0},
    ]


def layer_groups(model):
    """Sort as fastai does: one list per part of the model."""
    head = [*model.lm_head.parameters()]
    body = [p for p in model.parameters() if not any(p is h for h in head)]
    return [{"params": body, "lr": 0.01}, {"params": head, "lr": 0.02}]


@pytest.mark.parametrize("groups", [decay_groups, layer_groups], ids=["like timm", "like fastai"])
def test_groups_of_other_trainers(groups):
    model = nero.annotate(tiny_gpt2())
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        optimizer = nero.Nero(groups(model))
    assert layouts(optimizer) == layouts(nero.Nero(model))
    with pytest.warns(nero.LayoutWarning) as caught:
        nero.Nero(groups(tiny_gpt2()))
    assert len(caught) == 1
