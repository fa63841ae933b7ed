"""The page in HTML, made from the one in Markdown."""

from html import escape

import markdown

_STYLE = """
:root { color-scheme: light; }
body { font: 16px/1.55 system-ui, sans-serif; color: #222; max-width: 68rem; margin: 2rem auto 4rem;
       padding: 0 1.25rem; }
h1 { font-size: 1.9rem; line-height: 1.2; }
h2 { margin-top: 3.2rem; padding-top: .8rem; border-top: 2px solid #ddd; font-size: 1.45rem; }
h3 { margin-top: 2rem; font-size: 1.12rem; }
p, li { max-width: 50rem; }
p:has(> img) { max-width: none; }
img { max-width: 100%; height: auto; display: block; margin: .5rem 0; }
table { border-collapse: collapse; font-size: .86rem; line-height: 1.4; margin: 1rem 0; width: 100%; }
th { text-align: left; border-bottom: 2px solid #999; vertical-align: bottom; }
th, td { padding: .35rem .6rem .35rem 0; }
td { border-bottom: 1px solid #e2e2e2; vertical-align: top; font-variant-numeric: tabular-nums; }
code, pre { font: .82rem/1.5 ui-monospace, monospace; background: #f5f5f5; border-radius: 3px; }
code { padding: .1em .25em; overflow-wrap: anywhere; }
pre { padding: .7rem .9rem; overflow-x: auto; }
pre code { padding: 0; background: none; }
details { margin: .6rem 0; }
summary { cursor: pointer; color: #0b5394; }
td > span { white-space: nowrap; font-weight: 600; }
span.held { color: #00694d; }
span.did-not-hold { color: #a63c00; }
span.leans-towards-held, span.leans-towards-not-held { white-space: normal; font-weight: 400; }
span.leans-towards-held { color: #00694d; }
span.leans-towards-not-held { color: #a63c00; }
span.undecided, span.not-shown { color: #5b5b00; }
span.not-tested { color: #6a6a6a; font-weight: 400; }
nav { columns: 2; font-size: .92rem; max-width: 60rem; }
nav ul { margin: 0; padding-left: 1.1rem; }
@media (max-width: 50rem) { table { display: block; overflow-x: auto; } nav { columns: 1; } }
"""


def to_html(text: str, title: str) -> str:
    """Return a page that needs nothing but its pictures."""
    converter = markdown.Markdown(
        extensions=["fenced_code", "md_in_html", "sane_lists", "tables", "toc"],
        extension_configs={"toc": {"toc_depth": "2-2"}},
    )
    body = converter.convert(text)
    contents = f"<nav>{converter.toc}</nav>"
    head, _, rest = body.partition("<h2")
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{escape(title)}</title>\n<style>{_STYLE}</style>\n</head>\n<body>\n"
        f"{head}{contents}\n<h2{rest}\n</body>\n</html>\n"
    )
