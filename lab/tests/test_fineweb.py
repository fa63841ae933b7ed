"""Shards of tokens, and the GPT-2 that reads them."""

import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from parameters import inner_matrices, num_params
from torch import Tensor

import nero
from nero_lab.data.token_shards import MAGIC, TokenShards, read_shard, write_shard
from nero_lab.engine.errors import DataError
from nero_lab.engine.task import Setting
from nero_lab.models.gpt import GPT
from nero_lab.tasks.fineweb_gpt2 import FINEWEB_GPT2, FineWeb, make_up_shards

SMOKE = FINEWEB_GPT2.recipes["smoke"]


@pytest.fixture(scope="module")
def folder() -> Iterator[Path]:
    made = make_up_shards(0, vocabulary=SMOKE.options["vocabulary"])
    yield made
    shutil.rmtree(made)


def write_counting(folder: Path, *sizes: int) -> None:
    """Write shards that count on from one to the next."""
    for number, tokens in enumerate(torch.arange(sum(sizes)).split(sizes)):
        write_shard(folder / f"count_{number:02}.bin", tokens)


def shards(folder: Path, *, context: int = 4, vocabulary: int = 100) -> TokenShards:
    return TokenShards(folder, "count_*.bin", context=context, vocabulary=vocabulary)


# --- shards ---


def test_a_shard_is_a_header_and_two_bytes_for_each_token(tmp_path: Path) -> None:
    path = tmp_path / "shard.bin"
    header = np.zeros(256, "<i4")
    header[:3] = 20240520, 1, 3
    path.write_bytes(header.tobytes() + bytes([1, 0, 0, 1, 255, 255]))
    assert read_shard(path).tolist() == [1, 256, 65535]
    assert isinstance(read_shard(path), np.memmap)
    written = tmp_path / "written.bin"
    write_shard(written, torch.tensor([1, 256, 65535]))
    assert written.read_bytes() == path.read_bytes()


def test_windows_lie_side_by_side_and_in_one_shard(tmp_path: Path) -> None:
    write_counting(tmp_path, 11, 9, 4)  # two windows, two, and none
    found = shards(tmp_path)
    assert len(found) == 4
    inputs, targets = found.windows(torch.tensor([3, 0, 1, 2]))
    assert inputs[:, 0].tolist() == [15, 0, 4, 11]
    assert torch.equal(targets, inputs + 1)
    assert inputs.shape == (4, 4)
    assert inputs.dtype == torch.int64


@pytest.mark.parametrize(
    ("position", "value", "message"),
    [
        (0, 7, f"begins with 7, not {MAGIC}"),
        (1, 2, "format version 2; we read version 1"),
        (2, 8, r"has 1,044 bytes, but with the 8 tokens in its header it would have 1,040"),
        (2, 11, r"has 1,044 bytes, but with the 11 tokens in its header it would have 1,046"),
        (2, -1, "with the -1 tokens"),
    ],
)
def test_a_damaged_shard_is_named(tmp_path: Path, position: int, value: int, message: str) -> None:
    write_counting(tmp_path, 10, 10)
    path = tmp_path / "count_01.bin"
    content = np.frombuffer(path.read_bytes(), "<i4").copy()
    content[position] = value
    path.write_bytes(content.tobytes())
    with pytest.raises(DataError, match=rf"count_01\.bin .*{message}"):
        shards(tmp_path)


def test_a_shard_that_was_cut_short_is_named(tmp_path: Path) -> None:
    write_counting(tmp_path, 10)
    path = tmp_path / "count_00.bin"
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(DataError, match=r"count_00\.bin has 1,043 bytes.*Download it again"):
        shards(tmp_path)
    path.write_bytes(b"<html>")
    with pytest.raises(DataError, match=r"count_00\.bin has 6 bytes, fewer than the header"):
        shards(tmp_path)


def test_a_token_outside_the_vocabulary_is_named(tmp_path: Path) -> None:
    write_counting(tmp_path, 9, 9)
    found = shards(tmp_path, vocabulary=15)
    found.windows(torch.tensor([0, 1, 2]))
    with pytest.raises(DataError, match=r"count_01\.bin has the token 17; .* ends at 14"):
        found.windows(torch.tensor([3]))


def test_missing_shards_are_asked_for_by_name(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"no files .*fineweb/fineweb_train_\*\.bin"):
        FINEWEB_GPT2.build(Setting(FINEWEB_GPT2.recipes["paper"], 0, tmp_path))


# --- the task ---


def experiment(
    folder: Path, *, rank: int = 0, world_size: int = 1, epochs: int = SMOKE.epochs, seed: int = 0
) -> FineWeb:
    torch.manual_seed(0)
    recipe = replace(SMOKE, epochs=epochs)
    return FineWeb(Setting(recipe, seed, folder, rank=rank, world_size=world_size), folder)


def as_set(windows: tuple[Tensor, Tensor]) -> set[tuple[int, ...]]:
    inputs, targets = windows
    return {tuple(row) for row in torch.cat((inputs, targets), 1).tolist()}


@pytest.mark.parametrize("world_size", [2, 4, 8])
def test_ranks_read_disjoint_windows_that_add_up_to_those_of_one(
    folder: Path, world_size: int
) -> None:
    alone = list(experiment(folder).batches(1, 12))
    ranks = [
        list(experiment(folder, rank=rank, world_size=world_size).batches(1, 12))
        for rank in range(world_size)
    ]
    for whole, *parts in zip(alone, *ranks, strict=True):
        assert {len(part[0]) for part in parts} == {8 // world_size}
        sets = [as_set(part) for part in parts]
        assert set.union(*sets) == as_set(whole)
        assert sum(map(len, sets)) == len(as_set(whole)) == 8


def test_a_run_reads_every_token_once_from_the_first_on(folder: Path) -> None:
    trained = experiment(folder)
    batches = [batch for epoch in range(2) for batch, _ in trained.batches(epoch, 0)]
    first = read_shard(trained.train.paths[0])
    read = torch.cat(batches).flatten()
    # Two shards of 5,000 tokens: 156 windows of 32 lie in the first.
    assert read.numel() == 2 * 15 * 8 * 32
    assert read[: 156 * 32].tolist() == first[: 156 * 32].tolist()
    second = read_shard(trained.train.paths[1])
    assert read[156 * 32 :].tolist() == second[: read.numel() - 156 * 32].tolist()


def test_the_seed_does_not_change_the_order_of_tokens(folder: Path) -> None:
    one, other = (next(experiment(folder, seed=seed).batches(0, 0)) for seed in (0, 1))
    assert torch.equal(one[0], other[0])


def test_a_run_that_would_read_tokens_twice_is_refused(folder: Path) -> None:
    message = r"fineweb_train_\*\.bin holds 9,984 tokens, but a run of 3 epochs reads 11,520"
    with pytest.raises(DataError, match=message):
        experiment(folder, epochs=3)


def test_validation_wants_all_its_tokens(folder: Path) -> None:
    recipe = replace(SMOKE, options={**SMOKE.options, "num_valid_tokens": 4096})
    with pytest.raises(DataError, match=r"fineweb_val_\*\.bin .* but validation reads 4,096"):
        FineWeb(Setting(recipe, 0, folder), folder)


def test_validation_reads_the_first_tokens_in_parts_of_a_rank(folder: Path) -> None:
    parts = [part for part, _ in experiment(folder, rank=1, world_size=2).valid_windows()]
    assert {len(part) for part in parts} == {4}  # no more at once than in training
    assert torch.cat(parts).shape == (1024 // 32 // 2, 32)


def test_the_paper_scale_is_the_shape_of_gpt2_and_the_budget_of_the_speed_run() -> None:
    recipe = FINEWEB_GPT2.recipes["paper"]
    options = recipe.options
    names = ("vocabulary", "context", "num_layers", "width", "num_heads")
    with torch.device("meta"):
        model = GPT(**{name: options[name] for name in names})
    blocks = num_params(model.blocks)
    assert blocks == 12 * (12 * 768**2 + 2 * 768)
    assert num_params(model) == blocks + (2 * 50_304 + 1024 + 1) * 768
    assert recipe.batch_size * options["context"] == 524_288
    assert recipe.epochs * options["steps_per_epoch"] == 10_000
    assert options["num_valid_tokens"] == 10_485_760
    assert FINEWEB_GPT2.metric.target == 3.28


def test_the_reading_of_its_layers(folder: Path) -> None:
    model = experiment(folder).players["gpt"]
    roles = {row.name: row.role for row in nero.describe(model).rows}
    assert (roles["token.weight"], roles["head.weight"]) == ("embedding", "neuron")
    assert {roles[name] for name in inner_matrices(model)} == {"neuron"}


def test_made_up_shards_are_removed_with_their_experiment(tmp_path: Path) -> None:
    made = FINEWEB_GPT2.build(Setting(SMOKE, 0, tmp_path))
    assert isinstance(made, FineWeb)
    where = made.train.paths[0].parent
    assert where.is_dir()
    del made
    assert not where.exists()
