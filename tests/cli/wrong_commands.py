"""What the tests of wrong commands share: a folder of wrong models, and what must be said of them."""

import re
import shlex

import pytest

from nero.cli import main
from tests.contract.wrong_uses import ADVICE

ARGPARSES = re.compile("choose from|required: |unrecognized arguments: |expected one|invalid float")
"""How argparse says what to do."""

MODULE = """
import sys
import torch
from torch import nn

class Odd(nn.Module):
    def __init__(self, value, tp_plan=None):
        super().__init__()
        self.odd = nn.Parameter(value)
        self.tp_plan = tp_plan

class NoCopy(nn.Linear):
    def __deepcopy__(self, memo):
        raise TypeError("cannot be copied")

def net(): return nn.Linear(4, 3)
def needs(size): return nn.Linear(size, size)
def fails(): return nn.Linear("four", 3)
def lines(): raise RuntimeError("one line\\nand another")
def leaves(): sys.exit(3)
def looks_up(): return {}["x"]
def none(): return None
def lazy(): return nn.LazyLinear(3)
def gain(): return nn.LayerNorm(3)
def complex_(): return Odd(torch.zeros(4, 4, dtype=torch.complex64))
def scalar(): return Odd(torch.zeros(()))
def wrong_plan(): return Odd(torch.zeros(4, 4), tp_plan={"odd": "diagonal"})
def list_plan(): return Odd(torch.zeros(4, 4), tp_plan=["odd"])
def no_copy(): return NoCopy(4, 3)
number = 3
"""


@pytest.fixture(autouse=True)
def in_folder(tmp_path, monkeypatch):
    (tmp_path / "wrong.py").write_text(MODULE)
    (tmp_path / "needs_another.py").write_text("import not_there\n")
    (tmp_path / "broken.py").write_text("1 / 0\n")
    (tmp_path / "misspelt.py").write_text("def net(:\n")
    (tmp_path / "leaving.py").write_text("import sys\nsys.exit('bye')\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)  # undoes what the command itself does to sys.path
    monkeypatch.delitem(__import__("sys").modules, "wrong", raising=False)


def each(table):
    return pytest.mark.parametrize(
        ("typed", "message"), table, ids=[typed[:60] or "nothing" for typed, _ in table]
    )


def check_usage(typed, message, capsys):
    """Argparse refuses it, with the usage of the command that was named."""
    with pytest.raises(SystemExit) as left:
        main(shlex.split(typed))
    assert left.value.code == 2
    *usage, last = capsys.readouterr().err.strip().splitlines()
    assert re.search(message, last), last
    assert ADVICE.search(last) or ARGPARSES.search(last), last
    command = typed.split()[0] if typed and not typed.startswith(("-", "fly")) else ""
    assert usage[0].startswith(f"usage: nero {command}".rstrip()), usage[0]
    assert last.startswith(f"nero {command}".rstrip() + ": error: "), last


def check_refused(typed, message, capsys):
    """The command refuses it in one line that says what to do."""
    assert main(shlex.split(typed)) == 2
    error = capsys.readouterr().err
    assert_one_line(typed, message, error)
    assert ADVICE.search(error), error


def check_blamed(typed, message, capsys):
    """The user's own code raises, and one line says where."""
    assert main(shlex.split(typed)) == 1
    assert_one_line(typed, message, capsys.readouterr().err)


def assert_one_line(typed, message, error):
    (line,) = error.splitlines()
    assert line.startswith(f"nero {typed.split()[0]}: ")
    assert re.search(message, line), line
