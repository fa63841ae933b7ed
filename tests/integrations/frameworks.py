"""Imports the frameworks that want something of whoever imports them."""

import importlib
import importlib.util
import os
import sys
import warnings
from pathlib import Path
from types import ModuleType

from torch import nn

STANDING_IN = ("torchvision", "torchvision.ops", "torchvision.ops.misc")


def import_frameworks() -> None:
    """Import timm and fastai, and choose the backend of Keras; a second call does nothing."""
    os.environ["KERAS_BACKEND"] = "torch"  # read when it is imported
    _import_timm()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it sets options of pandas that are about to go
        importlib.import_module("fastai.callback.schedule")


def _import_timm() -> None:
    """Import timm, which needs torchvision for data, and for one class that its layers look for."""
    timm = importlib.util.find_spec("timm")
    if timm is None or timm.origin is None or "timm.optim" in sys.modules:
        return
    if importlib.util.find_spec("torchvision") is None:
        for name in STANDING_IN:
            sys.modules[name] = ModuleType(name)
        vars(sys.modules["torchvision.ops.misc"])["FrozenBatchNorm2d"] = type("_", (nn.Module,), {})
        # The package of data would import its transforms; models read its constants.
        constants = Path(timm.origin).parent / "data" / "constants.py"
        spec = importlib.util.spec_from_file_location("timm.data", constants)
        assert spec is not None
        assert spec.loader is not None
        sys.modules["timm.data"] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(sys.modules["timm.data"])
    importlib.import_module("timm.optim")
    for name in STANDING_IN:
        # Others ask whether torchvision is there.
        if name in sys.modules and not hasattr(sys.modules[name], "__file__"):
            del sys.modules[name]
