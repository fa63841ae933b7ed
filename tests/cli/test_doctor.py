"""`nero doctor` as a user meets it, with Triton's interpreter and without."""

import json
import os
import subprocess
import sys

import pytest

from nero.cli import main


@pytest.mark.skipif("TRITON_INTERPRET" in os.environ, reason="asks for the CPU as it is")
def test_says_what_runs_and_what_not(capsys, monkeypatch, tmp_path):
    monkeypatch.setenv("NERO_CACHE", str(tmp_path))
    monkeypatch.setenv("OMP_NUM_THREADS", "3")
    assert main(["doctor"]) == 0
    printed = capsys.readouterr().out
    for expected in ("torch 2", "threads: torch", "OMP_NUM_THREADS 3", f"cache: {tmp_path}"):
        assert expected in printed
    assert "plain    runs everywhere" in printed
    assert "not run, since it has no device here" in printed
    assert "check = StepCheck(model, optimizer)" in printed


def test_prints_json(capsys):
    assert main(["doctor", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["backends"]["plain"] == "runs everywhere"
    assert found["versions"]["torch"]
    assert isinstance(found["self_tests"], list)


def test_refuses_an_unknown_dtype(capsys):
    with pytest.raises(SystemExit):
        main(["doctor", "--dtypes", "int8"])
    assert "'int8' must be one of float32" in capsys.readouterr().err


def test_prints_the_self_test_whole():
    pytest.importorskip("triton")
    code = (
        "import warnings; warnings.simplefilter('ignore'); from nero.cli import main\n"
        "from backends.quick_interpreter import quick_interpreter\n"
        "with quick_interpreter(): main(['doctor', '--dtypes', 'float32'])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "TRITON_INTERPRET": "1", "PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    lines = [line for line in done.stdout.splitlines() if line.startswith("Triton's interpreter")]
    assert len(lines) == 6, "without momentum and with it in two dtypes, whole and in halves"
    assert all(line.endswith("passed") for line in lines)


def test_prints_every_difference():
    from nero.cli.doctor import text

    difference = {"case": "a row of zeros", "tensor": "weight", "num_different": 3, "num": 27}
    test = {"device": "a GPU", "dtype": "float32", "stochastic": False, "momentum": None}
    test |= {"shared": False, "num_cases": 35, "seconds": 0.1, "passed": False, "error": None}
    test["differences"] = [{**difference, "largest": 0.5, "allowed": 2e-6}] * 2
    found = {"versions": {}, "machine": {"cpu": "", "platform": ""}, "threads": {}, "cache": ""}
    printed = text({**found, "backends": {"plain": "runs"}, "self_tests": [test]})
    assert (
        printed.count("float32, a row of zeros, weight: 3 of 27 numbers differ, by up to 0.5") == 2
    )
