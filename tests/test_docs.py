"""Is everything documented? A public name has an entry on its API page, and an example that runs."""

import inspect
import re
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

import pytest

API = Path(__file__).parents[1] / "docs" / "api"
PACKAGES = (
    "nero",
    "nero.functional",
    "nero.layout",
    "nero.baselines",
    "nero.diagnostics",
    "nero_tools.sinks",
    "nero_tools.theory",
    *(["nero.jax"] if find_spec("optax") else []),
)
PUBLIC = [(package, name) for package in PACKAGES for name in import_module(package).__all__]

# What has nothing to call, or is only ever returned.
WITHOUT_EXAMPLE = {
    "modules": {"baselines", "functional", "layout"},
    "constants": {
        *("BALANCED", "INITIAL_SPHERE", "MEAN_ONLY", "NORM_ONLY", "UNCONSTRAINED"),
        *("BIAS", "EMBEDDING", "GAIN", "OTHER", "LAYOUT_KEYS"),
    },
    "types": {"Overrides"},
    "results": {
        *("Affine", "Description", "Gram", "NamedLayout", "Neurons", "Row", "Turn", "Updated"),
        *("BalanceReport", "BalanceRow", "Distribution", "LayerReport"),
        *("StepError", "StepFault", "StepReport"),
        *("ErrorBound", "GeneralisationBound", "RobustnessSearch"),
        *("LayerTrust", "ParameterStep", "RelativeSteps", "RelativeTrust"),
    },
}
EXEMPT = set().union(*WITHOUT_EXAMPLE.values())


@pytest.mark.parametrize(("package", "name"), PUBLIC)
def test_public_name_is_on_its_api_page(package: str, name: str) -> None:
    page = (API / f"{package.rpartition('.')[2]}.md").read_text()
    full = re.escape(f"{package}.{name}")
    entry = rf"^::: {full}$"
    anchor = rf"\{{#{full}\}}\n\n::: "  # an entry whose own path is another one
    link = rf"\[`{name}`\]\[nero\.\w+\]"  # an entry on the page of `nero`
    subpackage = rf"\[`{full}`\]\({name}\.md\)"
    assert re.search(f"{entry}|{anchor}|{link}|{subpackage}", page, re.MULTILINE), (
        f"docs/api has no entry for {package}.{name}"
    )


@pytest.mark.parametrize(("package", "name"), [pair for pair in PUBLIC if pair[1] not in EXEMPT])
def test_public_name_has_a_docstring_with_an_example(package: str, name: str) -> None:
    docstring = inspect.getdoc(getattr(import_module(package), name)) or ""
    example = docstring.partition("Example:\n")[2]
    assert ">>> " in example, f"the docstring of {package}.{name} has no Example"


def test_exempt_names_exist() -> None:
    assert {name for _, name in PUBLIC} >= EXEMPT
