"""A table of wrong uses of the ``nero-lab`` command: each is refused in one line and leaves nothing.

Every line is a command as one might type it in a folder that holds a file ``file``, a folder ``data``
without data sets, a few modules of one's own and a folder ``done`` with the records of one run.
"""

import shlex
from pathlib import Path

import pooch
import pytest
from command_line import Call, call, files_below
from made_up_runs import write_run

from nero_lab.runner import RunConfig

__all__ = ["call"]  # a fixture

ARGUMENTS = [  # what argparse refuses
    ("", "the following arguments are required: command"),
    ("bake", "invalid choice: 'bake'"),
    ("RUN shakespeare", "invalid choice: 'RUN'"),
    ("--verbose", "required: command"),
    ("--version=3", "ignored explicit argument '3'"),
    ("run", "the following arguments are required: task"),
    ("sweep", "the following arguments are required: task"),
    ("list nope", "unknown task 'nope'; choose from"),
    ("list pong --scale cpu", "unrecognized arguments: --scale cpu"),
    ("run shakespeare pong", "unrecognized arguments: pong"),
    ("run shakespeare --optimizers nero", "unrecognized arguments: --optimizers nero"),
    ("run shakespeare --lrs 0.1", "unrecognized arguments: --lrs 0.1"),
    ("run shakespeare --address x", "unrecognized arguments: --address x"),
    ("run shakespeare --lr", "argument --lr: expected one argument"),
    ("run shakespeare --lr fast", "argument --lr: invalid float value: 'fast'"),
    ("run shakespeare --lr 0,1", "argument --lr: invalid float value: '0,1'"),
    ("run shakespeare --lr ''", "argument --lr: invalid float value: ''"),
    ("run shakespeare --seed one", "argument --seed: invalid int value: 'one'"),
    ("run shakespeare --seed 1.5", "argument --seed: invalid int value: '1.5'"),
    ("run shakespeare --seed 0,1", "argument --seed: invalid int value: '0,1'"),
    ("run shakespeare --epochs 1.5", "argument --epochs: invalid int value: '1.5'"),
    ("run shakespeare --epochs many", "argument --epochs: invalid int value: 'many'"),
    ("run shakespeare --checkpoint-steps 1e3", "--checkpoint-steps: invalid int value: '1e3'"),
    ("run shakespeare --checkpoint-steps", "--checkpoint-steps: expected one argument"),
    ("run shakespeare --set width", "'width' is not of the form NAME=VALUE"),
    ("run shakespeare --set", "argument --set: expected one argument"),
    ("run shakespeare --set width 3", "'width' is not of the form NAME=VALUE"),
    ("run shakespeare --quiet=yes", "ignored explicit argument 'yes'"),
    ("run shakespeare --se 3", "unrecognized arguments: --se 3"),
    ("sweep shakespeare --lrs ''", "'' is not a list of numbers"),
    ("sweep shakespeare --lrs 0.1,", "'0.1,' is not a list of numbers"),
    ("sweep shakespeare --lrs '0.1 0.2'", "'0.1 0.2' is not a list of numbers"),
    ("sweep shakespeare --lrs fast", "'fast' is not a list of numbers"),
    ("sweep shakespeare --lr 0.1", "unrecognized arguments: --lr 0.1"),
    ("sweep shakespeare --seeds all", "argument --seeds: invalid int value: 'all'"),
    ("sweep shakespeare --seeds 0,1,2", "argument --seeds: invalid int value: '0,1,2'"),
    ("sweep shakespeare --cpus-per-run 0.5", "--cpus-per-run: invalid int value: '0.5'"),
    ("sweep shakespeare --gpus-per-run half", "--gpus-per-run: invalid float value: 'half'"),
    ("sweep shakespeare --optimizer adam", "unrecognized arguments: --optimizer adam"),
    ("sweep shakespeare --seed 1", "unrecognized arguments: --seed 1"),
    ("collect --results x", "the following arguments are required: RUNS_DIR"),
    ("collect runs", "the following arguments are required: --results"),
    ("collect runs --results ''", "the name of the folder is empty"),
    ("report runs", "unrecognized arguments: runs"),
    ("report --out", "argument --out: expected one argument"),
    ("report --format pdf", "unrecognized arguments: --format pdf"),
]

NAMES = [  # of what does not exist
    ("run chess", "unknown task 'chess'; choose from: cifar-vgg11, mnist-reparam"),
    ("run ''", "unknown task ''"),
    ("run Shakespeare", "unknown task 'Shakespeare'"),
    ("run shakespeare/../..", "unknown task 'shakespeare/../..'"),
    (
        "run shakespeare --scale huge",
        "unknown scale 'huge'; choose from: paper, cpu, mini, smoke",
    ),
    ("run shakespeare --scale ''", "unknown scale ''"),
    ("run shakespeare --scale ../cpu", "unknown scale '../cpu'"),
    ("run shakespeare --optimizer adan", "unknown optimizer 'adan'; choose from: nero,"),
    ("run shakespeare --optimizer ''", "unknown optimizer ''"),
    ("run shakespeare --optimizer nero,adam", "unknown optimizer 'nero,adam'"),
    ("run shakespeare --optimizer ../../nero", "unknown optimizer '../../nero'"),
    ("run shakespeare --optimizer ../../evil:x", "is not of the form package.module:function"),
    ("run shakespeare --optimizer ../../evil:x --lr 0.1", "package.module:function"),
    ("run shakespeare --optimizer own.py:build", "cannot be imported: ModuleNotFoundError"),
    ("run shakespeare --optimizer own:bild", "has no attribute 'bild'"),
    ("run shakespeare --optimizer own:", "is not of the form package.module:function"),
    ("run shakespeare --optimizer :build", "is not of the form package.module:function"),
    ("run shakespeare --optimizer .own:build", "is not of the form package.module:function"),
    ("run shakespeare --optimizer own:number", "is not a function of a model"),
    ("run shakespeare --optimizer raising:build", "ZeroDivisionError: division by zero"),
    ("run shakespeare --optimizer misspelt:build", "SyntaxError"),
    ("run shakespeare --variant he", "unknown variant 'he'; choose from: long"),
    ("run mnist-reparam --variant sigma-10", "choose from: sigma-1, sigma-100"),
    ("run mnist-reparam --variant ''", "unknown variant ''"),
    ("run mnist-reparam --variant ../x", "unknown variant '../x'"),
    ("run shakespeare --set depth=3", "unknown option 'depth'; choose from: num_characters"),
    ("run shakespeare --set =3", "unknown option ''"),
    ("run shakespeare --set Width=3", "unknown option 'Width'"),
    ("run shakespeare --set ../../x=3", "unknown option '../../x'"),
    ("sweep chess", "unknown task 'chess'"),
    ("sweep shakespeare --scale huge", "unknown scale 'huge'"),
    ("sweep shakespeare --optimizers nera", "unknown optimizer 'nera'"),
    ("sweep shakespeare --optimizers nero,,adam", "unknown optimizer ''"),
    ("sweep shakespeare --optimizers 'nero, adam'", "unknown optimizer ' adam'"),
    ("sweep shakespeare --optimizers nero,../../evil:x", "package.module:function"),
    ("sweep shakespeare --variants sigma-1", "unknown variant 'sigma-1'"),
    ("sweep shakespeare --set depth=3", "unknown option 'depth'"),
    ("run own:TASK", "own:TASK cannot be imported: AttributeError"),
    ("run own:number", "own:number is of type int, not a nero_lab.engine.task.Task"),
    ("run own.py:number", "own.py:number cannot be imported: ModuleNotFoundError"),
    ("run ../own:number", "'../own:number' is not of the form package.module:TASK"),
    ("run :TASK", "':TASK' is not of the form package.module:TASK"),
    ("run raising:TASK", "ZeroDivisionError: division by zero (raising.py, line 1)"),
    ("run bare:TASK", "bare:TASK has no recipes"),
    ("run nero_lab.tasks.pong:PONG --scale huge", "unknown scale 'huge'"),
    ("sweep own:number", "own:number is of type int, not a nero_lab.engine.task.Task"),
    ("report --results done --tasks chess", "unknown task 'chess'"),
    ("report --results done --tasks own:number", "own:number is of type int"),
    ("report --results done --tasks ''", "unknown task ''"),
    ("report --results done --tasks pong", "there are no records of pong below done"),
    ("report --results done --scale huge", "no run below done has begun at huge scale"),
]

VALUES = [
    ("run shakespeare --lr -0.1", "a learning rate must be finite and not negative, not -0.1"),
    ("run shakespeare --lr nan", "a learning rate must be finite and not negative, not nan"),
    ("run shakespeare --lr inf", "a learning rate must be finite and not negative, not inf"),
    ("run shakespeare --seed -1", "a seed must be between 0 and 4294967295, not -1"),
    ("run shakespeare --seed 4294967296", "a seed must be between 0 and 4294967295"),
    ("run shakespeare --epochs 0", "a run needs at least one epoch, not 0"),
    ("run shakespeare --epochs -3", "a run needs at least one epoch, not -3"),
    ("run shakespeare --checkpoint-steps 0", "at least 1 step between checkpoints, not 0"),
    ("run shakespeare --checkpoint-steps -5", "at least 1 step between checkpoints, not -5"),
    ("run mnist-deep --set width=-3", "width must be finite and not negative, not -3"),
    ("run mnist-deep --set width=3.5", "width of mnist-deep must be a whole number, not 3.5"),
    ("run mnist-deep --set width=True", "width of mnist-deep must be a whole number, not True"),
    ("run mnist-deep --set width=None", "width of mnist-deep must be a whole number, not None"),
    ("run mnist-deep --set width=", "width of mnist-deep must be a whole number, not ''"),
    ("run mnist-deep --set width=wide", "width of mnist-deep must be a whole number, not 'wide'"),
    ("run mnist-deep --set width=[1,2]", "width of mnist-deep must be a whole number, not [1, 2]"),
    ("run mnist-deep --set width=64,128", "width of mnist-deep must be a whole number, not (64,"),
    ("run mnist-deep --set width=1e999", "width of mnist-deep must be a whole number, not inf"),
    ("run mnist-reparam --set sigma=text", "sigma of mnist-reparam must be None or a number"),
    ("run mnist-reparam --set sigma=-1", "sigma must be finite and not negative, not -1"),
    ("run mnist-reparam --set sigma=1e999", "sigma must be finite and not negative, not inf"),
    ("run mnist-reparam --set num_images=few", "must be None or a whole number, not 'few'"),
    ("run mnist-deep --set init=3", "init of mnist-deep must be a string, not 3"),
    ("run mnist-deep --set init=None", "init of mnist-deep must be a string, not None"),
    ("run imagenet --set made_up=1", "made_up of imagenet must be True or False, not 1"),
    ("run imagenet --set made_up=yes", "made_up of imagenet must be True or False, not 'yes'"),
    ("run shakespeare --set dropout=half", "dropout of shakespeare must be a number, not 'half'"),
    ("run pong --set game=3", "game of pong must be a string, not 3"),
    ("run shakespeare --set batch_size=0", "batch_size must be a positive whole number, not 0"),
    ("run shakespeare --set batch_size=2.5", "batch_size must be a positive whole number, not 2.5"),
    ("run shakespeare --set batch_size=True", "batch_size must be a positive whole number"),
    ("run shakespeare --set clip_norm=0", "clip_norm must be a positive number or None, not 0"),
    ("run shakespeare --set clip_norm=none", "clip_norm must be a positive number or None"),
    ("run shakespeare --set clip_norm=1e999", "clip_norm must be a positive number or None"),
    ("run shakespeare --set precision=float16", "precision must be float32 or bfloat16"),
    ("run shakespeare --set precision=16", "precision must be float32 or bfloat16, not 16"),
    ("run shakespeare --set schedule=cosine", "'cosine' is not a schedule such as Cosine("),
    ("run shakespeare --set schedule=", "'' is not a schedule such as Cosine("),
    ("run shakespeare --set schedule=3", "'3' is not a schedule such as Cosine("),
    ("run shakespeare --set 'schedule=Cosine(warm=1)'", "unexpected keyword argument 'warm'"),
    ("run shakespeare --set 'schedule=Cosine(warmup=1)'", "is not a schedule"),
    ("run shakespeare --set 'schedule=Decay(-1)'", "its factor must be finite and not negative"),
    ("run shakespeare --set 'schedule=Decay(text)'", "is not a schedule"),
    ("run shakespeare --set 'schedule=__import__(\"os\").x()'", "is not a schedule"),
    ("run shakespeare --set epochs=3", "unknown option 'epochs'"),
    ("sweep shakespeare --seeds 0", "a sweep needs at least one seed, not 0"),
    ("sweep shakespeare --seeds -1", "a sweep needs at least one seed, not -1"),
    ("sweep shakespeare --epochs 0", "a run needs at least one epoch, not 0"),
    ("sweep shakespeare --lrs=-0.1,0.1", "must be finite and not negative, not -0.1"),
    ("sweep shakespeare --lrs nan", "must be finite and not negative, not nan"),
    ("sweep shakespeare --widen -1", "--widen must be at least 0, not -1"),
    ("sweep shakespeare --cpus-per-run 0", "--cpus-per-run must be at least 1, not 0"),
    ("sweep shakespeare --cpus-per-run -2", "--cpus-per-run must be at least 1, not -2"),
    ("sweep shakespeare --gpus-per-run -1", "--gpus-per-run must be finite and nonnegative"),
    ("sweep shakespeare --gpus-per-run nan", "--gpus-per-run must be finite and nonnegative"),
    ("sweep shakespeare --checkpoint-steps 0", "at least 1 step between checkpoints"),
    ("sweep mnist-deep --set width=-3", "width must be finite and not negative, not -3"),
]

PLACES = [
    ("run shakespeare --runs-dir file", "--runs-dir file cannot be a folder: file is a file"),
    ("run shakespeare --runs-dir file/runs", "--runs-dir file/runs cannot be a folder"),
    ("run shakespeare --runs-dir file/a/b", "file is a file"),
    ("run shakespeare --runs-dir /dev/null/x", "/dev/null is a file"),
    ("sweep shakespeare --runs-dir file/runs", "--runs-dir file/runs cannot be a folder"),
    ("sweep shakespeare --runs-dir file", "--runs-dir file cannot be a folder"),
    ("run shakespeare --data-dir file", "--data-dir file/tinyshakespeare cannot be a folder"),
    ("run shakespeare --data-dir file/data", "file is a file"),
    ("run shakespeare --data-dir data", "could not be downloaded (no network). Put a copy there"),
    (
        "run shakespeare --data-dir nowhere",
        "could not be downloaded (no network). Put a copy there",
    ),
    ("run mnist-deep --data-dir data", "mnist needs data/mnist/train-images-idx3-ubyte.gz"),
    ("run cifar-vgg11 --data-dir data", "cifar10 needs data/cifar-10-batches-bin/data_batch_1.bin"),
    ("run multi30k --data-dir data", "multi30k needs data/multi30k/train.de"),
    ("run wikitext2 --data-dir data", "wikitext2 needs data/wikitext-2/train.txt"),
    ("run cgan --data-dir data", "cifar10 needs data/cifar-10-batches-bin"),
    ("run imagenet --data-dir data", "there is no folder data/imagenet/train"),
    ("sweep shakespeare --data-dir data --lrs 0.1", "could not be downloaded (no network)"),
    ("report --results nowhere", "there are no records below nowhere"),
    ("report --results file", "there are no records below file"),
    ("report --results data", "there are no records below data"),
    ("report --results ''", "argument --results: the name of the folder is empty"),
    ("report --results done --out ''", "argument --out: the name of the folder is empty"),
    ("run shakespeare --runs-dir ''", "argument --runs-dir: the name of the folder is empty"),
    ("run shakespeare --data-dir ''", "argument --data-dir: the name of the folder is empty"),
    ("report --results done --out file", "--out file cannot be a folder: file is a file"),
    ("report --results done --out file/page", "--out file/page cannot be a folder"),
    ("report --results done --out /dev/null", "/dev/null is a file"),
]

WRONG_USES = [*ARGUMENTS, *NAMES, *VALUES, *PLACES]


def test_the_table_is_long_enough() -> None:
    assert len({words for words, _ in WRONG_USES}) == len(WRONG_USES) >= 100


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the working directory, without a network and without a cache of data sets."""

    def refuse(*args: object, **options: object) -> str:
        raise OSError("no network")

    monkeypatch.setattr(pooch, "retrieve", refuse)
    monkeypatch.setenv("NERO_DATA", str(tmp_path / "data"))
    (tmp_path / "file").touch()
    (tmp_path / "data").mkdir()
    (tmp_path / "own.py").write_text("number = 3\n\ndef build(model, lr): ...\n")
    (tmp_path / "bare.py").write_text(
        "from nero_lab.engine.task import Metric, Task\n"
        "TASK = Task('bare', 'nothing', Metric('valid_loss', 'loss'), {}, print)\n"
    )
    (tmp_path / "raising.py").write_text("1 / 0\n")
    (tmp_path / "misspelt.py").write_text("def build(:\n")
    write_run(tmp_path / "done", RunConfig("shakespeare"), [2.0])
    monkeypatch.setattr("sys.dont_write_bytecode", True)
    return tmp_path


@pytest.mark.parametrize(("words", "message"), WRONG_USES, ids=[words for words, _ in WRONG_USES])
def test_wrong_use_is_refused_in_one_line(
    words: str, message: str, call: Call, folder: Path
) -> None:
    before = files_below(folder)
    call(*shlex.split(words)).assert_refused(message, codes=[2])
    assert files_below(folder) == before
