"""Commands of other distributions: found by their entry points, or else named with what to install."""

import sys

import pytest

from nero.cli import dispatch, main

COMMAND = """
\"\"\"Say hello.\"\"\"

def add_arguments(parser):
    parser.add_argument("--name", default="you")

def run(args):
    print(f"hello {args.name}")
"""


@pytest.fixture
def installed(tmp_path, monkeypatch):
    """Install a distribution with the commands `hello`, and one that has the name of ours."""
    (tmp_path / "greetings.py").write_text(COMMAND)
    folder = tmp_path / "greetings-1.0.dist-info"
    folder.mkdir()
    (folder / "METADATA").write_text("Metadata-Version: 2.1\nName: greetings\nVersion: 1.0\n")
    (folder / "entry_points.txt").write_text(
        "[nero.commands]\nhello = greetings\ninspect = greetings\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    yield
    sys.modules.pop("greetings", None)


def test_a_command_of_another_distribution(installed, capsys):
    assert main(["hello", "--name", "neuron"]) == 0
    assert capsys.readouterr().out == "hello neuron\n"
    with pytest.raises(SystemExit):
        main(["--help"])
    assert "a command of greetings" in capsys.readouterr().out
    with pytest.raises(SystemExit):
        main(["hello", "--sideways"])
    assert "unrecognized arguments: --sideways" in capsys.readouterr().err


def test_none_replaces_ours(installed, capsys):
    assert main(["inspect", "torch.nn:PReLU", "--plain"]) == 0
    assert "PReLU" in capsys.readouterr().out


@pytest.mark.parametrize("typed", ["bench", "bench --help", "plan --mesh fsdp=8", "theory m:net"])
def test_without_nero_tools_its_commands_say_what_to_install(typed, monkeypatch, capsys):
    monkeypatch.setattr(dispatch, "entry_points", lambda group: ())
    assert main(typed.split()) == 2
    command = typed.split()[0]
    assert capsys.readouterr().err == f"nero {command} needs nero-tools: pip install nero-tools\n"


def test_without_nero_tools_the_help_lists_its_commands(monkeypatch, capsys):
    monkeypatch.setattr(dispatch, "entry_points", lambda group: ())
    monkeypatch.setenv("COLUMNS", "120")  # so that no line is wrapped
    with pytest.raises(SystemExit):
        main(["--help"])
    assert capsys.readouterr().out.count("needs nero-tools") == len(dispatch.TOOLS)
