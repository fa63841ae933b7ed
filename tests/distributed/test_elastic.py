"""Ranks that are killed and restarted end with the bits of the run that nobody disturbed."""

import pytest
import torch

from tests.distributed.elastic_worker import Kill
from tests.distributed.soak import KINDS, differences, random_kills, run

# More kinds, at random steps: tests/distributed/soak.py, recorded in records/soak.json.
KILLS = [
    Kill("during all-reduce", step=7, rank=1),
    Kill("saving data", step=12, rank=0),
    Kill("between steps", step=18, rank=1),
]


@pytest.mark.slow
def test_killed_between_steps_while_saving_and_inside_the_all_reduce(tmp_path):
    unbroken = run(tmp_path / "unbroken")
    broken = run(tmp_path / "broken", KILLS)
    assert [(kill["kind"], kill["restart"]) for kill in broken["used"]] == [
        (kill.kind, restart) for restart, kill in enumerate(KILLS)
    ]
    # Step 12 was being saved: what there is of it is left alone, and saved anew.
    assert [start["resumed_at"] for start in broken["starts"]][:4] == [0, 4, 8, 16]
    assert [start["incomplete"] for start in broken["starts"]][:4] == [[], [], ["step-012"], []]
    assert unbroken["result"]["lr"] != [0.01]
    assert differences(broken["result"], unbroken["result"]) == []


def test_a_difference_would_be_seen():
    a = {"x": [1.0, {"y": torch.tensor([0.0, 1.0])}]}
    assert differences(a, {"x": [1.0, {"y": torch.tensor([0.0, 1.0])}]}) == []
    assert differences(a, {"x": [1.0, {"y": torch.tensor([-0.0, 1.0])}]}) == ["result.x.1.y"]
    assert differences(a, {"x": [2.0]}) == ["result.x"]


def test_random_kills_are_of_every_kind_and_the_same_for_a_seed():
    assert random_kills(12, seed=3) == random_kills(12, seed=3) != random_kills(12, seed=4)
    kinds = [kill.kind for kill in random_kills(12, seed=3)]
    assert {kinds.count(kind) for kind in KINDS} == {2}
