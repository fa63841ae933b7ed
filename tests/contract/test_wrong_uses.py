"""No wrong use of the public API is silent, and none ends in an error that names nothing of it."""

import re
import warnings

import pytest
from wrong_uses import namespace
from wrong_uses_of_functions import DIAGNOSTICS, FUNCTIONAL, PLAN, THEORY
from wrong_uses_of_optimizers import LATER, OPTIONS, OVERRIDES, PARAMS

from nero.tools.arguments import CommandError

WRONG_USES = [*PARAMS, *OPTIONS, *OVERRIDES, *LATER, *FUNCTIONAL, *THEORY, *DIAGNOSTICS, *PLAN]
FAMILY = (ValueError, TypeError, RuntimeError, CommandError)
"""What we raise. An AttributeError, KeyError, IndexError or OverflowError comes from our inside."""


def test_the_table_is_long_and_names_nothing_twice():
    codes = [code for code, _ in WRONG_USES]
    assert len(set(codes)) == len(codes) >= 200


@pytest.mark.parametrize(("code", "named"), WRONG_USES, ids=[code for code, _ in WRONG_USES])
def test_is_heard(code: str, named: str):
    names = namespace()
    with warnings.catch_warnings(record=True) as heard:
        warnings.simplefilter("always")
        try:
            eval(code, names)
            message = "\n".join(str(each.message) for each in heard)
        except FAMILY as error:
            message = str(error)
    assert message, "silent"
    assert re.search(named, message, re.DOTALL), f"{named!r} is not in: {message}"
