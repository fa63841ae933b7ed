# The same steps as CI, for a person. `make dev` once, `make check` before every commit.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
# Two for two cores; one for each of two suites that run side by side, since each worker imports and compiles it all.
WORKERS ?= 2
PYTEST = $(BIN)/python -m pytest -q -n $(WORKERS) --dist worksteal
# Some containers set this, and uv installs sources only: then every process compiles all that it imports of torch.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: dev check check-fast lint types test test-core test-kernels test-distributed test-lab test-tools slow variants \
	integrations jax random mutants zoo docs pages notebooks site dist sbom lock clean

# What two parts need beside `dev`, which leaves it out: gigabytes. `make dev WITH="integrations jax"` installs all
# at once, which spares .ci/run three more searches for versions that fit.
WITH ?=
NEEDS_integrations = -e '.[integrations]' -e 'lab[finetune]' fastdownload fasttransform tyro torchdata torch_checkpointing \
	einops hjson msgpack ninja py-cpuinfo 'spmd_types==0.2.3'
NEEDS_jax = -e '.[jax]' flax orbax-checkpoint
# fastai and timm come without torchvision, which only their data need, torchtitan without the older datasets that it
# asks for, and DeepSpeed without its compiled operators; its setup imports torch, so it cannot be built in isolation.
ALONE_integrations = 'deepspeed>=0.19' 'fastai>=2.8' 'timm>=1.0.13' 'torchtitan>=0.3'

# uv resolves and unpacks all of it in 45 s of processor time, pip in 300 s. LOCK has the versions that CI installs.
LOCK ?=
# uv has its own names for what a machine tells pip: where wheels are, and whose certificates count.
UV := UV_SYSTEM_CERTS=1 UV_HTTP_TIMEOUT=180 $(if $(PIP_FIND_LINKS),UV_FIND_LINKS='$(PIP_FIND_LINKS)') \
	$(if $(PIP_INDEX_URL),UV_DEFAULT_INDEX='$(PIP_INDEX_URL)')
PIP = $(UV) $(BIN)/uv pip install --quiet --python $(BIN)/python -c constraints.txt $(addprefix -c ,$(LOCK))
define install # what for
	$(PIP) $(foreach part,$(1),$(NEEDS_$(part)))
	$(if $(filter integrations,$(1)),DS_BUILD_OPS=0 $(PIP) --no-build-isolation --no-deps $(ALONE_integrations))
endef

NEEDS_dev = -e '.[dev]' -e lab -e 'tools[bench,sinks]'
dev: $(BIN)/.installed

$(BIN)/.installed: pyproject.toml lab/pyproject.toml tools/pyproject.toml constraints.txt $(LOCK)
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade pip uv
	$(call install,dev $(WITH))
	touch $@ $(addprefix $(BIN)/.,$(WITH))

$(BIN)/.integrations $(BIN)/.jax: $(BIN)/.%: $(BIN)/.installed
	$(call install,$*)
	touch $@

check: lint types test docs

# What most mistakes break, in less than three minutes.
check-fast: lint
	$(PYTEST) -x tests/reference tests/rules tests/optim tests/layout tests/peers tests/test_*.py

lint: dev
	$(BIN)/ruff format --check
	$(BIN)/ruff check
	$(BIN)/codespell

types: dev
	$(BIN)/mypy

test: dev
	$(PYTEST) --durations=40

# The same in parts, which .ci/parts.py lists with what each depends on. TESTS has the tests of other parts, to be run
# by the same two workers.
OWN = tests/backends tests/emulated_gpu tests/distributed tests/integrations tests/nero_jax src/nero/integrations src/nero/jax \
	docs/how-to/trainers.md docs/how-to/jax.md
TESTS ?=
test-core: dev
	$(PYTEST) --durations=40 tests src docs README.md $(addprefix --ignore=,$(filter-out $(TESTS),$(OWN))) $(TESTS)

test-kernels: dev
	$(PYTEST) tests/backends tests/emulated_gpu

test-distributed: dev
	$(PYTEST) tests/distributed

# What takes long: products of options of which the parts above have a selection, ranks that are killed, all of DeepSpeed.
slow: $(BIN)/.integrations
	HF_HUB_OFFLINE=1 $(PYTEST) --durations=40 -m slow tests --ignore=tests/emulated_gpu --ignore=tests/nero_jax lab tools

# All variants of the Triton kernel on three architectures.
variants: dev
	$(PYTEST) -m slow tests/emulated_gpu

test-lab: dev
	$(PYTEST) lab

test-tools: dev
	$(PYTEST) tools

# Nero in real trainers.
integrations: $(BIN)/.integrations
	HF_HUB_OFFLINE=1 $(BIN)/python -m pytest -q -n $(WORKERS) --dist loadfile tests/integrations src/nero/integrations \
		docs/how-to/trainers.md

# The port to JAX.
jax: $(BIN)/.jax
	$(PYTEST) tests/nero_jax src/nero/jax docs/how-to/jax.md

# The whole suite in random order: `make random SEED=7` for one that has failed before.
SEED ?= $(shell date +%s)
random: dev
	$(BIN)/python -m pytest -q -n 2 -o addopts="--strict-markers --strict-config --doctest-modules -m 'not slow'" \
		--randomly-seed=$(SEED) --randomly-dont-reset-seed tests src lab tools

# One small edit at a time; verdicts are kept in records/mutants.json, and only those that are stale, because the edited
# file or its tests have changed, run again. FRESH=--fresh runs all: more than an hour.
mutants: dev
	$(BIN)/python -m tests.mutants --jobs 2 $(FRESH)

# Every base model and causal LM of transformers: registry against forward pass, kept in records/zoo.json.
zoo: dev
	$(BIN)/python -m tests.zoo --jobs 2

docs: dev
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet

# The same site with the code of its notebooks only, which take most of the time to run.
pages: export NERO_NOTEBOOKS = code
pages notebooks: docs

# One version of the site, beside the others on the branch gh-pages: `make site VERSION=0.2 ALIAS=latest`.
site: dev
	NO_MKDOCS_2_WARNING=1 $(BIN)/mike deploy --update-aliases $(VERSION) $(ALIAS)
	$(if $(ALIAS),$(BIN)/mike set-default $(ALIAS))

# Wheels and source archives of all distributions, the same bytes every time.
dist: dev
	rm -rf dist
	for project in . lab tools; do $(BIN)/python -m build --outdir dist $$project >/dev/null; done
	$(BIN)/python -m twine check --strict dist/*

# What an installation contains (CycloneDX), and whether anything in it has a known vulnerability.
sbom: dist
	$(PYTHON) -m venv dist/clean dist/tools
	dist/clean/bin/python -m pip install --quiet -c constraints.txt dist/nero_optim-*.whl
	dist/tools/bin/python -m pip install --quiet cyclonedx-bom pip-audit
	dist/tools/bin/cyclonedx-py environment dist/clean/bin/python --output-file dist/sbom.json
	dist/tools/bin/pip-audit --path dist/clean/lib/python*/site-packages

# The versions for .ci/run: those of the day, if everything passes with them. constraints.txt has torch, which says
# what triton it wants.
lock:
	rm -rf .venv-lock
	$(MAKE) VENV=.venv-lock test integrations jax
	.venv-lock/bin/python -m pip freeze --exclude-editable > .ci/lock.new
	(echo '# Made by `make lock` with Python 3.11.'; grep -vE '^(torch|triton)==' .ci/lock.new) > .ci/lock.txt
	rm .ci/lock.new

clean:
	rm -rf $(VENV) site dist build .mypy_cache .ruff_cache .pytest_cache .hypothesis
