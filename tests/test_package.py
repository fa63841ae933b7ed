"""What a user's `pip install nero-optim` brings."""

from importlib import metadata

import nero


def test_the_core_needs_torch_and_nothing_else():
    core = [r for r in metadata.requires("nero-optim") or [] if "extra ==" not in r]
    assert [r.split(">")[0] for r in core] == ["torch"]


def test_the_version_is_stated_once():
    assert nero.__version__ == metadata.version("nero-optim")
