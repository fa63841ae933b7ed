"""Do sinks get every report, and does training survive one that fails?"""

import json

import pytest
import torch
from torch import nn

import nero
from nero.diagnostics import JsonLinesSink, TurningMonitor
from tests.diagnostics.watching import NUM_STEPS, watch


def test_json_lines(tmp_path):
    path = tmp_path / "not there yet" / "turning.jsonl"
    last = watch(JsonLinesSink(path))
    watch(JsonLinesSink(path))  # a resumed run goes on at the end
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    assert [line["step"] for line in lines] == [1, 2, 3, 1, 2, 3]
    assert lines[2] == json.loads(json.dumps(last.as_dict()))
    assert lines[0]["layers"][0]["name"] == "0.weight"


def test_sinks_without_close_are_fine():
    class Last:
        def write(self, report):
            self.report = report

    assert watch(sink := Last()) is sink.report


class Broken:
    """A sink that fails, as one does whose disk is full or whose service is down."""

    num_calls = 0

    def write(self, report):
        self.num_calls += 1
        raise OSError("no space left")

    def close(self):
        raise OSError("still no space left")


class Reports(list):
    write = list.append


def test_a_sink_that_raises_is_disabled_and_training_goes_on():
    with pytest.warns(UserWarning, match=r"Broken raised OSError\('no space left'\)") as caught:
        last = watch(broken := Broken(), reports := Reports())
    assert len(caught) == 1  # also for `close`, which raises too
    assert broken.num_calls == 1
    assert [report.step for report in reports] == [1, 2, 3]
    assert reports[-1] is last


def test_a_sink_that_cannot_be_closed_does_not_keep_others_open():
    class Unclosable(Broken):
        def write(self, report):
            pass

    class Closed(Reports):
        is_closed = False

        def close(self):
            self.is_closed = True

    with pytest.warns(UserWarning, match="Unclosable raised OSError"):
        watch(Unclosable(), closed := Closed())
    assert closed.is_closed


def test_equal_sinks_are_not_confused():
    class Full(Reports):
        def write(self, report):
            raise OSError("full")

    with pytest.warns(UserWarning, match="Full raised"):
        watch(Full(), reports := Reports())  # both are empty lists, hence equal
    assert len(reports) == NUM_STEPS


def test_whoever_wants_the_error_gets_it():
    model = nn.Linear(8, 4)
    optimizer = nero.Nero(model)
    monitor = TurningMonitor(optimizer, sinks=[Broken()], on_error="raise")
    model.weight.grad = torch.randn(4, 8)
    with pytest.raises(OSError, match=r"^no space left"):
        optimizer.step()
    assert monitor.last_report.step == 1
    with pytest.raises(OSError, match="still no space left"):
        monitor.close()
