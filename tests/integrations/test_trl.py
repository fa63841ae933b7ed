"""The real TRL: its trainers take the factory as those of Hugging Face do."""

import pytest

from nero import Nero
from nero.integrations.huggingface import nero_for
from tests.integrations.tiny import NUM_TOKENS, described, gpt2, neurons, sentences

trl = pytest.importorskip("trl", reason="TRL is not part of the extra `integrations`")
pytestmark = [
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::FutureWarning"),
    pytest.mark.filterwarnings("ignore::UserWarning:trl"),
    pytest.mark.filterwarnings("ignore:.*pin_memory.*"),
]


def tokenizer():
    from tokenizers import Tokenizer, models
    from transformers import PreTrainedTokenizerFast

    words = {f"w{number}": number for number in range(NUM_TOKENS - 1)} | {"[PAD]": NUM_TOKENS - 1}
    made = Tokenizer(models.WordLevel(words, unk_token="w0"))
    return PreTrainedTokenizerFast(tokenizer_object=made, pad_token="[PAD]", eos_token="w0")


def trainer(folder):
    from datasets import Dataset

    args = trl.SFTConfig(
        str(folder), learning_rate=0.02, max_steps=6, save_steps=3, per_device_train_batch_size=4,
        report_to=[], use_cpu=True, disable_tqdm=True, logging_steps=1, bf16=False, max_length=None,
        gradient_checkpointing=False,
    )  # fmt: skip
    rows = Dataset.from_list([{"input_ids": row["input_ids"].tolist()} for row in sentences()])
    return trl.SFTTrainer(
        gpt2(), args, train_dataset=rows, processing_class=tokenizer(),
        optimizer_cls_and_kwargs=nero_for(args),
    )  # fmt: skip


def losses(made):
    return [entry["loss"] for entry in made.state.log_history if "loss" in entry]


def test_supervised_fine_tuning_trains_and_resumes(tmp_path):
    whole = trainer(tmp_path)
    whole.train()
    optimizer = getattr(whole.optimizer, "optimizer", whole.optimizer)
    assert type(optimizer) is Nero
    assert neurons(optimizer, whole.model) == described(whole.model)
    assert losses(whole)[-1] < losses(whole)[0]
    resumed = trainer(tmp_path / "resumed")
    resumed.train(resume_from_checkpoint=str(tmp_path / "checkpoint-3"))
    assert losses(resumed) == losses(whole)
