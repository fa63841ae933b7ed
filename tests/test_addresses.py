"""Addresses come from two variables: links are absolute where they are set, and nothing is made up."""

import re
from pathlib import Path
from typing import Any

import pytest

from hatch_build import CustomMetadataHook

ROOT = Path(__file__).parents[1]
REPOSITORY, SITE = "https://forge.example/someone/nero", "https://docs.example/nero"
FOLDERS = (".", "lab", "tools")


def metadata_of(folder: str) -> dict[str, Any]:
    metadata: dict[str, Any] = {}
    CustomMetadataHook(str(ROOT / folder), {"folder": folder}).update(metadata)
    return metadata


def test_all_distributions_have_one_hook():
    assert len({(ROOT / folder / "hatch_build.py").read_text() for folder in FOLDERS}) == 1


@pytest.mark.parametrize("folder", FOLDERS)
def test_nothing_is_made_up(folder: str, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.delenv("NERO_REPO_URL", raising=False)
    monkeypatch.delenv("NERO_SITE_URL", raising=False)
    metadata = metadata_of(folder)
    assert list(metadata["urls"]) == ["Paper"]
    assert metadata["readme"]["text"] == (ROOT / folder / "README.md").read_text()


@pytest.mark.parametrize("folder", FOLDERS)
def test_every_link_is_absolute_and_leads_to_a_file(folder: str, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("NERO_REPO_URL", f"{REPOSITORY}/")
    monkeypatch.setenv("NERO_SITE_URL", SITE)
    metadata = metadata_of(folder)
    assert metadata["urls"]["Source"] == REPOSITORY
    assert metadata["urls"]["Documentation"] == SITE
    targets = re.findall(r"\]\(([^)\s]+)\)", metadata["readme"]["text"])
    assert targets
    for target in targets:
        assert target.startswith("https://"), target
        path = re.sub(rf"{REPOSITORY}/(blob|raw)/HEAD/|#.*", "", target)
        workflow = re.match(rf"{REPOSITORY}/actions/workflows/(\w+\.yml)(/badge\.svg)?$", target)
        path = f".github/workflows/{workflow[1]}" if workflow else path
        assert path.startswith("https://") or (ROOT / path).exists(), target


def test_the_site_reads_the_same_variables():
    settings = (ROOT / "mkdocs.yml").read_text()
    assert "site_url: !ENV [NERO_SITE_URL, null]" in settings
    assert "repo_url: !ENV [NERO_REPO_URL, null]" in settings
