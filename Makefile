# Needs only git, make and Python 3.11 or later. Everything else goes into .venv.
PYTHON ?= python3
BIN := .venv/bin
STAMP := .venv/.synced

.DEFAULT_GOAL := help
.PHONY: help demo run test check fix fuzz bench docs lock clean

help: ## list the targets
	@sed -n 's/^\([a-z]*\):.*## \(.*\)/  \1\t\2/p' $(MAKEFILE_LIST) | expand -t 12

demo: $(STAMP) ## a long session against the embedded default, drawn live (KEEP=1 goes on serving)
	@$(BIN)/python -m demo

run: $(STAMP) ## the embedded default in the foreground: web, worker, beat, Valkey (HANGO_HOME, PORT)
	@$(BIN)/python -m hango.run

# Two lanes side by side, for two cores. The engine by itself, since only it is held to full coverage, which costs time; flows and
# acceptance twice: they have to hold on both databases. Every run happens whatever the ones before say, and what
# the second lane said comes after the first is done, so that pytest's closing lines stay whole.
test: $(STAMP) ## every test; flows and acceptance on SQLite and on PostgreSQL; engine coverage 100 %
	@bad=0; \
	{ lane=0; \
	  HANGO_TEST_ON=sqlite $(BIN)/python -m pytest tests/engine --cov --cov-report= $(ARGS) || lane=1; \
	  $(BIN)/coverage report --include 'compaction/engine/*' --fail-under=100 --show-missing --skip-covered || lane=1; \
	  HANGO_TEST_ON=postgres $(BIN)/python -m pytest tests/flows tests/acceptance $(ARGS) || lane=1; \
	  exit $$lane; } > .venv/second.log 2>&1 & second=$$!; \
	HANGO_TEST_ON=sqlite $(BIN)/python -m pytest --ignore=tests/engine $(ARGS) || bad=1; \
	wait $$second || bad=1; cat .venv/second.log; \
	exit $$bad

check: export HANGO_HOME = .venv/home
check: $(STAMP) ## lint, format, types, arrows between modules, migrations up to date
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python manage.py makemigrations --check --dry-run
	$(BIN)/python manage.py check

fix: $(STAMP) ## what ruff can repair by itself
	$(BIN)/ruff check --fix
	$(BIN)/ruff format

fuzz: $(STAMP) ## 100,000 sessions at random against the strict upstream's rules (about half an hour)
	HYPOTHESIS_PROFILE=fuzz $(BIN)/python -m pytest tests/engine/test_fuzz.py -p no:randomly --timeout=0 $(ARGS)

bench: $(STAMP) ## time and queries of a build at 100 and at 10 000 messages
	@$(BIN)/python -m benchmarks.build

docs: $(STAMP) ## rewrite the table of settings in README.md
	@$(BIN)/python -m hango.reference README.md

COMPILE := $(BIN)/uv pip compile -q pyproject.toml --universal --python-version 3.11 --generate-hashes --no-emit-index-url --no-header
lock: $(STAMP) ## choose versions anew: dev.lock, run.lock (hashes, no addresses)
	$(COMPILE) --upgrade --extra s3 --group dev -o dev.lock
	$(COMPILE) --upgrade --extra s3 -o run.lock

clean: ## remove .venv, caches and measurements; HANGO_HOME stays
	rm -rf .venv .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis .coverage .coverage.* htmlcov

# uv is quicker, and itself only a convenience: where it cannot be installed, pip reads the same lock.
$(STAMP): dev.lock
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "hango needs Python 3.11 or later: make PYTHON=python3.12 …" >&2; exit 1; }
	@test -x $(BIN)/python || $(PYTHON) -m venv .venv
	@test -x $(BIN)/uv || $(BIN)/python -m pip install -q --disable-pip-version-check uv || true
	@if test -x $(BIN)/uv; then $(BIN)/uv pip sync -q --require-hashes --python $(BIN)/python dev.lock; \
	else $(BIN)/python -m pip install -q --disable-pip-version-check --require-hashes -r dev.lock; fi
	@touch $@
