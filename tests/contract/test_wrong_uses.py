"""No wrong use of the public API is silent: each ends in one message that says what to do."""

from pathlib import Path

import pytest
from wrong_uses import check_is_heard, namespace
from wrong_uses_of_functions import DIAGNOSTICS, FUNCTIONAL
from wrong_uses_of_optimizers import LATER, OPTIONS, OVERRIDES, PARAMS

import nero

WRONG_USES = [*PARAMS, *OPTIONS, *OVERRIDES, *LATER, *FUNCTIONAL, *DIAGNOSTICS]


def test_the_table_is_long_and_names_nothing_twice():
    codes = [code for code, _, _ in WRONG_USES]
    assert len(set(codes)) == len(codes) >= 460


@pytest.mark.parametrize(
    ("code", "kind", "named"), WRONG_USES, ids=[code for code, _, _ in WRONG_USES]
)
def test_is_heard(code: str, kind: type[Exception], named: str):
    check_is_heard(code, kind, named, namespace(), [Path(nero.__file__).parent])
