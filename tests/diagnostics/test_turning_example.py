"""Does the example draw its picture?"""

import sys

from examples import turning_angles

PNG = b"\x89PNG\r\n\x1a\n"


def test_the_picture(tmp_path, monkeypatch, capsys):
    out = tmp_path / "angles.png"
    monkeypatch.setattr(sys, "argv", ["turning_angles.py", "--steps", "2", "--out", str(out)])
    turning_angles.main()
    assert out.read_bytes().startswith(PNG)
    assert "Nero from torch's initial weights: loss" in capsys.readouterr().out
