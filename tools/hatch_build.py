"""Build hook: the version, the project's addresses in the metadata, and links that work on an index page.

The version of all distributions is that of `src/nero/__init__.py`: `[tool.hatch.version]` calls `version`.
A source archive brings its version along, in the file that index servers read.

Two variables of the environment hold the addresses, for the metadata of all distributions and for
mkdocs.yml:

    NERO_REPO_URL   where the source is, such as a repository on a forge
    NERO_SITE_URL   where the documentation is

CI sets them (.github/workflows). Where they are not set, nothing is made up: the metadata has no such
address, and the README keeps its relative links. A wheel built from a source archive has the addresses of
the archive.

Those in lab/ and tools/ are copies of this file, since a source archive needs its own build hook; a test
compares them.
"""

import os
import posixpath
import re
from pathlib import Path
from typing import Any

from hatchling.metadata.plugin.interface import MetadataHookInterface

PAPER = "https://arxiv.org/abs/2102.07227"
_VERSION = re.compile(r'^(?:__version__ = "|Version: )([^"\n]+)', re.MULTILINE)
_PICTURE = r"!\[[^\]]*\]\([^)\s]+\)"  # in the text of a link: a badge
_LINK = re.compile(rf"(?P<is_picture>!?)\[(?P<text>({_PICTURE}|[^\]])*)\]\((?P<path>[^)\s]+)\)")
_FORGE = "../../"  # from the root of the repository to the forge's own pages about it


class CustomMetadataHook(MetadataHookInterface):
    """Fill in what `dynamic` in pyproject.toml leaves open."""

    def update(self, metadata: dict[str, Any]) -> None:
        """Set the addresses and the text of the README."""
        repository = os.environ.get("NERO_REPO_URL", "").rstrip("/")
        site = os.environ.get("NERO_SITE_URL", "").rstrip("/")
        text = (Path(self.root) / "README.md").read_text(encoding="utf-8")
        if repository:
            text = with_absolute_links(text, repository, folder=self.config["folder"])
        metadata["readme"] = {"content-type": "text/markdown", "text": text}
        metadata["urls"] = addresses(repository, site)


def version() -> str:
    """Return the version of this source tree or archive."""
    here = Path(__file__).resolve().parent
    places = (here / "PKG-INFO", *(root / "src/nero/__init__.py" for root in (here, here.parent)))
    found = next(path for path in places if path.exists())
    stated = _VERSION.search(found.read_text(encoding="utf-8"))
    if stated is None:
        raise ValueError(f"{found} states no version")
    return stated[1]


def addresses(repository: str, site: str) -> dict[str, str]:
    """Return the labelled addresses of the metadata, without those that are not known."""
    known = {"Documentation": site} if site else {}
    if repository:
        known["Source"] = repository
        known["Issues"] = f"{repository}/issues"
        known["Changelog"] = f"{repository}/blob/HEAD/CHANGELOG.md"
    return known | {"Paper": PAPER}


def with_absolute_links(text: str, repository: str, *, folder: str) -> str:
    """Return a README whose links and pictures do not depend on where it is shown.

    Args:
        text: in Markdown.
        repository: its address, without a slash at the end.
        folder: the README's, inside the repository; links are relative to it.

    Example:
        >>> with_absolute_links("[a](../a.md#b), ![c](c.png), [d](#d)", "https://e.org", folder="lab")
        '[a](https://e.org/blob/HEAD/a.md#b), ![c](https://e.org/raw/HEAD/lab/c.png), [d](#d)'
        >>> with_absolute_links("[![a](../../actions/a.svg)](b.md)", "https://e.org", folder=".")
        '[![a](https://e.org/actions/a.svg)](https://e.org/blob/HEAD/b.md)'
    """

    def absolute(link: re.Match[str]) -> str:
        start = f"{link['is_picture']}[{_LINK.sub(absolute, link['text'])}]"
        if re.match(r"\w+:|#", link["path"]):
            return f"{start}({link['path']})"
        if link["path"].startswith(_FORGE):
            return f"{start}({repository}/{link['path'].removeprefix(_FORGE)})"
        kind = "raw" if link["is_picture"] else "blob"
        path = posixpath.normpath(posixpath.join(folder, link["path"]))
        return f"{start}({repository}/{kind}/HEAD/{path})"

    return _LINK.sub(absolute, text)
