"""Draw docs/images/logo.svg, the logo and the favicon of the site: a neuron that turns on its sphere.

    python docs/images/logo.py

It has a background of its own and a white rim, so it can be seen on light, dark and indigo.
tests/test_figures.py fails if the file is not what this draws.
"""

import math
from pathlib import Path

RADIUS, LENGTH, ARC = 15, 11.5, 6.5  # in a square of 32
BEFORE, AFTER = math.radians(112), math.radians(38)


def at(length: float, angle: float) -> str:
    """Return a point."""
    return f"{16 + length * math.cos(angle):.2f} {16 - length * math.sin(angle):.2f}"


def picture() -> str:
    """Return the logo as SVG."""
    tip, back = at(LENGTH + 1, AFTER), LENGTH - 4.2
    return (
        '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 32 32" width="32" height="32" role="img" '
        'aria-labelledby="title">\n<title id="title">nero</title>\n'
        f'<circle cx="16" cy="16" r="{RADIUS}" fill="#3949ab" stroke="#ffffff" stroke-width="1.5"/>\n'
        '<g fill="none" stroke="#ffffff" stroke-linecap="round">\n'
        f'<ellipse cx="16" cy="16" rx="{RADIUS}" ry="5" stroke-opacity="0.35"/>\n'
        f'<path d="M16 16L{at(LENGTH, BEFORE)}" stroke-width="2" stroke-opacity="0.55"/>\n'
        f'<path d="M{at(ARC, BEFORE)}A{ARC} {ARC} 0 0 1 {at(ARC, AFTER)}" stroke-width="1.8"/>\n'
        f'<path d="M16 16L{at(LENGTH - 2, AFTER)}" stroke-width="2.6"/>\n</g>\n'
        f'<path d="M{tip}L{at(back, AFTER + 0.42)}L{at(back, AFTER - 0.42)}z" fill="#ffffff"/>\n'
        '<circle cx="16" cy="16" r="2" fill="#ffffff"/>\n</svg>\n'
    )


if __name__ == "__main__":
    Path(__file__).with_suffix(".svg").write_text(picture())
