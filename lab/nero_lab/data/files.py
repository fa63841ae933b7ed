"""The published files of each data set: where they are, where they come from, and their checksums.

Local copies are used where they are found with the right contents; what is missing is fetched by pooch.
"""

import contextlib
import gzip
import os
import shutil
import tarfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pooch
from filelock import FileLock

from nero_lab.engine.errors import DataError
from nero_lab.engine.folders import check_can_be_made

_MNIST = "https://ossci-datasets.s3.amazonaws.com/mnist/"
_CIFAR = "https://www.cs.toronto.edu/~kriz/cifar-10-binary.tar.gz"
_WIKITEXT = (
    "https://raw.githubusercontent.com/pytorch/examples/main/word_language_model/data/wikitext-2/"
)
_MULTI30K = "https://raw.githubusercontent.com/multi30k/dataset/master/data/task1/raw/"
_SHAKESPEARE = "https://raw.githubusercontent.com/karpathy/char-rnn/master/data/tinyshakespeare/"

_DOWNLOADS = "downloads"


@dataclass(frozen=True)
class _File:
    name: str
    sha256: str  # of the file as it lies in its folder, unpacked
    url: str


@dataclass(frozen=True)
class _Set:
    folder: str
    files: tuple[_File, ...]


def default_data_dir() -> Path:
    """Return ``$NERO_DATA``, or a folder in the user's cache."""
    return Path(os.environ.get("NERO_DATA") or pooch.os_cache("nero-lab"))


def folder(name: str, data_dir: Path) -> Path:
    """Return the folder that holds a data set, complete and checked.

    Args:
        name: a key of ``DATA_SETS``.
        data_dir: the folder of all data sets.

    Raises:
        DataError: if a file is missing and cannot be downloaded, or has the wrong checksum.
    """
    data_set = DATA_SETS[name]
    target = data_dir / data_set.folder
    if not all((target / file.name).exists() for file in data_set.files):
        check_can_be_made(target, option="--data-dir")
        # All ranks begin at once.
        with _made(target, data_dir / _DOWNLOADS) as lock, FileLock(lock):
            for file in data_set.files:
                if not (target / file.name).exists():
                    _fetch(name, file, target / file.name, data_dir)
    for file in data_set.files:
        path = target / file.name
        if (found := _sha256(path)) != file.sha256:
            raise DataError(
                f"{path} is not the published file of {name}: its SHA-256 is {found}, expected "
                f"{file.sha256}. Remove it to download it again from {file.url}"
            )
    return target


@contextlib.contextmanager
def _made(target: Path, downloads: Path) -> Iterator[Path]:
    """Make two folders and yield the lock of the first; remove both if the data cannot be downloaded."""
    lock = target / "lock"
    wanted = {lock, downloads, *downloads.parents, target, *target.parents}
    new = [path for path in wanted if not path.exists()]
    target.mkdir(parents=True, exist_ok=True)
    try:
        yield lock
    except DataError:
        for path in sorted(new, key=lambda path: len(path.parts), reverse=True):
            with contextlib.suppress(OSError):  # not empty, or taken away by another rank
                path.unlink() if path == lock else path.rmdir()
        raise


def _fetch(name: str, file: _File, path: Path, data_dir: Path) -> None:
    try:
        # The checksum that counts is that of the unpacked file.
        fetched = Path(pooch.retrieve(file.url, known_hash=None, path=data_dir / _DOWNLOADS))
    except Exception as error:
        raise DataError(
            f"{name} needs {path}, but {file.url} could not be downloaded ({error}). Put a copy there, "
            f"or point --data-dir or NERO_DATA to a folder with {path.parent.name}/{path.name}"
        ) from error
    partial = path.with_suffix(".partial")
    try:
        _unpack(file, fetched, path, partial)
    except (EOFError, OSError, KeyError, tarfile.TarError) as error:
        fetched.unlink()  # so that it is not taken for a good one again
        partial.unlink(missing_ok=True)
        raise DataError(
            f"{file.url} was downloaded, but could not be unpacked ({error}); try again"
        ) from error
    if (found := _sha256(partial)) != file.sha256:
        fetched.unlink()
        partial.unlink()
        raise DataError(
            f"{file.url} does not have the expected {path.name} of {name}: its SHA-256 is {found}, "
            f"expected {file.sha256}"
        )
    partial.replace(path)


def _unpack(file: _File, fetched: Path, path: Path, partial: Path) -> None:
    if file.url.endswith(".tar.gz"):
        with tarfile.open(fetched) as archive:
            member = archive.extractfile(f"{path.parent.name}/{path.name}")
            assert member is not None
            with member, partial.open("wb") as out:
                shutil.copyfileobj(member, out)
    elif file.url.endswith(".gz") and not file.name.endswith(".gz"):
        with gzip.open(fetched) as source, partial.open("wb") as out:
            shutil.copyfileobj(source, out)
    else:
        shutil.copyfile(fetched, partial)


def _sha256(path: Path) -> str:
    digest = pooch.file_hash(str(path), alg="sha256")
    return str(digest)


DATA_SETS = {
    "mnist": _Set(
        "mnist",
        (
            _File(
                "train-images-idx3-ubyte.gz",
                "440fcabf73cc546fa21475e81ea370265605f56be210a4024d2ca8f203523609",
                _MNIST + "train-images-idx3-ubyte.gz",
            ),
            _File(
                "train-labels-idx1-ubyte.gz",
                "3552534a0a558bbed6aed32b30c495cca23d567ec52cac8be1a0730e8010255c",
                _MNIST + "train-labels-idx1-ubyte.gz",
            ),
            _File(
                "t10k-images-idx3-ubyte.gz",
                "8d422c7b0a1c1c79245a5bcf07fe86e33eeafee792b84584aec276f5a2dbc4e6",
                _MNIST + "t10k-images-idx3-ubyte.gz",
            ),
            _File(
                "t10k-labels-idx1-ubyte.gz",
                "f7ae60f92e00ec6debd23a6088c31dbd2371eca3ffa0defaefb259924204aec6",
                _MNIST + "t10k-labels-idx1-ubyte.gz",
            ),
        ),
    ),
    "cifar10": _Set(
        "cifar-10-batches-bin",
        (
            _File(
                "data_batch_1.bin",
                "cee916563c9f80d84e3cc88e17fdc0941787f1244f00a67874d45b261883ada5",
                _CIFAR,
            ),
            _File(
                "data_batch_2.bin",
                "a591ca11fa1708a91ee40f54b3da4784ccd871ecf2137de63f51ada8b3fa57ed",
                _CIFAR,
            ),
            _File(
                "data_batch_3.bin",
                "bbe8596564c0f86427f876058170b84dac6670ddf06d79402899d93ceea26f67",
                _CIFAR,
            ),
            _File(
                "data_batch_4.bin",
                "014e562d6e23c72197cc727519169a60359f5eccd8945ad5a09d710285ff4e48",
                _CIFAR,
            ),
            _File(
                "data_batch_5.bin",
                "755304fc0b379caeae8c14f0dac912fbc7d6cd469eb67a1029a08a39453a9add",
                _CIFAR,
            ),
            _File(
                "test_batch.bin",
                "8e2eb146ae340b09e24670f29cabc6326dba54da8789dab6768acf480273f65b",
                _CIFAR,
            ),
        ),
    ),
    "wikitext2": _Set(
        "wikitext-2",
        (
            _File(
                "train.txt",
                "9e9fa1ad55b1c2c95b08e37dd8e653f638fac2c6de904b79e813611eefbc985f",
                _WIKITEXT + "train.txt",
            ),
            _File(
                "valid.txt",
                "f0737ed31fc1329026e95cb8b98e19c2a182c39c240ab909dc31abf2f8af58e8",
                _WIKITEXT + "valid.txt",
            ),
            _File(
                "test.txt",
                "d790b833ef8cf03a90db7bf1271b7520b83c45ce07ba3c1a9699df81e239eca0",
                _WIKITEXT + "test.txt",
            ),
        ),
    ),
    "multi30k": _Set(
        "multi30k",
        (
            _File(
                "train.de",
                "2c2b73fd2b548fbcde3a875e0a78d6ee94d498bfdee6bd3eae3945779e9ddf72",
                _MULTI30K + "train.de.gz",
            ),
            _File(
                "train.en",
                "460a15fbd157e34a7a9957ee388c1ca247fe47af3ef25fb50442af6c274e0fc6",
                _MULTI30K + "train.en.gz",
            ),
            _File(
                "val.de",
                "660e09eb7e1da2f856ea13ee5ad3cf6d36b3d5b0b733c857e94c5747a3dfc660",
                _MULTI30K + "val.de.gz",
            ),
            _File(
                "val.en",
                "1f2a23d992769b5b3d209b0a10dd0b77c08cceb1f20dfb97ed0aafa49d107227",
                _MULTI30K + "val.en.gz",
            ),
            _File(
                "test_2016_flickr.de",
                "4be6b5b3236b79c25475c6bb829800a7ce559e9ba7a1f6c2394fe4d40be46d16",
                _MULTI30K + "test_2016_flickr.de.gz",
            ),
            _File(
                "test_2016_flickr.en",
                "399a4382932c1aadd3ceb9bef1008d388a64c76d4ae4e9d4728c6f4301cac182",
                _MULTI30K + "test_2016_flickr.en.gz",
            ),
        ),
    ),
    "shakespeare": _Set(
        "tinyshakespeare",
        (
            _File(
                "input.txt",
                "86c4e6aa9db7c042ec79f339dcb96d42b0075e16b8fc2e86bf0ca57e2dc565ed",
                _SHAKESPEARE + "input.txt",
            ),
        ),
    ),
}
"""Every data set that can be fetched, by name."""
