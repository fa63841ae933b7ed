"""MkDocs hook: what the theme and Markdown leave out for screen readers and for a page that does not jump.

Pictures get their size, so that text does not move when they arrive. A table whose first heading is empty
has the names of its rows in the first column: those become headings of rows. The search dialog gets a name.
"""

import re
import struct
from posixpath import dirname, join, normpath
from typing import Any

from mkdocs.structure.files import Files
from mkdocs.structure.pages import Page

_PICTURE = re.compile(
    r'<img (?![^>]*\bwidth=)(?P<rest>[^>]*\bsrc="(?P<path>[^":]+\.(?:png|svg))"[^>]*)>'
)
_TABLE = re.compile(r"<thead>\s*<tr>\s*<th[^>]*></th>.*?</table>", re.DOTALL)
_FIRST_CELL = re.compile(r"(<tr>\s*)<td(?P<attributes>[^>]*)>(?P<text>.*?)</td>", re.DOTALL)


def on_page_content(content: str, *, page: Page, files: Files, **_: Any) -> str:
    """Size the pictures of a page, and name the rows of its tables."""

    def sized(picture: re.Match[str]) -> str:
        # Links are relative to the page's address by now.
        path = normpath(join(dirname(page.url + "x"), picture["path"]))
        found = [file for file in files if file.dest_uri == path]
        if not found:
            return picture[0]
        size = svg_size if path.endswith(".svg") else png_size
        width, height = size(found[0].content_bytes)
        return f'<img width="{width}" height="{height}" {picture["rest"]}>'

    return _TABLE.sub(lambda table: name_rows(table[0]), _PICTURE.sub(sized, content))


def on_post_page(output: str, **_: Any) -> str:
    """Name the dialog of the search, and size the logo."""
    output = output.replace('alt="logo">', 'alt="logo" width="24" height="24">')
    return output.replace(
        'data-md-component="search" role="dialog"',
        'data-md-component="search" role="dialog" aria-label="Search"',
    )


def name_rows(table: str) -> str:
    r"""Make the first cell of every row a heading.

    Example:
        >>> name_rows("<tr>\n<td>CPU</td>\n<td>works</td>\n</tr>")
        '<tr>\n<th scope="row">CPU</th>\n<td>works</td>\n</tr>'
    """
    return _FIRST_CELL.sub(r'\1<th scope="row"\g<attributes>>\g<text></th>', table)


def svg_size(svg: bytes) -> tuple[int, int]:
    """Return the width and height of an SVG's view box, in whole pixels.

    Example:
        >>> svg_size(b'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 480 300">')
        (480, 300)
    """
    found = re.search(rb'viewBox="\S+ \S+ (\S+) (\S+)"', svg)
    if found is None:
        raise ValueError("an SVG without a viewBox has no size: add one")
    return round(float(found[1])), round(float(found[2]))


def png_size(png: bytes) -> tuple[int, int]:
    """Return the width and height that the header of a PNG gives, in pixels."""
    width, height = struct.unpack(">II", png[16:24])
    return width, height
