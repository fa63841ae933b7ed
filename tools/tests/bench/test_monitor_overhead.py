"""Does the command run, and add up?"""

import json
from pathlib import Path

import pytest
import torch

from nero_tools.bench import monitor_overhead


def test_the_command(tmp_path, capsys):
    out = tmp_path / "overhead.json"
    size = ["--shape", "gpt-tiny", "--batch", "2", "--length", "8", "--threads", "1"]
    before = torch.get_num_threads()
    assert monitor_overhead.main([*size, "--rounds", "2", "--json", str(out)]) == 0
    assert torch.get_num_threads() == before
    assert "8 layers per sample" in capsys.readouterr().out
    told = json.loads(out.read_text())
    assert [*told["overhead"]] == ["alone", "idle", "sampled"]


def test_the_mean_counts_samples_as_often_as_they_happen():
    seconds = {"alone": [1.0, 2.0], "idle": [1.01, 2.02], "sampled": [1.21, 2.42]}
    made = monitor_overhead.Rounds(seconds)
    assert made.overhead("sampled").median == pytest.approx(0.21)
    assert made.mean_overhead(100) == pytest.approx(0.012)
    assert made.mean_overhead(1) == pytest.approx(0.21)
    assert monitor_overhead._rows(made)[3][:3] == ["sampled", "1815", "21.00%"]


def test_the_page_says_what_was_measured():
    root = Path(__file__).parents[3]
    record = json.loads((root / "tools" / "reports" / "2026-11-15-monitor.json").read_text())
    page = (root / "docs" / "how-to" / "monitor.md").read_text()
    assert record["mean"] < 0.02  # the promise
    assert f"{record['mean']:.1%} on average" in page
    assert f"took {record['overhead']['sampled']['median']:.0%} longer" in page
