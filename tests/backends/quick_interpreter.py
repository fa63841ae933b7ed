"""Triton's interpreter, without what it repeats: it patches its language at every call of a function."""

from collections.abc import Iterator
from contextlib import contextmanager
from unittest import mock


@contextmanager
def quick_interpreter() -> Iterator[None]:
    """Patch the language of each module once per launch; the interpreter does so for each call in it."""
    from triton.runtime import interpreter

    patch, launch = interpreter._patch_lang, interpreter.GridExecutor.__call__
    patched: set[int] = set()

    def patch_once(fn):
        if id(fn.__globals__) in patched:
            return None
        patched.add(id(fn.__globals__))
        return patch(fn)

    def launch_anew(self, *args, **kwargs):
        patched.clear()
        return launch(self, *args, **kwargs)

    with (
        mock.patch.object(interpreter, "_patch_lang", patch_once),
        mock.patch.object(interpreter.GridExecutor, "__call__", launch_anew),
    ):
        yield
