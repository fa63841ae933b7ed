"""The real fastai, through its wrapper of torch's optimizers."""

from contextlib import nullcontext
from functools import partial

import pytest
import torch
from fastai.callback.schedule import Learner  # with its schedules
from fastai.data.core import DataLoaders
from fastai.optimizer import OptimWrapper

import nero
from tests.integrations.tiny import (
    assert_same_bits,
    bare_run,
    described,
    examples,
    network,
    neurons,
)

pytestmark = pytest.mark.filterwarnings("ignore:numpy.core:DeprecationWarning")  # when it loads


def learner(folder):
    inputs, labels = examples()
    data = [*zip(inputs, labels, strict=True)]
    loaders = DataLoaders.from_dsets(data, data, bs=8, shuffle=False, device="cpu", num_workers=0)
    return Learner(
        loaders, nero.annotate(network()), loss_func=torch.nn.CrossEntropyLoss(), lr=0.02, path=folder,
        opt_func=partial(OptimWrapper, opt=nero.Nero),
    )  # fmt: skip


def fit(learn, num_epochs):
    with learn.no_bar(), learn.no_logging():
        learn.fit(num_epochs)


def test_trains_resumes_to_the_bit_and_equals_the_bare_loop(tmp_path):
    unbroken = learner(tmp_path)
    fit(unbroken, 2)
    unbroken.save("half", with_opt=True)
    fit(unbroken, 2)
    assert type(unbroken.opt.opt) is nero.Nero
    assert neurons(unbroken.opt.opt, unbroken.model) == described(unbroken.model)

    resumed = learner(tmp_path)
    resumed.load("half", with_opt=True)
    fit(resumed, 2)
    assert_same_bits(resumed.model, unbroken.model, resumed.opt.opt, unbroken.opt.opt)

    bare, _ = bare_run(4, 8)
    assert_same_bits(bare, unbroken.model)


@pytest.mark.parametrize(("moms", "expected"), [(None, True), ((0.0, 0.0, 0.0), False)])
def test_one_cycle_sets_a_momentum_unless_told_otherwise(moms, expected, tmp_path):
    learn = learner(tmp_path)
    said = (
        pytest.warns(UserWarning, match="momentum was switched on") if expected else nullcontext()
    )
    with learn.no_bar(), learn.no_logging(), said:
        learn.fit_one_cycle(1, 0.02, moms=moms)
    assert all((group["momentum"] > 0) == expected for group in learn.opt.opt.param_groups)


def test_weight_decay_is_refused(tmp_path):
    learn = learner(tmp_path)
    with (
        learn.no_bar(),
        learn.no_logging(),
        pytest.raises(ValueError, match="weight_decay must be 0"),
    ):
        learn.fit(1, wd=0.1)
