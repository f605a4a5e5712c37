# Every target makes its own virtual environment first; on a fresh machine nothing else is needed but Python and make.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
# a process a core, each with one thread: threads of two processes would fight for the cores; a process that dies ends
# the run, with a failure
PYTEST := OMP_NUM_THREADS=1 $(BIN)/python -m pytest --numprocesses auto --dist loadfile --max-worker-restart=0

.PHONY: demo test test-avx2 test-parallel test-all check docs bench mutants clean

demo: $(VENV)/ready
	$(BIN)/regun demo --store demo/store --out demo

test: $(VENV)/ready
	$(PYTEST)

# what depends on arithmetic once more, as on a processor without AVX-512
test-avx2: $(VENV)/ready
	ONEDNN_MAX_CPU_ISA=AVX2 ATEN_CPU_CAPABILITY=avx2 $(PYTEST) tests/training tests/methods tests/artifacts tests/experiments \
		tests/deletion tests/test_contract.py tests/test_methods.py tests/test_regun.py tests/test_api.py

# one run on several processes: every method on one, two and three, kills, torchrun, accelerate; a Ray cluster that loses
# its nodes
test-parallel: $(VENV)/ready
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest tests/parallel tests/experiments/study/test_ray.py -m slow

test-all: $(VENV)/ready
	$(PYTEST) -m "slow or not slow"

check: $(VENV)/ready
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/pyright
	$(BIN)/python -m pytest tests/test_imports.py

# the documentation site, in build/docs/index.html; a warning is an error
docs: $(VENV)/ready
	$(BIN)/python -m sphinx -q -W --keep-going -b html docs build/docs

bench: $(VENV)/ready
	for name in training augment data overlap prepare unlearning audit audit_numbers study store ledger parallel; do \
		echo "== $$name"; $(BIN)/python benchmarks/$$name.py || exit 1; done

# do the tests notice wrong code? hours on one core; a second start goes on where the first was stopped
mutants: $(VENV)/ready
	$(BIN)/python -m pip install --quiet mutmut==3.8.1
	OMP_NUM_THREADS=1 $(BIN)/python research/mutation.py build/mutation

$(VENV)/ready: pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable ".[dev]"
	touch $@

clean:
	rm -rf $(VENV) build dist demo regun-store .pytest_cache .ruff_cache .hypothesis
