"""Are the drawings in docs/images what their scripts draw today, and can everybody look at them?"""

import importlib.util
import re
from pathlib import Path
from types import ModuleType
from xml.etree import ElementTree

import pytest

IMAGES = Path(__file__).parents[1] / "docs" / "images"
DRAWN = ("turning-neuron", "loss-curves", "logo")
PLOTTED = ("largest-turns", "neuron-turning", "relative-trust", "turning-angles")  # by matplotlib
DARK, REDUCED = (
    "@media (prefers-color-scheme: dark)",
    "@media (prefers-reduced-motion: no-preference)",
)


def script(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, IMAGES / f"{name.replace('-', '_')}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("name", DRAWN)
def test_the_file_is_what_the_script_draws(name: str):
    drawn = script(name).picture()
    assert (IMAGES / f"{name}.svg").read_text() == drawn, (
        f"run: python docs/images/{name.replace('-', '_')}.py"
    )


@pytest.mark.parametrize("name", [*DRAWN, "architecture"])
def test_it_has_a_title_a_size_and_nothing_from_elsewhere(name: str):
    path = IMAGES / f"{name}.svg"
    text = path.read_text()
    root = ElementTree.fromstring(text)
    assert root.attrib["role"] == "img"
    assert "viewBox" in root.attrib
    assert [child for child in root if child.tag.endswith("}title")]
    assert path.stat().st_size < 100_000
    assert re.findall(r"https?://[^\"]+", text) == ["http://www.w3.org/2000/svg"]


@pytest.mark.parametrize("name", ["turning-neuron", "loss-curves", *PLOTTED])
def test_it_follows_the_colour_scheme(name: str):
    assert (IMAGES / f"{name}.svg").read_text().count(DARK) == 1


def test_nothing_moves_for_readers_who_want_no_motion():
    text = (IMAGES / "turning-neuron.svg").read_text()
    style = text[text.index("<style>") : text.index("</style>")]
    still, _, moving = style.partition(REDUCED)
    assert "animation:" in moving
    assert "animation" not in still + text[text.index("</style>") :]


@pytest.mark.parametrize("name", PLOTTED)
def test_a_plot_has_no_background(name: str):
    background = ElementTree.parse(IMAGES / f"{name}.svg").find(".//*[@id='patch_1']/*")
    assert background is not None
    assert background.attrib["style"].startswith(("fill: none", "fill: #ffffff; opacity: 0"))


def test_every_colour_can_be_seen_on_dark_pages():
    dark_mode = script("dark-mode")
    for colour in ("#000000", "#3f51b5", "#c62828", "#7a7f8c", "#ef6c00"):
        assert dark_mode.contrast(dark_mode.on_dark(colour), "#1e2129") >= 4.5
