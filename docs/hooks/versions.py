"""MkDocs hook: a menu of versions, where there are several.

``make site VERSION=0.2`` builds this site into a folder of its own on the branch gh-pages, beside older
versions, with mike. Mike tells the build which version it makes; only then is there a list to choose from.
"""

import os

from mkdocs.config.defaults import MkDocsConfig


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Show the menu in a build by mike."""
    if os.environ.get("MIKE_DOCS_VERSION"):
        config.extra["version"] = {"provider": "mike"}
    return config
