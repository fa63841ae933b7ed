"""Write results as tables or JSON, to stdout or a file."""

import json
from pathlib import Path
from typing import Any

from nero.cli.arguments import CommandError
from nero.numbers import json_values


def print_or_write(text: str, figures: dict[str, Any], path: str | None) -> None:
    """Print ``text``, or the figures as JSON if ``path`` is ``-``; also write JSON to any other path."""
    as_json = json.dumps(json_values(figures), indent=2)
    print(as_json if path == "-" else text)
    if path not in (None, "-"):
        try:
            Path(path).write_text(as_json + "\n")
        except OSError as error:
            raise CommandError(
                f"cannot write {path}: {error.strerror}; give another name"
            ) from error
