"""What the ``nero-lab`` command does when something is wrong: it says so in one line and leaves nothing."""

import os
import shutil
import signal
import subprocess
import sys
import time
from importlib import metadata
from pathlib import Path

import pooch
import pytest
from command_line import Call, call, files_below, hear_ctrl_c
from made_up_runs import write_finals, write_run

from nero_lab.cli import commands
from nero_lab.runner import RunConfig, RunDirs, run

__all__ = ["call"]  # a fixture

SMOKE = ("--scale", "smoke", "--epochs", "1", "--quiet", "--no-tensorboard")
LAB = Path(__file__).parents[1]


@pytest.fixture
def no_network(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*args: object, **options: object) -> str:
        Path(str(options["path"])).mkdir(parents=True, exist_ok=True)  # as pooch does
        raise OSError("no network")

    monkeypatch.setattr(pooch, "retrieve", refuse)


@pytest.mark.parametrize("value", ["../../x", "/tmp/x", "he/../../x", "kaiming"])
def test_init_that_does_not_exist_is_refused(
    value: str, call: Call, data_dir: Path, tmp_path: Path
) -> None:
    ended = call(
        *("run", "mnist-deep", *SMOKE, "--set", f"init={value}"),
        *("--runs-dir", "deep/runs", "--data-dir", data_dir),
    )
    ended.assert_refused(f"init={value!r}", codes=[2])
    assert "'he' or 'torch'" in ended.message
    assert files_below(tmp_path) == set()


def test_a_text_option_cannot_lead_out_of_the_runs_folder(tmp_path: Path) -> None:
    games = ("../../x", "/etc/x", "ALE/Pong-v5", "..", "a\\b", "nul\0", "ü")
    for game in games:
        name = RunConfig("pong", options={"game": game}).name
        assert (tmp_path / name).resolve().parent == tmp_path / "pong" / "cpu"
        assert name.isascii()
        assert name.isprintable()
    assert len({RunConfig("pong", options={"game": game}).name for game in games}) == len(games)
    plain = RunConfig("pong", options={"game": "PongNoFrameskip-v4"}).name
    assert plain == "pong/cpu/nero-lr0.01-seed0-game=PongNoFrameskip-v4"


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("../../evil:x", "package.module:function"),
        ("/tmp/evil:x", "package.module:function"),
        ("a..b:x", "package.module:function"),
        (":x", "package.module:function"),
        (".rel:x", "package.module:function"),
        ("os:", "package.module:function"),
        ("os:path:join", "package.module:function"),
        ("nowhere_to_be_found:x", "No module named 'nowhere_to_be_found'"),
        ("os:nothing", "has no attribute 'nothing'"),
        ("os:sep", "is not a function"),
        (
            "fails_on_import:build",
            "ZeroDivisionError: division by zero (fails_on_import.py, line 2)",
        ),
        ("unreadable:build", "SyntaxError"),
        ("leaving:build", "SystemExit"),
    ],
)
@pytest.mark.parametrize("lr", [(), ("--lr", "0.1")], ids=["default", "lr"])
def test_optimizer_that_cannot_be_found_leaves_no_folder(
    name: str, message: str, lr: tuple[str, ...], call: Call, tmp_path: Path
) -> None:
    (tmp_path / "fails_on_import.py").write_text("def build(model, lr): ...\n1 / 0\n")
    (tmp_path / "unreadable.py").write_text("def build(\n")
    (tmp_path / "leaving.py").write_text("raise SystemExit(0)\n")
    ended = call("run", "shakespeare", *SMOKE, *lr, "--optimizer", name)
    ended.assert_refused(message, codes=[2])
    assert name in ended.message
    assert not (tmp_path / "runs").exists()


@pytest.mark.parametrize(
    ("made", "code", "message"),
    [
        ("3", 2, "returned int, not an optimizer"),
        ("[]", 2, "returned no optimizer"),
        ("[torch.optim.SGD(model.parameters(), lr), None]", 2, "returned NoneType"),
        ("torch.optim.SGD([], lr)", 1, "ValueError: optimizer got an empty parameter list"),
    ],
)
def test_what_an_own_optimizer_makes_is_checked(
    made: str, code: int, message: str, call: Call, data_dir: Path, tmp_path: Path
) -> None:
    (tmp_path / "own.py").write_text(f"import torch\n\ndef build(model, lr):\n    return {made}\n")
    words = ("run", "shakespeare", *SMOKE, "--optimizer", "own:build", "--data-dir", data_dir)
    ended = call(*words)
    ended.assert_refused(message, codes=[code])
    # A mistake in the user's own code has its traceback in the records.
    assert (tmp_path / "runs").exists() == (code == 1)
    if code == 1:
        path = next((tmp_path / "runs").rglob("records.jsonl"))
        assert str(path.relative_to(tmp_path)) in ended.message
        assert "Traceback" in path.read_text()


def test_an_option_that_cannot_be_built_leaves_no_folder(
    call: Call, data_dir: Path, tmp_path: Path
) -> None:
    words = ("run", "shakespeare", *SMOKE, "--data-dir", data_dir)
    call(*words, "--set", "dropout=2.0").assert_refused("dropout=2.0", codes=[2])
    # Heads that do not divide the width are found at the first step: that is a run that failed.
    call(*words, "--set", "num_heads=5").assert_refused("records.jsonl", codes=[1])
    call(*words, "--set", "width=0").assert_refused("width=0", codes=[2])
    call(*words, "--set", "steps_per_epoch=0").assert_refused("steps_per_epoch", codes=[2])
    (folder,) = (tmp_path / "runs" / "shakespeare" / "smoke").iterdir()
    assert "num_heads=5" in folder.name


def test_an_option_whose_kind_no_recipe_tells_is_refused_by_the_network(
    call: Call, data_dir: Path, tmp_path: Path
) -> None:
    words = ("run", "mnist-deep", *SMOKE, "--data-dir", data_dir, "--set", "sigma=text")
    call(*words).assert_refused("cannot be built with sigma='text': TypeError", codes=[2])
    assert files_below(tmp_path) == set()


def test_fewer_examples_than_a_batch_are_refused(
    call: Call, data_dir: Path, tmp_path: Path
) -> None:
    words = ("run", "mnist-deep", *SMOKE, "--set", "num_images=249", "--data-dir", data_dir)
    call(*words).assert_refused("has no steps: there are fewer examples", codes=[2])
    assert files_below(tmp_path) == set()


def test_a_damaged_checkpoint_says_what_to_remove(
    call: Call, data_dir: Path, tmp_path: Path
) -> None:
    config = RunConfig("shakespeare", scale="smoke", epochs=2)

    class Stop:
        def on_step(self, step: int, averages: object) -> None:
            if step == 30:
                raise KeyboardInterrupt

        def on_epoch(self, epoch: int, scores: object) -> None:
            pass

    dirs = RunDirs(tmp_path / "runs", data_dir, tensorboard=False, quiet=True)
    with pytest.raises(KeyboardInterrupt):
        run(config, dirs, Stop())
    path = tmp_path / "runs" / config.name / "checkpoint.pt"
    records = path.with_name("records.jsonl").read_bytes()
    whole = path.read_bytes()
    words = ("run", "shakespeare", *SMOKE, "--epochs", "2", "--data-dir", data_dir)
    for damaged in (whole[: len(whole) // 2], b"", b"something else", whole[:-1]):
        path.write_bytes(damaged)
        ended = call(*words)
        ended.assert_refused(str(path.relative_to(tmp_path)), codes=[2])
        assert "remove it to start the run over" in ended.message
        assert path.with_name("records.jsonl").read_bytes() == records
    path.unlink()
    assert call(*words).code == 0


@pytest.mark.parametrize("damage", ["broken", "foreign", "half"])
def test_damaged_records_say_what_to_remove(
    damage: str, call: Call, data_dir: Path, tmp_path: Path
) -> None:
    config = RunConfig("shakespeare", scale="smoke", epochs=1)
    write_run(tmp_path / "runs", config, [2.0])
    path = tmp_path / "runs" / config.name / "records.jsonl"
    lines = path.read_text().splitlines()
    texts = {
        "broken": "\n".join([lines[0], lines[1][:10], *lines[2:], ""]),
        "foreign": '{"loss": 1.0}\n',
        "half": '{"kind": "run", "task": "shakespeare"}\n',
    }
    path.write_text(texts[damage])
    for command in ("run", "sweep"):
        rates = ("--lrs", "0.01", "--seeds", "1") if command == "sweep" else ()
        ended = call(command, "shakespeare", *SMOKE, *rates, "--data-dir", data_dir)
        ended.assert_refused(str(path.relative_to(tmp_path)), codes=[2])
        assert "remove" in ended.message


def test_a_missing_data_folder_is_not_made(call: Call, tmp_path: Path, no_network: None) -> None:
    for folder in ("data", "deep/er/data"):
        ended = call("run", "shakespeare", *SMOKE, "--data-dir", folder)
        ended.assert_refused("could not be downloaded (no network)", codes=[2])
        assert files_below(tmp_path) == set()


def test_a_data_folder_that_is_there_stays_as_it_is(
    call: Call, tmp_path: Path, no_network: None
) -> None:
    (tmp_path / "data" / "tinyshakespeare").mkdir(parents=True)
    (tmp_path / "data" / "mine.txt").touch()
    before = files_below(tmp_path)
    call("run", "shakespeare", *SMOKE, "--data-dir", "data").assert_refused("no network")
    assert files_below(tmp_path) == before


def test_interrupt_ends_with_130_and_one_line(
    call: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt(args: object) -> int:
        raise KeyboardInterrupt

    for command in ("run", "sweep", "list", "report"):
        monkeypatch.setitem(commands._COMMANDS, command, interrupt)
        ended = call(command, *(["shakespeare"] if command in ("run", "sweep") else []))
        ended.assert_refused("interrupted", codes=[130])
        assert ("repeat the command to resume" in ended.message) == (command in ("run", "sweep"))


@pytest.mark.slow
def test_a_run_that_is_interrupted_from_the_keyboard_resumes(
    data_dir: Path, tmp_path: Path
) -> None:
    words = ["run", "mnist-deep", "--scale", "smoke", "--epochs", "40", "--quiet"]
    words += ["--no-tensorboard", "--data-dir", str(data_dir), "--runs-dir", str(tmp_path)]
    paths = [str(LAB), str(LAB.parent / "src"), os.environ.get("PYTHONPATH", "")]
    process = subprocess.Popen(
        [sys.executable, "-m", "nero_lab", *words],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(paths)},
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=hear_ctrl_c,
    )
    deadline = time.monotonic() + 120
    while not list(tmp_path.rglob("checkpoint.pt")) and time.monotonic() < deadline:
        time.sleep(0.01)
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 130
    assert err == "nero-lab run: interrupted; repeat the command to resume\n"


def test_foreign_files_do_not_end_a_report(call: Call, tmp_path: Path) -> None:
    write_finals(tmp_path / "runs", "shakespeare", {"nero": (1.0,)})
    whole = next((tmp_path / "runs").rglob("*.jsonl"))
    lines = whole.read_text().splitlines(keepends=True)
    wrong = {
        "foreign": '{"loss": 1.0}\n',
        "broken": lines[0] + '{"kind": "ep\n',
        "another-task": lines[0].replace('"shakespeare"', '"chess"'),
        "rate-in-words": lines[0].replace('"lr": 0.01', '"lr": "high"'),
        "no-recipe": lines[0].replace('"recipe": {', '"recipe": 3, "x": {'),
        "deep": "[" * 100_000 + "\n",
    }
    for name, text in wrong.items():
        assert text != lines[0]
        (tmp_path / "runs" / name).mkdir()
        (tmp_path / "runs" / name / whole.name).write_text(text)
    (tmp_path / "runs" / "folder.jsonl").mkdir()
    (tmp_path / "runs" / "nowhere.jsonl").symlink_to(tmp_path / "nothing")
    (tmp_path / "runs" / "events.jsonl").write_text(
        "".join(lines)
    )  # of one run, not a line per run
    ended = call("report")
    assert ended.code == 0
    warnings = ended.err.splitlines()
    assert len(warnings) == len(wrong) + 3
    files = [f"{name}.jsonl" for name in ("folder", "nowhere", "events")]
    for name in (*[f"{name}/records.jsonl" for name in wrong], *files):
        (warning,) = [line for line in warnings if f"/{name}: " in line]
        assert warning.startswith("nero-lab report: skipped ")
    page = (tmp_path / "report" / "method.md").read_text(encoding="utf-8")
    assert "from the records of 1 runs" in page


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[pong", "comments.toml"),
        ("pong = 3", "[pong]"),
        ("[pong]\npictures = 3", "pictures"),
        ("[pong]\ncomment = 3", "comment"),
        ("\xff", "comments.toml"),
    ],
)
def test_comments_that_cannot_be_read_are_named(
    text: str, message: str, call: Call, tmp_path: Path
) -> None:
    write_finals(tmp_path / "runs", "pong", {"nero": (1.0,)})
    (tmp_path / "runs" / "comments.toml").write_text(text, encoding="latin-1")
    call("report").assert_refused(message, codes=[2])
    assert not (tmp_path / "report").exists()


@pytest.mark.parametrize("command", ["list", "run", "sweep", "report"])
def test_wrong_arguments_show_the_usage_of_their_command(command: str, call: Call) -> None:
    task = [] if command == "report" else ["shakespeare"]
    ended = call(command, *task, "--bogus", "3")
    ended.assert_refused("unrecognized arguments: --bogus 3", codes=[2])
    assert ended.message.startswith(f"nero-lab {command}: error:")
    assert ended.err.startswith(f"usage: nero-lab {command}")


@pytest.mark.parametrize("words", [["--help"], ["--version"], ["run", "--help"], ["list", "-h"]])
def test_help_and_version_need_no_other_package(words: list[str], tmp_path: Path) -> None:
    installed = Path(str(metadata.distribution("nero-lab").locate_file("")))
    (described,) = installed.glob("nero_lab-*.dist-info")  # has the version
    shutil.copytree(described, tmp_path / described.name)
    code = (
        f"import sys; sys.path[:0] = [{str(LAB)!r}, {str(tmp_path)!r}]; "
        "from nero_lab.cli import main; "
        f"raise SystemExit(main({words!r}))"
    )
    # -I and -S: neither the installed packages nor the working directory.
    ended = subprocess.run([sys.executable, "-I", "-S", "-c", code], capture_output=True, text=True)
    assert ended.returncode == 0, ended.stderr
    assert "nero-lab" in ended.stdout
