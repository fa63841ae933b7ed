"""The real skorch, which passes a list of parameters: what was left on them is kept."""

import skorch
import torch

import nero
from tests.integrations.tiny import (
    assert_same_bits,
    bare_run,
    described,
    examples,
    network,
    neurons,
)


def classifier(**options):
    return skorch.NeuralNet(
        nero.annotate(network()), torch.nn.CrossEntropyLoss, optimizer=nero.Nero, lr=0.02, batch_size=8,
        iterator_train__shuffle=False, train_split=None, verbose=0, **options,
    )  # fmt: skip


def test_trains_resumes_to_the_bit_and_equals_the_bare_loop(tmp_path):
    inputs, labels = examples()
    files = {"f_params": str(tmp_path / "params.pt"), "f_optimizer": str(tmp_path / "optimizer.pt")}
    unbroken = classifier(max_epochs=4).fit(inputs, labels)
    assert type(unbroken.optimizer_) is nero.Nero
    assert neurons(unbroken.optimizer_, unbroken.module_) == described(unbroken.module_)

    classifier(max_epochs=2).fit(inputs, labels).save_params(**files)
    resumed = classifier(max_epochs=2).initialize()
    resumed.load_params(**files)
    resumed.partial_fit(inputs, labels)
    assert_same_bits(resumed.module_, unbroken.module_, resumed.optimizer_, unbroken.optimizer_)

    bare, _ = bare_run(4, 8)
    assert_same_bits(bare, unbroken.module_)
