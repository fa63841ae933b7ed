"""The report of the lab as pages of this site: ``lab/report`` is read where it lies."""

from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files

REPORT = Path(__file__).parents[2] / "lab" / "report"


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages of the report and its figures to the files of the site."""
    pages, figures = sorted(REPORT.glob("*.md")), sorted((REPORT / "figures").glob("*.png"))
    for source in (*pages, *figures):
        name = source.relative_to(REPORT).as_posix()
        files.append(File.generated(config, f"evidence/{name}", abs_src_path=str(source)))
    return files
