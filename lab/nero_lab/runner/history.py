"""The records that a run already has, and whether they are of the same configuration."""

import dataclasses
import json
from pathlib import Path
from typing import Any

from nero_lab.engine import checkpoint, records
from nero_lab.engine.errors import ConfigError
from nero_lab.engine.records import RunRecord
from nero_lab.runner.config import RunConfig


def existing_record(config: RunConfig, runs_dir: Path, *, world_size: int = 1) -> RunRecord | None:
    """Return the records of a run so far, if there are any.

    Raises:
        ConfigError: if there are records of another configuration under the same name, or something
            that is not the records of a run.
    """
    path = runs_dir / config.name / records.FILE_NAME
    try:
        record = records.read(path) if path.exists() else None
    except (OSError, ValueError) as error:
        raise ConfigError(
            f"{path} cannot be read ({error}); remove the folder {path.parent} to start the run over"
        ) from error
    if record is None:
        return None
    expected = as_recorded(config)
    if not record.is_done and path.with_name(checkpoint.FILE_NAME).exists():
        expected["world_size"] = world_size  # each rank has random numbers and sums of its own
    for name, value in expected.items():
        if (found := record.config.get(name)) != value:
            raise ConfigError(
                f"{path} has records with {name} = {found!r}, not {value!r}; "
                f"remove the folder {path.parent}, or choose another --runs-dir"
            )
    return record


def is_done(config: RunConfig, runs_dir: Path, *, world_size: int = 1) -> bool:
    """Return whether a run has finished or diverged."""
    record = existing_record(config, runs_dir, world_size=world_size)
    return record is not None and record.is_done


def as_recorded(config: RunConfig) -> dict[str, Any]:
    """Return the part of the records that must not change when a run resumes."""
    recipe = config.recipe
    fields = {
        **dataclasses.asdict(config),
        "recipe": {
            "epochs": recipe.epochs,
            "batch_size": recipe.batch_size,
            "schedule": repr(recipe.schedule),
            "clip_norm": recipe.clip_norm,
            "precision": recipe.precision,
            "options": dict(recipe.options),
        },
    }
    recorded: dict[str, Any] = json.loads(json.dumps(fields))
    return recorded
