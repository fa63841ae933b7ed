"""`nero speedrun` as it is typed."""

from pathlib import Path

import pytest

from nero.cli import main

STAND_IN = str(Path(__file__).with_name("stand_in.txt"))


def test_writes_an_entry_and_says_what_to_do_with_it(tmp_path, capsys):
    output = tmp_path / "entry.py"
    assert (
        main(["speedrun", "--baseline", STAND_IN, "--steps", "3600", "--output", str(output)]) == 0
    )
    printed = capsys.readouterr().out
    assert "README" in printed
    assert "0.03, was measured on runs of up to 3,525 steps, not of 3,600" in printed
    assert "lr=0.03" in output.read_text()
    assert "train_steps = 3600" in output.read_text()


@pytest.mark.parametrize("typed", [["--lr", "0.02", "--steps", "3600"], ["--steps", "3000"]])
def test_says_nothing_of_a_length_that_was_measured_or_has_no_part(typed, tmp_path, capsys):
    output = tmp_path / "entry.py"
    assert main(["speedrun", "--baseline", STAND_IN, *typed, "--output", str(output)]) == 0
    assert len(capsys.readouterr().out.splitlines()) == 1
    assert ("lr=0.02" in output.read_text()) == ("0.02" in typed)


def test_refuses_to_replace_the_baseline(tmp_path, capsys):
    baseline = tmp_path / "baseline.py"
    baseline.write_text(Path(STAND_IN).read_text())
    assert main(["speedrun", "--baseline", str(baseline), "--output", str(baseline)]) == 2
    assert "give another name" in capsys.readouterr().err
    assert baseline.read_text() == Path(STAND_IN).read_text()


def test_refuses_another_file_and_writes_nothing(tmp_path, capsys):
    other = tmp_path / "other.py"
    other.write_text("print('a script')\n")
    assert main(["speedrun", "--baseline", str(other), "--output", str(tmp_path / "entry.py")]) == 2
    assert "not the baseline" in capsys.readouterr().err
    assert not (tmp_path / "entry.py").exists()
