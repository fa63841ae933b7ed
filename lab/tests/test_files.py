"""The files of data sets: fetched once, checked, and fetched again if they were damaged on the way."""

import gzip
import hashlib
import threading
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from nero_lab.data import files
from nero_lab.engine.errors import DataError

TEXT = b"to be, or not to be\n" * 1000


class Quiet(SimpleHTTPRequestHandler):
    def log_message(self, *args: object) -> None:
        pass


@pytest.fixture
def served(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A data set called "text" whose one file is fetched, packed, from a server; yields the packed one."""
    packed = tmp_path / "served" / "text.txt.gz"
    packed.parent.mkdir()
    packed.write_bytes(gzip.compress(TEXT))
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=str(packed.parent)))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    url = f"http://127.0.0.1:{server.server_address[1]}/{packed.name}"
    file = files._File("text.txt", hashlib.sha256(TEXT).hexdigest(), url)
    monkeypatch.setitem(files.DATA_SETS, "text", files._Set("text", (file,)))
    yield packed
    server.shutdown()
    server.server_close()


def test_a_file_is_fetched_and_unpacked(served: Path, tmp_path: Path) -> None:
    assert (files.folder("text", tmp_path) / "text.txt").read_bytes() == TEXT


def test_a_download_that_was_cut_short_is_fetched_again(served: Path, tmp_path: Path) -> None:
    whole = served.read_bytes()
    served.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(DataError, match="could not be unpacked"):
        files.folder("text", tmp_path)
    served.write_bytes(whole)
    assert (files.folder("text", tmp_path) / "text.txt").read_bytes() == TEXT


def test_another_file_than_the_published_one_is_refused(served: Path, tmp_path: Path) -> None:
    served.write_bytes(gzip.compress(b"something else"))
    with pytest.raises(DataError, match=r"does not have the expected text\.txt"):
        files.folder("text", tmp_path)
    assert not (tmp_path / "text" / "text.txt").exists()


def test_a_local_file_that_was_changed_is_named(served: Path, tmp_path: Path) -> None:
    path = files.folder("text", tmp_path) / "text.txt"
    path.write_bytes(TEXT + b"!")
    with pytest.raises(DataError, match="Remove it to download it again"):
        files.folder("text", tmp_path)
    path.unlink()
    assert files.folder("text", tmp_path) == path.parent


def test_what_cannot_be_fetched_says_where_to_put_it(served: Path, tmp_path: Path) -> None:
    served.unlink()
    with pytest.raises(DataError, match=r"Put a copy there.*text/text\.txt"):
        files.folder("text", tmp_path)
