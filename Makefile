# Everything a newcomer needs: `make demo` and `make test`. PYTHON is tested at 3.11 and 3.12.
PYTHON ?= python3.11
BIN := .venv/bin
DEMO := demo
JOBS ?= 2

.PHONY: demo test lint test-newest test-halves peers lock clean

demo: .venv/ready
	rm -rf $(DEMO)
	$(BIN)/python -m benchmarks.receipts $(DEMO)/receipts --count 400 --contact-sheet $(DEMO)/receipts.png
	$(BIN)/python -m beam_jobs.build --input $(DEMO)/receipts/receipts.jsonl --output $(DEMO)/dataset \
	  --label company:string --label date:string --label total:float --label language:category \
	  --shards 8
	$(BIN)/python -m beam_jobs.verify $(DEMO)/dataset
	$(BIN)/python -m pipeline.demo $(DEMO)/dataset --out $(DEMO)

test: .venv/ready lint
	$(BIN)/python -m pytest -n $(JOBS)

lint: .venv/ready
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

# The newest TensorFlow and Beam, without tensorflow-io.
test-newest: .venv-newest/ready
	.venv-newest/bin/python -m pytest -n $(JOBS)

# Each half alone: the build without TensorFlow, the training without Beam.
test-halves: .venv-build/ready .venv-train/ready
	.venv-build/bin/python -m pytest -n $(JOBS)
	.venv-train/bin/python -m pytest -n $(JOBS)

# tillroll beside other input pipelines, on a dataset directory: make peers DATA=data/receipts
peers: .venv-peers/ready
	.venv-peers/bin/python -m benchmarks.peers $(DATA)

# .venv holds everything; .venv-NAME what requirements/NAME.lock lists.
.venv/ready: requirements/all.lock pyproject.toml
	$(call environment,.venv,$<)

.venv-%/ready: requirements/%.lock pyproject.toml
	$(call environment,.venv-$*,$<)

define environment
$(PYTHON) -m venv $(1)
$(1)/bin/pip install --quiet --disable-pip-version-check --no-deps --require-hashes -r $(2)
$(1)/bin/pip install --quiet --disable-pip-version-check --no-deps --editable .
touch $(1)/ready
endef

# Resolves every environment anew, from pyproject.toml.
lock: .venv/ready
	$(call resolve,all,--extra all)
	$(call resolve,newest,--extra dataflow --extra dev --extra heic --extra train)
	$(call resolve,build,--extra build --extra dev)
	$(call resolve,train,--extra train --extra dev)
	$(call resolve,peers,--extra peers --extra dev)

define resolve
$(BIN)/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-annotate \
  --no-header --upgrade $(2) pyproject.toml --output-file requirements/$(1).lock
endef

clean:
	rm -rf .venv .venv-newest .venv-build .venv-train .venv-peers $(DEMO)
