"""`nero inspect` as a user meets it."""

import json
import re

import pytest

from nero.cli import main


@pytest.fixture
def in_folder(tmp_path, monkeypatch):
    (tmp_path / "my_models.py").write_text(
        "from torch import nn\n"
        "def net():\n    return nn.Sequential(nn.Linear(4, 3), nn.BatchNorm1d(3), nn.Linear(1, 2))\n"
        "def needs(size):\n    return nn.Linear(size, size)\n"
        "ready = net()\n"
        "number = 3\n"
        "def wrong():\n    return 3\n"
        "def reads():\n    import torch\n    rate = torch.linspace(0, 1, 3)[1].item()\n"
        "    return nn.Sequential(nn.Dropout(rate), nn.Linear(4, 3))\n"
        "def fails():\n    return nn.Linear('four', 3)\n"
    )
    monkeypatch.chdir(tmp_path)


@pytest.mark.usefixtures("in_folder")
class TestInspect:
    def test_shows_its_own_usage(self, capsys):
        with pytest.raises(SystemExit):
            main(["inspect", "my_models:net", "--sideways"])
        error = capsys.readouterr().err
        assert "usage: nero inspect" in error
        assert "unrecognized arguments: --sideways" in error
        with pytest.raises(SystemExit):
            main(["--sideways", "inspect", "my_models:net"])
        assert "unrecognized arguments: --sideways" in capsys.readouterr().err

    @pytest.mark.parametrize("is_terminal", [True, False])
    def test_prints_a_table_with_reasons(self, capsys, monkeypatch, is_terminal):
        monkeypatch.setattr("sys.stdout.isatty", lambda: is_terminal)
        monkeypatch.setenv("COLUMNS", "200" if is_terminal else "20")
        assert main(["inspect", "my_models:net"]) == 0
        printed = capsys.readouterr().out
        assert "0.weight" in printed
        assert "no balanced neuron exists" in printed
        assert "25 parameters, 5 neurons" in printed

    def test_prints_json(self, capsys):
        assert main(["inspect", "my_models:ready", "--json", "--constraint", "norm"]) == 0
        table = json.loads(capsys.readouterr().out)
        first = table["parameters"][0]
        assert first["name"] == "0.weight"
        assert first["fan_in"] == 4
        assert first["constraint"] == "norm 1"
        assert table["state_bytes"] == sum(row["state_bytes"] for row in table["parameters"])

    def test_builds_for_real_what_the_meta_device_cannot(self, capsys):
        assert main(["inspect", "my_models:reads", "--plain"]) == 0
        assert "1.weight" in capsys.readouterr().out

    def test_an_error_in_the_users_code_names_their_line(self, capsys):
        assert main(["inspect", "my_models:fails"]) == 1
        assert re.search(
            r"raised TypeError: .*\(.*my_models\.py, line 15\)$", capsys.readouterr().err
        )

    @pytest.mark.parametrize(
        ("target", "message"),
        [
            ("my_models", "MODULE:CALLABLE"),
            (":net", "MODULE:CALLABLE"),
            (".my_models:net", "MODULE:CALLABLE"),
            ("../my_models:net", "MODULE:CALLABLE"),
            ("builtins:dict", "returned dict"),
            ("no_such_module:net", "cannot import 'no_such_module'"),
            ("my_models:nothing", "has no attribute 'nothing'"),
            ("my_models:needs", "cannot be called without arguments"),
            ("my_models:number", "neither callable nor a module"),
            ("my_models:wrong", "returned int"),
        ],
    )
    def test_says_what_is_wrong(self, target, message, capsys):
        assert main(["inspect", target]) == 2
        assert message in capsys.readouterr().err
