"""Griffe extension: show our `Example:` sections as code.

Google style calls the section `Examples:`. Under any other title Griffe sees an admonition, whose
`>>>` Markdown then reads as quotations.
"""

import re
from typing import Any

import griffe


class Examples(griffe.Extension):
    """Rename the section before the docstring is parsed."""

    def on_object(self, *, obj: griffe.Object, **_: Any) -> None:
        """Rename it in the docstring of ``obj``."""
        if obj.docstring is not None:
            value = obj.docstring.value
            obj.docstring.value = re.sub(r"^Example:$", "Examples:", value, flags=re.MULTILINE)
