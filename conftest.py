"""Names that every docstring example may use without importing them."""

import pytest
import torch
from torch import nn

import nero
import nero.functional


@pytest.fixture(autouse=True)
def _doctest_names(doctest_namespace: dict[str, object]) -> None:
    torch.manual_seed(0)
    doctest_namespace.update(torch=torch, nn=nn, nero=nero)
    doctest_namespace.update({n: getattr(nero.functional, n) for n in nero.functional.__all__})
