# Everything a newcomer needs: `make demo` and `make test`. PYTHON is tested at 3.11 and
# 3.12 and, without tensorflow-io (`make test-newest`), at 3.13.
PYTHON ?= python3.11
BIN := .venv/bin
DEMO := demo
DIST := dist
# Tests that wait for processes of their own leave a core idle: more of them run at a time than there are cores.
JOBS ?= 4
# Tests make thousands of small graphs. oneDNN, on by default where the processor has instructions for it, looks through
# all kernels for each of their nodes; Grappler and XLA optimize what runs once. `make test-halves` leaves all three as
# they are.
QUICK := TF_ENABLE_ONEDNN_OPTS=0 XLA_FLAGS=--xla_backend_optimization_level=0 $(BIN)/python -m pytest \
  -p tests.support.unoptimized
# uv makes the other environments. It takes the Python there is, and trusts the certificates that the system does.
UV_VERSION := 0.13.9
UV := .venv-uv-$(UV_VERSION)/bin/uv
INDEX := $(or $(UV_DEFAULT_INDEX),$(UV_INDEX_URL))
# Microsoft's own server of Blob Storage, on which tests run where there is npm; else on one of theirs.
AZURITE_VERSION := 3.35.0
AZURITE := build/azurite/ready-$(AZURITE_VERSION)
# Tests start hundreds of programs, each of which would compile TensorFlow's and Beam's modules anew.
unexport PYTHONDONTWRITEBYTECODE
export UV_PYTHON_DOWNLOADS := never
export UV_SYSTEM_CERTS := 1

.PHONY: demo test test-fast fuzz lint docs test-newest test-halves test-pillows peers interop engines dist lock \
  check-lock clean

demo: .venv/ready
	rm -rf $(DEMO)
	$(BIN)/python -m benchmarks.receipts $(DEMO)/receipts --count 400 --contact-sheet $(DEMO)/receipts.png
	$(BIN)/python -m beam_jobs.build --input $(DEMO)/receipts/receipts.jsonl --output $(DEMO)/dataset \
	  --label company:string --label date:string --label total:float --label language:category \
	  --shards 8
	$(BIN)/python -m beam_jobs.verify $(DEMO)/dataset
	$(BIN)/python -m pipeline.show $(DEMO)/dataset --output $(DEMO)
	$(BIN)/python -m pipeline.train $(DEMO)/dataset --run-dir $(DEMO)/run --global-batch-size 32 --steps 120 \
	  --evaluate-every 60 --balance-alpha 0.5
	@echo "look at $(DEMO)/receipts.png, batch.png, examples.png, layouts.png, shards.png and, of the run, $(DEMO)/run/*.png"

test: .venv/ready lint $(if $(shell command -v npm),$(AZURITE))
	$(QUICK) -n $(JOBS) --dist worksteal -m "not docs"

# All but programs, servers, benchmarks and what else is slow: under two minutes.
test-fast: .venv/ready lint
	$(QUICK) -n $(JOBS) --dist worksteal -m "not slow"

# Random histories of datasets, plans and input pipelines, for some minutes each: make fuzz MINUTES=60. `make test` runs
# a few of them, others every day. A failure names the seed and the case that show it again.
MINUTES ?= 10
fuzz: .venv/ready
	TILLROLL_FUZZ_MINUTES=$(MINUTES) $(QUICK) -n $(JOBS) --dist worksteal -o faulthandler_timeout=0 tests/fuzz

lint: .venv/ready
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-logo

# The documentation site, build/docs/index.html, and the code of its pages, which is run. Any warning, such as a
# broken link, is an error.
docs: .venv/ready .venv-docs/ready
	rm -rf build/docs
	PATH=$(CURDIR)/.venv-docs/bin:$$PATH TF_CPP_MIN_LOG_LEVEL=3 \
	  sphinx-build --fail-on-warning --keep-going --nitpicky docs build/docs
	$(BIN)/python -m pytest -n $(JOBS) --dist worksteal -m docs

# The newest TensorFlow and Beam, without tensorflow-io.
test-newest: .venv-newest/ready
	.venv-newest/bin/python -m pytest -n $(JOBS) --dist worksteal

# Each half alone: the build without TensorFlow, the training without Beam.
test-halves: .venv-build/ready .venv-train/ready
	.venv-build/bin/python -m pytest -n $(JOBS) --dist worksteal -m "not once and not docs"
	.venv-train/bin/python -m pytest -n $(JOBS) --dist worksteal -m "not once and not docs"

# Images with the oldest Pillow and simplejpeg that pyproject.toml allows, and with the newest: each lies in a folder that
# Python looks into before the environment.
PILLOWS := build/pillow
test-pillows: .venv-build/ready
	rm -rf $(PILLOWS)
	$(UV) pip install --quiet --python .venv-build/bin/python --no-deps --target $(PILLOWS)/oldest pillow==11.0.0 simplejpeg==1.8.0
	$(UV) pip install --quiet --python .venv-build/bin/python --no-deps --target $(PILLOWS)/newest pillow simplejpeg
	for end in oldest newest; do PYTHONPATH=$(CURDIR)/$(PILLOWS)/$$end .venv-build/bin/python -m pytest -n $(JOBS) --dist loadfile \
	  tests/beam_jobs/images tests/end_to_end/test_odd_files.py || exit 1; done

# tillroll beside other input pipelines, on a dataset directory: make peers DATA=data/receipts
peers: .venv-peers/ready
	.venv-peers/bin/python -m benchmarks.peers $(DATA)

# What others read of a dataset directory as it was built, and of one with three generations: TensorFlow Datasets, DALI,
# PyTorch and Grain (`.venv-peers`), each in a process of its own, and TensorFlow Data Validation, which has an
# environment, and a Python, of its own. The first two also read a compacted dataset, and pixels. The last one also
# looks for shifts: between two samples of the same receipts, and to one whose totals and layouts have shifted.
INTEROP := build/interop
INTEROP_BUILD := $(BIN)/python -m beam_jobs.build --quiet --shards train=3,validation=2
INTEROP_LABELS := --label total:float --label language:category
INTEROP_READ := $(addprefix $(INTEROP)/,receipts grown)
INTEROP_FORMS := $(addprefix $(INTEROP)/,compacted pixels)
INTEROP_TABLES := $(INTEROP)/tables
interop: .venv/ready .venv-tfds/ready .venv-dali/ready .venv-pytorch/ready .venv-grain/ready .venv-tfdv/ready
	rm -rf $(INTEROP)
	$(BIN)/python -m benchmarks.receipts $(INTEROP_TABLES) --count 1200 --layouts 30 --size small
	$(BIN)/python -m benchmarks.interop.samples $(INTEROP_TABLES)/receipts.jsonl
	for name in receipts first second shifted; do $(INTEROP_BUILD) $(INTEROP_LABELS) \
	  --input $(INTEROP_TABLES)/$$name.jsonl --output $(INTEROP)/$$name || exit 1; done
	$(INTEROP_BUILD) $(INTEROP_LABELS) --input $(INTEROP_TABLES)/first.jsonl --output $(INTEROP)/pixels \
	  --encoding raw --raw-size 96x64
	$(INTEROP_BUILD) $(INTEROP_LABELS) --input $(INTEROP_TABLES)/third_1.jsonl --output $(INTEROP)/grown
	for name in third_2 third_3; do $(INTEROP_BUILD) --append \
	  --input $(INTEROP_TABLES)/$$name.jsonl --output $(INTEROP)/grown || exit 1; done
	cp -r $(INTEROP)/grown $(INTEROP)/compacted
	$(BIN)/python -m beam_jobs.compact $(INTEROP)/compacted
	.venv-tfds/bin/python -m benchmarks.interop.tfds $(INTEROP)/tfds.json $(INTEROP_READ) $(INTEROP_FORMS)
	.venv-dali/bin/python -m benchmarks.interop.dali $(INTEROP)/dali.json $(INTEROP_READ) $(INTEROP_FORMS)
	$(BIN)/python -m benchmarks.interop.torch_grain expect $(INTEROP)/ids.json $(INTEROP_READ)
	for name in pytorch grain; do .venv-$$name/bin/python -m benchmarks.interop.torch_grain $$name \
	  $(INTEROP)/ids.json $(INTEROP_READ) --results $(INTEROP)/$$name.json || exit 1; done
	.venv-tfdv/bin/python -m benchmarks.interop.tfdv $(INTEROP)/tfdv.json $(INTEROP_READ) \
	  --shifts $(addprefix $(INTEROP)/,first second shifted)
	$(BIN)/python -m benchmarks.interop $(addprefix $(INTEROP)/,tfds.json dali.json pytorch.json grain.json tfdv.json)

# Builds on clusters of Flink and Spark that run here, with processes being killed. Both come from PyPI; Beam fetches
# its job servers from Maven, or they lie in a folder: make engines JOB_SERVERS=jars
ENGINES := build/engines
engines: .venv/ready
	rm -rf $(ENGINES)/receipts
	$(BIN)/python -m benchmarks.receipts $(ENGINES)/receipts --count 2000 --size small
	$(BIN)/python -m benchmarks.engines $(ENGINES)/receipts/receipts.jsonl --kills --downloads $(ENGINES) \
	  $(addprefix --job-servers=,$(JOB_SERVERS))

# The archive of sources and, built from it, the wheel that a release uploads.
dist: | $(UV)
	rm -rf $(DIST)
	$(UV) build --quiet --python $(PYTHON) --out-dir $(DIST)

# What each environment holds: extras (pyproject.toml), and groups, which are not published.
.venv/ready: SETS := --all-extras --group dev --group servers --group test
.venv-receipts/ready: SETS := --group receipts
.venv-newest/ready: SETS := --extra dataflow --extra heic --extra search --extra train --group newest --group test
.venv-build/ready: SETS := --extra build --group test
.venv-train/ready: SETS := --extra search --extra train --group test
.venv-docs/ready: SETS := --extra build --extra search --extra train --group docs --group newest --group receipts
.venv-peers/ready: SETS := --extra train --group peers --group test
.venv-tfds/ready: SETS := --extra train --group tfds
.venv-dali/ready: SETS := --group dali
.venv-pytorch/ready: SETS := --group pytorch
.venv-grain/ready: SETS := --group grain
.venv-tfdv/ready: SETS := --group tfdv

ENVIRONMENTS := $(addprefix .venv,/ready -receipts/ready -newest/ready -build/ready -train/ready \
  -docs/ready -peers/ready -tfds/ready -dali/ready -pytorch/ready -grain/ready -tfdv/ready)

# Python compiles a module when it is first imported. The large ones are imported once when their environment is made;
# else each of the processes that tests start at a time would compile them.
IMPORT := import importlib.util as u, logging; logging.disable(); \
  [__import__(name) for name in ('apache_beam', 'tensorflow') if u.find_spec(name)]

# `uv sync` fetches from the addresses in uv.lock, PyPI's. `uv pip sync` asks the index that uv or pip is
# configured for, and checks the hashes of uv.lock.
PIP_INDEX = $(shell $(UV:/uv=)/pip config list 2>/dev/null | sed -n "s/.*\.index-url='\(.*\)'/\1/p" | head -1)
$(ENVIRONMENTS): export UV_DEFAULT_INDEX = $(or $(INDEX),$(PIP_INDEX))
$(ENVIRONMENTS): %/ready: uv.lock pyproject.toml | $(UV)
	$(PYTHON) -m venv $*
	$(UV) export --quiet --frozen --python $*/bin/python --no-emit-project $(SETS) \
	  --output-file $*/requirements.txt
	$(UV) pip sync --quiet --python $*/bin/python --require-hashes $*/requirements.txt
	$(UV) pip install --quiet --python $*/bin/python --no-deps --editable .
	TF_CPP_MIN_LOG_LEVEL=3 $*/bin/python -W ignore -c "$(IMPORT)"
	touch $@

$(AZURITE):
	npm install --no-audit --no-fund --ignore-scripts --loglevel=error --prefix $(@D) azurite@$(AZURITE_VERSION) \
	  && touch $@ || echo "Azurite could not be installed: its tests run on a server of their own"

$(UV):
	$(PYTHON) -m venv $(UV:/bin/uv=)
	$(UV:/bin/uv=)/bin/pip install --quiet --disable-pip-version-check uv==$(UV_VERSION)

# Resolves every environment anew, from pyproject.toml. The lock names PyPI wherever it was made.
lock: | $(UV)
	$(UV) lock --upgrade --python $(PYTHON) --default-index https://pypi.org/simple

# Fails where pyproject.toml asks for what uv.lock does not hold.
check-lock: | $(UV)
	$(UV) lock --check --python $(PYTHON) --default-index https://pypi.org/simple

clean:
	rm -rf .venv .venv-* $(DEMO) $(DIST)
