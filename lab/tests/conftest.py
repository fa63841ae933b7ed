"""The data sets of the lab, and nothing else."""

import importlib.util
import os
from pathlib import Path

import pytest

_SHARED = Path(__file__).parents[3] / "shared" / "data" / "unpack.py"


@pytest.fixture(scope="session")
def data_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return ``$NERO_DATA``, or a folder into which the data sets beside the checkout are unpacked."""
    if "NERO_DATA" in os.environ:
        return Path(os.environ["NERO_DATA"])
    if not _SHARED.exists():
        pytest.skip("set NERO_DATA to a folder with the data sets")
    # Shared by the workers of a parallel test run; every file is written once and then left alone.
    target = tmp_path_factory.getbasetemp().parent / "nero-data"
    spec = importlib.util.spec_from_file_location("unpack", _SHARED)
    assert spec is not None
    assert spec.loader is not None
    unpack = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(unpack)
    from filelock import FileLock

    with FileLock(str(target) + ".lock"):
        if not (target / "complete").exists():
            for name, function in unpack.UNPACK.items():
                function(name, target)
            (target / "complete").touch()
    return target
