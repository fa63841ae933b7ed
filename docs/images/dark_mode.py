"""Make a drawing by matplotlib follow the reader's colour scheme: readable on light pages and on dark ones.

    python docs/images/dark_mode.py PICTURE.svg ...

Draw on a transparent background first: ``figure.savefig("picture.svg", transparent=True)``. This adds a
style that applies on dark pages only. There, every colour that would be hard to see keeps its hue and gets
lighter, and light grey lines get darker. A second time changes nothing.
"""

import colorsys
import re
import sys
from pathlib import Path

_MARK = "/* on dark pages */"
_PAGE = "#1e2129"  # of the site; GitHub's is a little darker
_INK = "#dfe3ec"  # of black letters, for which matplotlib writes no colour
_MIN_CONTRAST, _GRID_CONTRAST = 4.5, 1.6


def with_dark_mode(svg: str) -> str:
    """Return a drawing with colours for dark pages.

    Example:
        >>> print(with_dark_mode('<svg><path style="stroke: #0072b2"/></svg>'))
        <svg><style>/* on dark pages */
        @media (prefers-color-scheme: dark) {
        g[id^="text_"], g[id^="legend_"] { fill: #dfe3ec }
        [style*="stroke: #0072b2"] { stroke: #008fe0 !important }
        }</style><path style="stroke: #0072b2"/></svg>
    """
    if _MARK in svg:
        return svg
    rules = [f'g[id^="text_"], g[id^="legend_"] {{ fill: {_INK} }}']
    for kind, colour in sorted(set(re.findall(r"\b(fill|stroke): (#[0-9a-f]{6})", svg))):
        lighter = on_dark(colour)
        if lighter != colour:
            rules.append(f'[style*="{kind}: {colour}"] {{ {kind}: {lighter} !important }}')
    style = "\n".join(
        [f"<style>{_MARK}", "@media (prefers-color-scheme: dark) {", *rules, "}</style>"]
    )
    return re.sub(r"(<svg\b[^>]*>)", lambda opening: opening[1] + style, svg, count=1)


def on_dark(colour: str) -> str:
    """Return what a colour becomes on a dark page.

    Example:
        >>> on_dark("#000000"), on_dark("#e4e4e4"), on_dark("#ffb27a")
        ('#8a8a8a', '#424242', '#ffb27a')
    """
    red, green, blue = (int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5))
    hue, lightness, saturation = colorsys.rgb_to_hls(red, green, blue)
    if saturation == 0 and lightness > 0.8:  # lines of a grid
        return _lightened(hue, 0.0, 0.0, _GRID_CONTRAST)
    if contrast(colour, _PAGE) >= _MIN_CONTRAST:
        return colour
    return _lightened(hue, lightness, saturation, _MIN_CONTRAST)


def _lightened(hue: float, lightness: float, saturation: float, enough: float) -> str:
    while True:
        parts = colorsys.hls_to_rgb(hue, lightness, saturation)
        colour = "#" + "".join(f"{round(255 * part):02x}" for part in parts)
        if contrast(colour, _PAGE) >= enough:
            return colour
        lightness += 0.01


def contrast(one: str, other: str) -> float:
    """Return the contrast of two colours as WCAG defines it, from 1 to 21."""
    low, high = sorted((_luminance(one), _luminance(other)))
    return (high + 0.05) / (low + 0.05)


def _luminance(colour: str) -> float:
    parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [
        part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts
    ]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def main() -> None:
    """Change the files that are named."""
    for name in sys.argv[1:]:
        path = Path(name)
        path.write_text(with_dark_mode(path.read_text()))


if __name__ == "__main__":
    main()
