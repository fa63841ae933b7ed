"""Where registry and observation differ and the registry is right, or neither can be: reviewed, with reasons."""

EXCEPTIONS: dict[tuple[str, str], str] = {}
"""From the owner's class and the parameter's name (``*`` matches) to the reason."""
