"""MkDocs hook: turn LaTeX into MathML while the site is built.

`pymdownx.arithmatex` marks every `$...$` and `$$...$$`, in pages and in docstrings. Here each mark
becomes MathML, which browsers draw by themselves: no script, no font and no other host is needed.
"""

import html
import re
from typing import Any

from latex2mathml.converter import convert

_MARKED = re.compile(
    r'<(?P<tag>span|div) class="arithmatex">\s*\\[(\[](?P<latex>.*?)\\[)\]]\s*</(?P=tag)>',
    re.DOTALL,
)


def on_page_content(content: str, *, page: Any, **_: Any) -> str:
    """Replace the marked LaTeX of one page."""
    try:
        return _MARKED.sub(_replace, content)
    except ValueError as error:
        raise ValueError(f"{page.file.src_uri}: {error}") from error


def to_mathml(latex: str, *, display: str = "inline") -> str:
    r"""Convert LaTeX, and refuse what the converter would only copy.

    Example:
        >>> to_mathml(r"\eta")
        '<math ... display="inline"><mrow><mi>&#x003B7;</mi></mrow></math>'
        >>> to_mathml(r"\etaa")
        Traceback (most recent call last):
        ValueError: unknown LaTeX \etaa in: \etaa
    """
    mathml = convert(latex.strip(), display=display)
    unknown = re.search(r">(\\\w+|&)<", mathml)
    if unknown:
        raise ValueError(f"unknown LaTeX {unknown[1]} in: {latex.strip()}")
    # A norm's bars stay as tall as the text: the converter lets only the left one stretch.
    mathml = mathml.replace("<mo>&#x02016;</mo>", '<mo stretchy="false">&#x02016;</mo>')
    # A prime is an operator; as an identifier it is drawn too small.
    return mathml.replace("<mi>&#x02032;</mi>", "<mo>&#x02032;</mo>")


def _replace(match: re.Match[str]) -> str:
    is_block = match["tag"] == "div"
    mathml = to_mathml(html.unescape(match["latex"]), display="block" if is_block else "inline")
    return f'<div class="equation">{mathml}</div>' if is_block else mathml
