"""Where the commands write: tables or JSON on stdout or in a file."""

import json
from pathlib import Path
from typing import Any

from nero.cli.arguments import CommandError
from nero.numbers import json_values


def print_or_write(text: str, figures: dict[str, Any], path: str | None) -> None:
    """Print ``text``, or the figures as JSON where ``path`` is ``-``; write JSON to any other path."""
    packed = json.dumps(json_values(figures), indent=2)
    print(packed if path == "-" else text)
    if path not in (None, "-"):
        try:
            Path(path).write_text(packed + "\n")
        except OSError as error:
            raise CommandError(
                f"cannot write {path}: {error.strerror}; give another name"
            ) from error
