# make run · make test · make lint · make lock · make grown-up. Extra arguments: make test ARGS="tests/engine -x"
VENV := .venv
PYTHON := $(VENV)/bin/python
ARGS ?=
JOBS ?= auto
.PHONY: run test lint lock grown-up environment test-environment
.DEFAULT_GOAL := run

run: environment
	@exec $(PYTHON) manage.py up $(ARGS)

# What starts whole labs or browsers runs two at a time afterwards, what measures time alone.
LABS := browser or e2e
PAIRS := --maxprocesses 2 --dist loadfile --no-loadscope-reorder
test: test-environment
ifeq ($(strip $(ARGS)),)
	@failed=0; \
	$(PYTHON) -m pytest -q -n $(JOBS) --maxprocesses 8 -m "not ($(LABS) or serial)" || failed=1; \
	$(PYTHON) -m pytest -q -n $(JOBS) $(PAIRS) -m "$(LABS)" tests/browser tests/e2e || failed=1; \
	$(PYTHON) -m pytest -q -m serial $$(grep -rl --include='test_*.py' 'mark\.serial' tests) || failed=1; \
	exit $$failed
else
	@exec $(PYTHON) -m pytest $(ARGS)
endif

lint: test-environment
	$(PYTHON) -m ruff check .
	$(PYTHON) -m ruff format --check .
	git ls-files -z 'templates/*.html' | xargs -0 $(VENV)/bin/djade --check --target-version 5.2
	$(PYTHON) -m mypy
	$(VENV)/bin/lint-imports

# Newer releases are taken with: make lock ARGS=--upgrade
COMPILE = $(VENV)/bin/uv pip compile --no-config --quiet --universal --python-version 3.11 --generate-hashes \
  --no-emit-index-url --no-emit-find-links --no-annotate --custom-compile-command "make lock" $(ARGS)
lock: test-environment
	$(COMPILE) pyproject.toml -o requirements.lock
	$(COMPILE) pyproject.toml --all-extras -c requirements.lock -o deploy/requirements.lock
	$(COMPILE) pyproject.toml --all-extras --group dev -c deploy/requirements.lock -o tests/requirements.lock

# The clients of PostgreSQL and Redis as well, for a lab with DATABASE_URL or LAB_REDIS_URL.
grown-up:
	@$(call install,deploy/requirements.lock,$(VENV)/grown-up.lock)
	@cp requirements.lock $(VENV)/run.lock

environment:
	@$(call install,requirements.lock,$(VENV)/run.lock)
test-environment:
	@$(call install,tests/requirements.lock,$(VENV)/tests.lock)
	@cmp -s requirements.lock $(VENV)/run.lock || cp requirements.lock $(VENV)/run.lock

# Installs lock $(1) into $(VENV), unless the copy $(2) says that this was done and completed.
define install
if ! { cmp -s $(1) $(2) && $(PYTHON) -c ''; } 2>/dev/null; then \
  $(PYTHON) -m pip --version >/dev/null 2>&1 || { $(create); } && \
  echo "Installing what $(1) lists (once, and after a change of it)" && \
  $(PYTHON) -m pip install --disable-pip-version-check --require-hashes --no-deps -r $(1) && cp $(1) $(2); \
fi
endef

define create
made=; found=; old=; \
for python in python3 python3.14 python3.13 python3.12 python3.11; do \
  "$$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || \
    { version=$$("$$python" --version 2>/dev/null) && old="$$old $$version"; continue; }; \
  found=$$("$$python" -c 'import sys; print("%d.%d" % sys.version_info[:2])'); \
  "$$python" -c 'import ensurepip, sqlite3, ssl, venv' 2>/dev/null || continue; \
  echo "Making a virtual environment in $(VENV) with Python $$found"; \
  "$$python" -m venv --clear $(VENV) || exit 1; \
  made=yes; break; \
done; \
if [ -z "$$made" ] && [ -n "$$found" ]; then \
  echo "Python $$found is here but cannot make virtual environments (ensurepip is missing). Install it:" >&2; \
  echo "    apt-get install python3-venv        (Debian, Ubuntu; or python$$found-venv)" >&2; exit 1; \
elif [ -z "$$made" ]; then \
  echo "Trajectory Lab needs Python 3.11 or newer; found:$${old:- none}. Install it:" >&2; \
  echo "    apt-get install python3 python3-venv        (Debian 12, Ubuntu 24.04 or newer)" >&2; \
  echo "    brew install python@3.13                    (macOS)" >&2; exit 1; \
fi
endef
