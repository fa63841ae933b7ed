"""Meshes as they are written on the command line."""

import pytest

from nero.cli.arguments import CommandError
from nero_tools.plan.mesh import Ranks, parse_ranks


@pytest.mark.parametrize(
    ("text", "ranks"),
    [
        ("replicate=16,fsdp=128,tp=8", Ranks(16, 128, 8)),
        (" tp=2 , fsdp=4", Ranks(1, 4, 2)),
        ("fsdp=1", Ranks()),
    ],
)
def test_reads_any_subset_in_any_order(text, ranks):
    assert parse_ranks(text) == ranks
    assert parse_ranks(str(ranks)) == ranks


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("fsdp", "must be of the form AXIS=SIZE"),
        ("fsdp=two", "must be of the form AXIS=SIZE"),
        ("", "must be of the form AXIS=SIZE"),
        ("pp=2", "'pp' .* must be one of replicate, fsdp, tp"),
        ("tp=2,tp=4", "names tp twice"),
        ("fsdp=0", "at least 1"),
        ("fsdp=99999999999999999999", "99,999,999,999,999,999,999 ranks are too many"),
        (f"fsdp={'9' * 5000}", "must be of the form AXIS=SIZE"),
    ],
)
def test_says_what_is_wrong(text, message):
    with pytest.raises(CommandError, match=message):
        parse_ranks(text)


def test_every_axis_counts():
    assert Ranks(2, 3, 4).size == 24
