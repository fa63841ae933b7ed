"""Does the example that watches the lab's perceptron draw its picture?"""

import sys
from pathlib import Path

import pytest

from examples import late_spike

PNG = b"\x89PNG\r\n\x1a\n"


def test_the_picture(
    data_dir: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    out = tmp_path / "spike.png"
    options = ["--scale", "smoke", "--data-dir", str(data_dir), "--out", str(out)]
    monkeypatch.setattr(sys, "argv", ["late_spike.py", *options])
    late_spike.main()
    assert out.read_bytes().startswith(PNG)
    assert capsys.readouterr().out.count("mean loss of the last epoch") == 3
