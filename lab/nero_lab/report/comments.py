"""Hand-written comments on the results: ``comments.toml`` in the results folder.

    [verdict]
    intro = "A paragraph below the verdict."
    deep = "A remark on the claim with this key."

    [mnist-deep]
    comment = "A paragraph in the task's section."
    recipe_only = "Why the task was not run."

    [mnist-deep.pictures]
    rivals = "A paragraph below this picture."

Every entry is optional. An unknown name is an error, so that no remark is lost to a typo.
"""

import sys
from collections.abc import Collection
from pathlib import Path
from typing import Any

from nero_lab.report.lab import ConfigError

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

FILE_NAME = "comments.toml"


def read_comments(
    folder: Path, *, tasks: Collection[str], claims: Collection[str]
) -> dict[str, dict[str, Any]]:
    """Read the comments in a results folder, if there are any, by section.

    Raises:
        ConfigError: if a task, a claim or an entry does not exist.
    """
    path = folder / FILE_NAME
    if not path.exists():
        return {}
    try:
        sections = tomllib.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise ConfigError(f"{path} cannot be read: {error}") from error
    for name, section in sections.items():
        known = ["comment", "recipe_only", "pictures"]
        if name == "verdict":
            known = ["intro", "modern", *claims]
        elif name not in tasks:
            raise ConfigError(f"{path}: unknown task {name!r}; choose from: {', '.join(tasks)}")
        for entry, remark in section.items() if isinstance(section, dict) else [(section, None)]:
            if entry not in known:
                raise ConfigError(
                    f"{path}: [{name}] cannot have {entry!r}; choose from: {', '.join(known)}"
                )
            if not isinstance(remark, dict if entry == "pictures" else str):
                raise ConfigError(f"{path}: {entry!r} of [{name}] cannot be {remark!r}")
    return sections
