"""The report of the lab, and its protocol, as pages of this site: both are read where they lie.

Pages link to the files of the repository, so that links also work where the repository is browsed.
"""

import re
from pathlib import Path
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files

_LINK = re.compile(r"(\]\((?:\.\./)*)\.\./lab/(report/|PROTOCOL\.md)")
_PLACES = {"report/": "evidence/", "PROTOCOL.md": "evidence/protocol.md"}
LAB = Path(__file__).parents[2] / "lab"
REPORT, PROTOCOL = LAB / "report", LAB / "PROTOCOL.md"


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages of the report and its figures to the files of the site."""
    pages, figures = sorted(REPORT.glob("*.md")), sorted((REPORT / "figures").glob("*.png"))
    sources = {source.relative_to(REPORT).as_posix(): source for source in (*pages, *figures)}
    for name, source in {**sources, "protocol.md": PROTOCOL}.items():
        files.append(File.generated(config, f"evidence/{name}", abs_src_path=str(source)))
    return files


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Turn links to the report's files into links to its pages.

    Example:
        >>> on_page_markdown("[method](../../lab/report/method.md)")
        '[method](../evidence/method.md)'
        >>> on_page_markdown("[protocol](../lab/PROTOCOL.md)")
        '[protocol](evidence/protocol.md)'
    """
    return _LINK.sub(lambda link: link[1] + _PLACES[link[2]], markdown)
