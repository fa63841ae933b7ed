"""Whatever is typed after ``nero``: an exit code, one line that says why, and no traceback."""

import re
import shlex

import pytest

from nero.tools.cli import main
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

USAGE = [
    ("", "required: COMMAND"),
    ("fly", "invalid choice: 'fly'"),
    ("--sideways", "required: COMMAND|unrecognized"),
    ("inspect", "required: MODULE:CALLABLE"),
    ("inspect wrong:net --sideways", "unrecognized arguments: --sideways"),
    ("inspect wrong:net wrong:net", "unrecognized arguments: wrong:net"),
    ("inspect wrong:net --constraint cube", "--constraint: invalid choice: 'cube'"),
    ("inspect wrong:net --constraint", "--constraint: expected one argument"),
    ("inspect wrong:net --json file.json", "unrecognized arguments: file.json"),
    ("theory wrong:net", "required: --n, --alpha"),
    ("theory wrong:net --n 10", "required: --alpha"),
    ("theory wrong:net --n 1 --alpha 0.1", "--n: '1' must be a whole number"),
    ("theory wrong:net --n 1.5 --alpha 0.1", "--n: '1.5' must be a whole number"),
    ("theory wrong:net --n many --alpha 0.1", "--n: 'many' must be a whole number"),
    ("theory wrong:net --n -5 --alpha 0.1", "--n: '-5' must be a whole number"),
    (f"theory wrong:net --n {'9' * 400} --alpha 0.1", "--n: .* must be a whole number"),
    ("theory wrong:net --n 10 --alpha 4", "--alpha: '4' must be an angle"),
    ("theory wrong:net --n 10 --alpha 0", "--alpha: '0' must be an angle"),
    ("theory wrong:net --n 10 --alpha nan", "--alpha: 'nan' must be an angle"),
    ("theory wrong:net --n 10 --alpha five", "--alpha: 'five' must be an angle"),
    ("theory wrong:net --n 10 --alpha 0.1 --delta 0", "--delta: '0' must be a proportion"),
    ("theory wrong:net --n 10 --alpha 0.1 --delta 2", "--delta: '2' must be a proportion"),
    ("theory wrong:net --n 10 --alpha 0.1 --log-k x", "--log-k: .*'x'"),
    ("plan --mesh pp=2", "--mesh: 'pp' .* must be one of"),
    ("plan --mesh fsdp", "--mesh: 'fsdp' .* AXIS=SIZE"),
    ("plan --mesh fsdp=0", "--mesh: .*fsdp has size 0"),
    ("plan --mesh fsdp=-2", "--mesh: .* AXIS=SIZE"),
    ("plan --mesh fsdp=two", "--mesh: .* AXIS=SIZE"),
    ("plan --mesh fsdp=2,fsdp=4", "--mesh: .*names fsdp twice"),
    ("plan --mesh fsdp=1000000", "--mesh: .*too many"),
    ("plan --mesh fsdp=99999999999999999999", "--mesh: .*too many"),
    (f"plan --mesh fsdp={'9' * 200}", "--mesh: .* AXIS=SIZE"),
    ("plan --mesh ''", "--mesh: .* AXIS=SIZE"),
    ("plan --mesh fsdp=2 tp=2", "unrecognized arguments: tp=2"),
    ("plan --optimizers sgd", "--optimizers: 'sgd' must be one of"),
    ("plan --optimizers nero,", "--optimizers: '' must be one of"),
    ("plan --json .", "--json: '.' is a folder"),
    ("plan --json no/such/folder.json", "--json: there is no folder 'no/such'"),
    ("plan --json wrong.py/plan.json", "--json: there is no folder 'wrong.py'"),
    (f"plan --json {'x' * 5000}.json", "--json: cannot write such a file"),
    ("plan --plot no/such/plan.png", "--plot: there is no folder"),
    ("bench --shapes gpt5", "--shapes: 'gpt5' must be one of"),
    ("bench --optimizers lion", "--optimizers: 'lion' must be one of"),
    ("bench --device tpu", "--device: invalid choice: 'tpu'"),
    ("bench --dtype int8", "--dtype: invalid choice: 'int8'"),
    ("bench --threads 0", "--threads: '0' must be a whole number"),
    ("bench --threads 1,x", "--threads: 'x' must be a whole number"),
    ("bench --threads 999999999", "--threads: '999999999' must be a whole number"),
    ("bench --rounds 0", "--rounds: '0' must be a whole number"),
    ("bench --settle-ms -1", "--settle-ms: '-1' must be a number"),
    ("bench --settle-ms 1e300", "--settle-ms: '1e300' must be a number"),
    ("bench --evict-mb nan", "--evict-mb: 'nan' must be a number"),
    ("bench --evict-mb 1e300", "--evict-mb: '1e300' must be a number"),
    ("bench --json .", "--json: '.' is a folder"),
]

REFUSED = [
    ("inspect ''", "MODULE:CALLABLE"),
    ("inspect wrong", "MODULE:CALLABLE"),
    ("inspect :x", "MODULE:CALLABLE"),
    ("inspect wrong:", "MODULE:CALLABLE"),
    ("inspect .rel:x", "MODULE:CALLABLE"),
    ("inspect ../um:tiny", "MODULE:CALLABLE"),
    ("inspect wrong.py:net", "cannot import 'wrong.py'"),
    ("inspect 'my model:net'", "MODULE:CALLABLE"),
    ("inspect wrong..x:net", "MODULE:CALLABLE"),
    ("inspect no_such_module:net", "cannot import 'no_such_module'"),
    ("inspect needs_another:net", "cannot import 'needs_another': No module named 'not_there'"),
    ("inspect wrong:nothing", "has no attribute 'nothing'"),
    ("inspect wrong:net.nothing", "has no attribute 'nothing'"),
    ("inspect wrong:needs", "cannot be called without arguments"),
    ("inspect wrong:number", "neither callable nor a module"),
    ("inspect wrong:none", "returned NoneType"),
    ("inspect builtins:dict", "returned dict"),
    ("inspect torch.nn:Linear", "cannot be called without arguments"),
    ("inspect wrong:lazy", "`weight` has no shape yet"),
    ("inspect wrong:complex_", "`odd` is torch.complex64"),
    ("theory wrong:gain --n 10 --alpha 0.1", "no parameter of the model"),
    ("theory wrong:complex_ --n 10 --alpha 0.1", "no parameter of the model"),
    ("theory wrong:net --n 10 --alpha 0.1 --constraint none", "no parameter of the model"),
    ("theory wrong:net --n 10 --alpha 0.1 --log-k nan", "log_solutions"),
    ("theory wrong:net --n 10 --alpha 0.1 --log-k=-1", "log_solutions"),
    ("theory wrong:net --n 10 --alpha 0.1 --log-k 1e9", "do not fit"),
    ("theory wrong:net --n 10 --alpha 0.1 --delta 5e-324", "samples"),
    ("theory nothing:net --n 10 --alpha 0.1", "cannot import 'nothing'"),
    ("plan --model llama-9b", "'llama-9b' is none of .*: give one such as"),
    ("plan --model wrong:number", "neither callable nor a module"),
    ("plan --model wrong:net --mesh tp=2", "tp_plan"),
    ("plan --model wrong:wrong_plan --mesh tp=2", "'diagonal'"),
    ("plan --model wrong:list_plan --mesh tp=2", "tp_plan"),
    ("plan --model wrong:scalar --mesh fsdp=2", "scalar"),
    ("plan --model wrong:no_copy --mesh fsdp=2", "cannot be copied"),
    ("plan --model wrong:net --optimizers adamw --plot x.bogus", "cannot write the picture"),
    ("bench --device cuda", "torch sees no CUDA device"),
]

USERS_CODE = [
    ("inspect wrong:fails", r"calling wrong:fails raised TypeError: .* \(.*, line \d+\)"),
    ("inspect wrong:lines", "raised RuntimeError: one line and another"),
    ("inspect wrong:leaves", "raised SystemExit: 3"),
    ("inspect wrong:looks_up", "raised KeyError: 'x'"),
    ("inspect broken:net", "importing 'broken' raised ZeroDivisionError: division by zero"),
    ("inspect misspelt:net", "importing 'misspelt' raised SyntaxError"),
    ("inspect leaving:net", "importing 'leaving' raised SystemExit"),
    ("plan --model wrong:fails", "calling wrong:fails raised TypeError"),
    ("theory wrong:fails --n 10 --alpha 0.1", "calling wrong:fails raised TypeError"),
]


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


@each(USAGE)
def test_usage(typed, message, capsys):
    with pytest.raises(SystemExit) as left:
        main(shlex.split(typed))
    assert left.value.code == 2
    *usage, last = capsys.readouterr().err.strip().splitlines()
    assert re.search(message, last), last
    assert ADVICE.search(last) or ARGPARSES.search(last), last
    command = typed.split()[0] if typed and not typed.startswith(("-", "fly")) else ""
    assert usage[0].startswith(f"usage: nero {command}".rstrip()), usage[0]
    assert last.startswith(f"nero {command}".rstrip() + ": error: "), last


@each(REFUSED)
def test_refused(typed, message, capsys):
    assert main(shlex.split(typed)) == 2
    error = capsys.readouterr().err
    assert_one_line(typed, message, error)
    assert ADVICE.search(error), error


@each(USERS_CODE)
def test_an_error_in_the_users_code_is_named_in_one_line(typed, message, capsys):
    assert main(shlex.split(typed)) == 1
    assert_one_line(typed, message, capsys.readouterr().err)


def assert_one_line(typed, message, error):
    (line,) = error.splitlines()
    assert line.startswith(f"nero {typed.split()[0]}: ")
    assert re.search(message, line), line


def test_ctrl_c_is_one_line(monkeypatch, capsys):
    def interrupt(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr("nero.tools.inspect.describe", interrupt)
    assert main(["inspect", "wrong:net"]) == 130
    assert capsys.readouterr().err == "\nnero inspect: interrupted\n"
