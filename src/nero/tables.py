"""Rows of text as an aligned plain-text table."""

from collections.abc import Collection, Sequence


def aligned(rows: Sequence[Sequence[str]], *, left: Collection[int] = (0,)) -> str:
    """Align columns: names to the left, numbers to the right.

    Args:
        rows: all of the same length; the first may be the header.
        left: the left-aligned columns.

    Example:
        >>> from nero.tables import aligned
        >>> print(aligned([["layer", "angle"], ["0.weight", "0.01"]]))
        layer     angle
        0.weight   0.01
    """
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = []
    for row in rows:
        cells = [
            cell.ljust(width) if index in left else cell.rjust(width)
            for index, (cell, width) in enumerate(zip(row, widths, strict=True))
        ]
        lines.append("  ".join(cells).rstrip())
    return "\n".join(lines)
