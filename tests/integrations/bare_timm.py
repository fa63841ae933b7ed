"""timm without torchvision, which it needs for data, and for one class that its layers look for."""

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

from torch import nn

STANDING_IN = ("torchvision", "torchvision.ops", "torchvision.ops.misc")


def import_timm() -> None:
    """Import timm's models and optimisers, also where torchvision is not installed."""
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
