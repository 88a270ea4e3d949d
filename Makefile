# `make run` starts the demo, `make test` checks everything; both from a bare Debian 12 with python3, make and git.
# All that is installed goes into .venv and .cache. One exception: root with apt-get also gets a missing python3-venv,
# nodejs/npm, haproxy, chromium, gnome-keyring or bubblewrap from Debian (scripts/need); everyone else is told what
# to type.

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:

PYTHON ?= python3
PYTEST_ARGS ?=
# Pinned because another release may order or mark the locks differently.
UV := uv==0.13.8

# npx keeps the servers it runs below npm's cache, so that cache is part of what we install.
export npm_config_cache := $(CURDIR)/.cache/npm
export PIP_DISABLE_PIP_VERSION_CHECK := 1
export PIP_NO_INPUT := 1

IN_VENV := PATH="$(CURDIR)/.venv/bin:$$PATH"

.PHONY: help
help:  ## this list
	@awk -F ':.*## ' '/^[a-z]+:.*## / {printf "make %-12s %s\n", $$1, $$2}' Makefile
	@echo "another interpreter: make test PYTHON=python3.12 (the environments are rebuilt when it changes)"

# Of the locks alone, hashes compared, as `pip install .` and pipx do not; the build backend is among them.
PREFIX ?= $(HOME)/.local

.PHONY: install
install:  ## mcpd for this user, into ~/.local (PREFIX); it needs this directory no longer then
	scripts/install "$(PYTHON)" "$(PREFIX)"

.PHONY: run
run: .venv/demo.stamp  ## the demo: the daemon with config/demo.json and real servers
	@command -v npx >/dev/null || printf '%s\n' \
	  '' \
	  '*** npx is not installed: the two node servers of the demo (filesystem, memory) will show as `failed`.' \
	  '*** The demo goes on without them. To see them too: sudo apt install nodejs npm' \
	  '' >&2
	$(IN_VENV) .venv/bin/mcpd run --config config/demo.json --state-dir .cache/state

.PHONY: test
test: .venv/dev.stamp .cache/mcp1/stamp .cache/node/stamp .cache/node24/stamp .cache/agents/stamp .cache/sdk/stamp .cache/wheels/stamp haproxy chromium keyring bubblewrap  ## everything: formatter, linter, types and all tests
	$(IN_VENV) .venv/bin/python scripts/parts $(PARTS) $(PYTEST_ARGS)

.PHONY: nightly
nightly: PARTS := --nightly
nightly: test  ## all that `make test` runs, with every combination and repetition

.PHONY: check
check: .venv/dev.stamp  ## the first thing after a change: linters, types and unit tests
	$(IN_VENV) .venv/bin/python scripts/parts --unit $(PYTEST_ARGS)

.PHONY: systemd
systemd: .venv/dev.stamp .cache/wheels/stamp bubblewrap  ## the units in a booted systemd (root, Debian): tests/systemd, in a container
	scripts/systemd-container $(PYTEST_ARGS)

.PHONY: bare
bare: .venv/dev.stamp .cache/agents/stamp  ## the README's first screen on a bare Debian, with real agents (root, Debian): tests/bare
	scripts/bare-debian $(PYTEST_ARGS)

.PHONY: interpreters
interpreters: .venv/dev.stamp  ## the unit tests on every Python from 3.11 on that this machine has
	scripts/interpreters $(PYTEST_ARGS)

.PHONY: man
man: .venv/dev.stamp  ## the manual pages, from what the commands say of themselves: man/
	rm -rf man
	.venv/bin/python scripts/manpages man

.PHONY: reference
reference: .venv/dev.stamp  ## the JSON Schema, and the lists of docs/ that the code holds: keys, commands, causes, events…
	.venv/bin/mcpd schema >config/mcpd.schema.json
	.venv/bin/python scripts/reference

.PHONY: screenshots
screenshots: .venv/dev.stamp chromium  ## the pictures of the console's pages: docs/screenshots/
	.venv/bin/python -m tests.browser.screenshots

.PHONY: dist
dist: .venv/dev.stamp  ## the packages for PyPI: a wheel and a source distribution, in dist/
	SOURCE_DATE_EPOCH=$$(git log -1 --format=%ct) .venv/bin/hatchling build

.PHONY: deb
deb: .venv/dev.stamp .cache/wheels/stamp  ## a package for this Debian, in dist/
	scripts/deb dist

.PHONY: lint
lint: .venv/dev.stamp  ## formatter, linter and types only
	.venv/bin/ruff format --check
	.venv/bin/ruff check
	.venv/bin/mypy

.PHONY: venv
venv: .venv/dev.stamp .cache/mcp1/stamp .cache/node/stamp .cache/node24/stamp .cache/agents/stamp .cache/sdk/stamp .cache/wheels/stamp haproxy chromium keyring bubblewrap  ## all that the tests need, installed

.PHONY: clean
clean:  ## removes what was installed and every cache
	rm -rf .venv .cache .mypy_cache .pytest_cache .ruff_cache .hypothesis dist
	find daemon tests -name __pycache__ -type d -prune -exec rm -rf {} +

# Written only when its content changes, which is what makes the second run instant and a new PYTHON a new environment.
.cache/interpreter: FORCE
	@mkdir -p $(@D)
	@scripts/interpreter "$(PYTHON)" >$@.new
	@if cmp -s $@.new $@; then rm $@.new; else mv $@.new $@; fi

.PHONY: FORCE
FORCE:

.venv/demo.stamp: .cache/interpreter requirements/demo.txt pyproject.toml scripts/venv
	scripts/venv "$(PYTHON)" .venv requirements/demo.txt
	.venv/bin/python -m pip install --quiet --no-deps --no-build-isolation --editable .
	@touch $@

# On top of the demo's, never beside it: two installers in one environment break it under `make -j`.
.venv/dev.stamp: .venv/demo.stamp requirements/dev.txt
	.venv/bin/python -m pip install --quiet --require-hashes -r requirements/dev.txt
	@touch $@

.cache/mcp1/stamp: .cache/interpreter requirements/mcp1.txt scripts/venv
	scripts/venv "$(PYTHON)" .cache/mcp1 requirements/mcp1.txt
	@touch $@

.cache/node/stamp: tests/e2e/node/package.json tests/e2e/node/package-lock.json scripts/node
	scripts/node tests/e2e/node .cache/node
	@touch $@

.cache/agents/stamp: tests/e2e/agents/package.json tests/e2e/agents/package-lock.json scripts/node
	scripts/node tests/e2e/agents .cache/agents
	@touch $@

# Beside the node of the distribution, which runs all else: what needs this one is named in requirements/node24.in.
.cache/node24/stamp: .venv/demo.stamp requirements/node24.txt
	rm -rf $(@D)
	.venv/bin/python -m pip install --quiet --require-hashes --target $(@D) -r requirements/node24.txt
	@touch $@

.cache/sdk/stamp: .venv/dev.stamp requirements/sdk.txt scripts/sdist
	rm -rf $(@D)
	scripts/sdist .venv/bin/python $(@D)
	@touch $@

# All that mcpd needs, to install it from: by the tests of its packages, which reach no index, and by `make deb`.
.cache/wheels/stamp: .venv/demo.stamp requirements/runtime.txt requirements/packages.txt
	rm -rf $(@D)
	.venv/bin/python -m pip download --quiet --require-hashes --only-binary :all: --dest $(@D) \
	  -r requirements/runtime.txt -r requirements/packages.txt
	@touch $@

# Where Debian keeps it is on the PATH of root only.
.PHONY: haproxy
haproxy:
	@PATH="$$PATH:/usr/sbin:/usr/local/sbin" command -v haproxy >/dev/null \
	  || scripts/need "haproxy (the tests put it in front of two daemons)" haproxy

# Without windows it takes half the time of a processor; where there is no such package, the other will do.
.PHONY: chromium
chromium:
	@command -v chromium-headless-shell >/dev/null \
	  || scripts/need "chromium (the tests drive it through Playwright's server)" chromium-headless-shell \
	  || command -v chromium >/dev/null

.PHONY: keyring
keyring:
	@command -v gnome-keyring-daemon >/dev/null && command -v dbus-daemon >/dev/null \
	  || scripts/need "gnome-keyring (the tests keep logins in it)" gnome-keyring dbus

.PHONY: bubblewrap
bubblewrap:
	@command -v bwrap >/dev/null || scripts/need "bubblewrap (the tests confine servers with it)" bubblewrap

# --no-config and --no-emit-index-url keep this machine's indexes out of the files; the runtime and demo locks are
# cut to the versions of the big one, so that what is tested is what is shipped. Extras are kept because pip, told
# hashes, does not see that `mcp==X` satisfies `mcp[cli]`.
COMPILE = .cache/uv/bin/uv pip compile --quiet --no-config --universal --python-version 3.11 --generate-hashes \
	--no-emit-index-url --no-strip-extras --custom-compile-command 'make lock' $(if $(UPGRADE),--upgrade)

.PHONY: lock
lock: .cache/interpreter  ## rewrites the locks; `make lock UPGRADE=1` takes the newest versions
	test -x .cache/uv/bin/uv || "$(PYTHON)" -m venv .cache/uv
	.cache/uv/bin/python -m pip install --quiet $(UV)
	$(COMPILE) pyproject.toml requirements/build.in --group dev --group servers -o requirements/dev.txt
	$(COMPILE) pyproject.toml requirements/build.in --group servers -c requirements/dev.txt -o requirements/demo.txt
	$(COMPILE) pyproject.toml -c requirements/dev.txt -o requirements/runtime.txt
	"$(PYTHON)" scripts/pins
	$(COMPILE) requirements/build.in -c requirements/dev.txt -o requirements/build.txt
	$(COMPILE) requirements/mcp1.in -o requirements/mcp1.txt
	$(COMPILE) requirements/node24.in -o requirements/node24.txt
	$(COMPILE) requirements/packages.in -o requirements/packages.txt
	$(COMPILE) requirements/sdk.in -c requirements/dev.txt -o requirements/sdk.txt
	cd tests/e2e/node && npm install --package-lock-only --omit-lockfile-registry-resolved=true \
	  --ignore-scripts --no-audit --no-fund --loglevel=error
