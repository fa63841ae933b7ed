"""Whatever is typed after ``nero``: an exit code, one line that says why, and no traceback."""

from nero.cli import main
from tests.cli.wrong_commands import (  # noqa: F401
    check_blamed,
    check_refused,
    check_usage,
    each,
    in_folder,
)

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
]

USERS_CODE = [
    ("inspect wrong:fails", r"calling wrong:fails raised TypeError: .* \(.*, line \d+\)"),
    ("inspect wrong:lines", "raised RuntimeError: one line and another"),
    ("inspect wrong:leaves", "raised SystemExit: 3"),
    ("inspect wrong:looks_up", "raised KeyError: 'x'"),
    ("inspect broken:net", "importing 'broken' raised ZeroDivisionError: division by zero"),
    ("inspect misspelt:net", "importing 'misspelt' raised SyntaxError"),
    ("inspect leaving:net", "importing 'leaving' raised SystemExit"),
]


@each(USAGE)
def test_usage(typed, message, capsys):
    check_usage(typed, message, capsys)


@each(REFUSED)
def test_refused(typed, message, capsys):
    check_refused(typed, message, capsys)


@each(USERS_CODE)
def test_an_error_in_the_users_code_is_named_in_one_line(typed, message, capsys):
    check_blamed(typed, message, capsys)


def test_ctrl_c_is_one_line(monkeypatch, capsys):
    def interrupt(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr("nero.cli.inspect.describe", interrupt)
    assert main(["inspect", "wrong:net"]) == 130
    assert capsys.readouterr().err == "\nnero inspect: interrupted\n"
