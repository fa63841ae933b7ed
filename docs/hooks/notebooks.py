"""MkDocs hook: run the notebooks, and show each as a page of this site.

A notebook is a script below ``docs/notebooks``, with cells between lines of ``# %%`` (the percent format
of jupytext): a change to it can be read, and no output is stored that could be out of date. Building the
site runs every cell, and fails if one fails. A page has the text, the code, what it printed and what it
drew; beside it is the same as ``.ipynb`` to download. With ``NERO_NOTEBOOKS=code`` in the environment no
cell runs, and pages have text and code only.

A cell that draws describes its picture for those who cannot see it: ``# %% alt="Loss over steps: ..."``.
"""

import base64
import functools
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jupytext
import nbformat
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from nbclient import NotebookClient
from nbformat import NotebookNode

_LINK = re.compile(r"notebooks/(\w+)\.py\)")
NOTEBOOKS = Path(__file__).parents[1] / "notebooks"


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages, their pictures and the notebooks to download to the files of the site."""
    for script in sorted(NOTEBOOKS.glob("*.py")):
        name = script.stem.replace("_", "-")
        notebook = execute(script.read_text())
        page, pictures = to_markdown(notebook, name)
        files_of_notebook = {
            f"{name}.md": page,
            f"{name}.ipynb": nbformat.writes(notebook),
        } | pictures
        for path, content in files_of_notebook.items():
            files.append(File.generated(config, f"notebooks/{path}", content=content))
    return files


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Turn links to the scripts into links to their pages.

    Example:
        >>> on_page_markdown("[first steps](notebooks/first_steps.py)")
        '[first steps](notebooks/first-steps.md)'
    """
    return _LINK.sub(lambda link: f"notebooks/{link[1].replace('_', '-')}.md)", markdown)


@functools.cache  # `mkdocs serve` builds again after every change; the notebooks seldom changed
def execute(script: str) -> NotebookNode:
    """Run a script in the percent format, and return it as a notebook with outputs."""
    notebook = jupytext.reads(script, fmt="py:percent")
    notebook.metadata.kernelspec = {
        "name": "python3",
        "display_name": "Python 3",
        "language": "python",
    }
    if os.environ.get("NERO_NOTEBOOKS") == "code":
        return notebook
    # The kernel would warn that it speaks TCP, which here does not leave the machine.
    client = NotebookClient(notebook, timeout=900, extra_arguments=["--log-level=ERROR"])
    # The networks are tiny: threads would wait for each other, and sums depend on how they are divided.
    return client.execute(env={**os.environ, "OMP_NUM_THREADS": "1"})


def to_markdown(notebook: NotebookNode, name: str) -> tuple[str, dict[str, bytes]]:
    """Return a notebook as the text of a page, and its pictures by path."""
    pictures: dict[str, bytes] = {}
    parts = []
    for cell in notebook.cells:
        if cell.cell_type == "markdown":
            parts.append(cell.source)
            continue
        parts.append(f"```python\n{cell.source}\n```")
        for text, picture in _outputs(cell):
            if picture is None:
                parts.append(f"```text\n{text}\n```")
            else:
                path = f"{name}-{len(pictures) + 1}.png"
                pictures[path] = picture
                parts.append(f"![{text}]({path}){{ loading=lazy }}")
    parts.append(f"[Download this page as a notebook]({name}.ipynb)")
    return "\n\n".join(parts), pictures


def _outputs(cell: NotebookNode) -> Iterator[tuple[str, bytes | None]]:
    for output in cell.outputs:
        data: dict[str, Any] = output.get("data", {})
        if output.output_type == "stream":
            yield output.text.rstrip(), None
        elif "image/png" in data:
            if "alt" not in cell.metadata:
                raise ValueError(f'a cell draws, and has no `# %% alt="..."`:\n{cell.source}')
            yield cell.metadata["alt"], base64.b64decode(data["image/png"])
        elif "text/plain" in data:
            yield data["text/plain"], None
