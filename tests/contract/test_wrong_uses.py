"""No wrong use of the public API is silent: each ends in one message that says what to do."""

import re
import traceback
import warnings
from pathlib import Path

import pytest
from wrong_uses import ADVICE, namespace
from wrong_uses_of_functions import DIAGNOSTICS, FUNCTIONAL, PLAN, THEORY
from wrong_uses_of_optimizers import LATER, OPTIONS, OVERRIDES, PARAMS

import nero

WRONG_USES = [*PARAMS, *OPTIONS, *OVERRIDES, *LATER, *FUNCTIONAL, *THEORY, *DIAGNOSTICS, *PLAN]
PACKAGE = Path(nero.__file__).parent


def test_the_table_is_long_and_names_nothing_twice():
    codes = [code for code, _, _ in WRONG_USES]
    assert len(set(codes)) == len(codes) >= 600


@pytest.mark.parametrize(
    ("code", "kind", "named"), WRONG_USES, ids=[code for code, _, _ in WRONG_USES]
)
def test_is_heard(code: str, kind: type[Exception], named: str):
    names = namespace()
    with warnings.catch_warnings(record=True) as heard:
        warnings.simplefilter("always")
        try:
            eval(code, names)
        except Exception as error:
            raised, message = type(error), str(error)
            where = traceback.extract_tb(error.__traceback__)[-1].filename
            assert Path(where).is_relative_to(PACKAGE), f"raised in {where}: {message}"
        else:
            assert heard, "silent"
            raised = heard[-1].category
            message = "\n".join(str(each.message) for each in heard)
    assert raised is kind, message
    assert re.search(named, message, re.DOTALL), f"{named!r} is not in: {message}"
    assert ADVICE.search(message), f"it does not say what to do: {message}"
