"""Numbers as they stand in tables."""


def number(value: float | None, *, tolerance: float = 0.0) -> str:
    """Return two digits of a number, or a dash; what is within the tolerance is a zero.

    Example:
        >>> from nero.diagnostics.number import number
        >>> number(0.012345), number(None), number(1e-8, tolerance=1e-7)
        ('0.012', '-', '0')
    """
    if value is None or value != value:
        return "-"
    return f"{0 if value <= tolerance else value:.2g}"
