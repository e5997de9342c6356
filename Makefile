# Each target sets up what it needs: a fresh machine wants only python3 and make.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
INSTALLED := $(VENV)/.installed
SITE_VENV := .venv-docs
SITE_INSTALLED := $(SITE_VENV)/.installed

.PHONY: demo test check bench docs package format clean

demo: $(INSTALLED)
	$(BIN)/python examples/demo.py

test: $(INSTALLED)
	$(BIN)/python -m pytest --numprocesses 2 --dist loadfile --no-loadscope-reorder

check: $(INSTALLED)
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy

# The site, in site/; anything wrong with a page or a link is an error.
docs: $(SITE_INSTALLED)
	NO_MKDOCS_2_WARNING=1 $(SITE_VENV)/bin/mkdocs build --strict

# Wheel and sdist, and a first answer from the wheel alone in a fresh environment.
package:
	PYTHON=$(PYTHON) bash .ci/package

bench: $(INSTALLED)
	$(BIN)/python benchmarks/step_time.py
	$(BIN)/python benchmarks/costs.py

format: $(INSTALLED)
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

$(INSTALLED): pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable ".[dev]"
	touch $@

# The extra alone: pages are made from the source, without importing it.
$(SITE_INSTALLED): pyproject.toml constraints.txt
	$(PYTHON) -m venv $(SITE_VENV)
	$(SITE_VENV)/bin/python -c "import tomllib; print(*tomllib.load(open('pyproject.toml', 'rb'))['project']['optional-dependencies']['docs'], sep='\n')" > $(SITE_VENV)/requirements.txt
	$(SITE_VENV)/bin/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --requirement $(SITE_VENV)/requirements.txt
	touch $@

clean:
	rm -rf $(VENV) $(SITE_VENV) .venv-torch site dist
