"""Errors that a user can put right: the command prints their message, and no traceback."""


class ConfigError(ValueError):
    """A run was asked for that cannot be."""


class DataError(RuntimeError):
    """A data set is missing or damaged."""
