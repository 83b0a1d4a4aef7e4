# Everything a newcomer or CI runs. Each target sets up what it needs; nothing is skipped silently.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
UV := $(BIN)/uv
STAMP := $(VENV)/.requirements-installed
# The environment of `make run`: the sidecar and nothing else.
RUN := .cache/run-venv/.complete
KAFKA_VERSION := 4.3.1
KAFKA_JARS := .cache/kafka/$(KAFKA_VERSION)
SPARK_JARS := .cache/spark/$(shell sed -n 's:.*<spark.version>\(.*\)</spark.version>.*:\1:p' pipeline/jars/pom.xml)
PIPELINE_DEMO := .cache/pipeline-demo
COMPILE := $(UV) pip compile --universal --generate-hashes --no-emit-index-url --quiet

VERSION = $(shell sed -n 's/^version = "\(.*\)"/\1/p' pyproject.toml)
# The first of these that works; docker's needs BuildKit, which it has been since Docker 23.
ENGINE ?= $(firstword $(foreach engine,docker podman buildah,$(shell $(engine) info >/dev/null 2>&1 && echo $(engine))))
IMAGE_FLAGS ?=
# More options of `make fuzz`: a seed, how long.
FUZZ ?=
# Which of requirements/ the image is made of, and what its tag and bill then end with: otel.txt, -otel; oauth.txt, -oauth.
PINS ?= run.txt
FLAVOUR = $(patsubst %.txt,-%,$(filter-out run.txt,$(PINS)))
DIST := dist
# What the images are built on, by digest; by default the Dockerfiles' tags, which move.
BASE_IMAGE ?=
JAVA_IMAGE ?=
say-unpinned = $(if $(findstring @sha256:,$($(1))),:,echo "$(1) is not pinned: name it by digest, NAME@sha256:..., for builds that repeat" >&2)
# Two more than cores: those with real brokers, and those that wait for processes, leave the cores to others.
PROCESSES ?= $(shell echo $$(($$(nproc 2>/dev/null || echo 2) + 2)))
PYTEST = $(BIN)/pytest --numprocesses $(PROCESSES) --dist loadgroup --no-loadscope-reorder --max-worker-restart 0

# Behind a company's proxy only the system knows its certificate; uv, pip and npm bring lists of their own.
SYSTEM_CERTS := $(wildcard /etc/ssl/certs/ca-certificates.crt)
ifneq ($(SYSTEM_CERTS),)
export UV_SYSTEM_CERTS ?= true
export PIP_CERT ?= $(SYSTEM_CERTS)
export NODE_EXTRA_CA_CERTS ?= $(SYSTEM_CERTS)
endif

# Where it is set, as in many containers, each of the hundreds of processes that the tests start would compile all that it
# imports, and each process of pytest all tests.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: help setup run demo demo-failover pipeline-demo check format docs dashboard behaviours dist test test-pipeline-killed test-pipeline-hostile test-pipeline-clocks test-lowest test-stress test-long check-deploy test-fast audit fuzz mutants-behaviour chaos simulate soak lives lockstep schedules mutants structure bench bench-pipeline profile bench-venv kafka-jars pipeline-jars java lock image pipeline-image sbom clean

help:  ## this list
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:[^#]*## */\t/' | expand -t 14

setup: $(STAMP)  ## the environment in .venv, from the pins in requirements/

$(UV): requirements/uv.txt
	sh requirements/make-venv.sh "$(PYTHON)" "$(VENV)"
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements/uv.txt
	@touch $@

$(STAMP): $(UV) requirements/dev.txt pyproject.toml
	$(UV) pip install --quiet --require-hashes -r requirements/dev.txt
	$(UV) pip install --quiet --no-deps --no-build-isolation --editable .
	@touch $@

$(RUN): requirements/run.txt
	@echo "Installing the sidecar's $(words $(shell grep -oE '^[a-z][a-z0-9.-]*==' $<)) packages into $(dir $@), once."
	@sh requirements/make-venv.sh "$(PYTHON)" $(dir $@)
	@# pip prints some 60 lines; its packages' names in one line show progress too. Its errors go to stderr.
	@($(dir $@)bin/python -m pip install --disable-pip-version-check --no-input --progress-bar off --only-binary :all: \
		--require-hashes -r $< && touch $@.new) \
		| { while read -r word name _; do case $$word in Collecting) printf ' %s' "$${name%%==*}";; esac; done; echo; }
	@test -e $@.new || { printf '%s\n' "The packages were not installed. If a certificate could not be verified: a proxy here has a certificate" \
		"authority of its own. Name its file, make $(MAKECMDGOALS) PIP_CERT=FILE SSL_CERT_FILE=FILE, or add it to the system's." >&2; exit 1; }
	@mv $@.new $@

run: $(RUN)  ## the sidecar on a Kafka inside its own process, to try it out
	$(dir $(RUN))bin/python -m service serve --embedded

demo: $(RUN)  ## starts it, asks it three things, shows the answers, stops it
	$(dir $(RUN))bin/python examples/demo.py

demo-failover: $(RUN)  ## a leader is stopped under load: the watch's events, the gap, and what was acknowledged
	$(dir $(RUN))bin/python examples/demo_failover.py

pipeline-demo: setup java  ## a simulated fleet through the data pipeline, and where its report lies: a minute or two
	rm -rf $(PIPELINE_DEMO)
	$(BIN)/python -m tests.pipeline.simulate --out $(PIPELINE_DEMO)/events --events 100000
	$(BIN)/pilotfish-pipeline run --source files --input $(PIPELINE_DEMO)/events --out $(PIPELINE_DEMO)/tables
	$(BIN)/pilotfish-pipeline report --tables $(PIPELINE_DEMO)/tables --out $(PIPELINE_DEMO)/report.html

check: setup kafka-jars  ## format, lint, types, import contracts, generated code
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python -m client_core.protocol.generate --check

format: setup  ## formats the code and sorts the imports
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

docs: setup  ## the tables in the documentation, from the code and the last benchmark run
	$(BIN)/python docs/tables.py
	$(BIN)/python -m tests.structure.module_list
	$(BIN)/python helm/values_schema.py

dashboard: setup  ## Grafana's dashboard, from helm/dashboard
	$(BIN)/python -m helm.dashboard

behaviours: setup  ## which test shows which behaviour, as a table; fails on one that none shows
	$(BIN)/python -m tests.behaviours

test: setup  ## what every commit passes: minutes, a real three-broker Kafka included
	@# A normal user may not install Java: then the tests that need it are left out, and counted at the end.
	@$(MAKE) --no-print-directory java kafka-jars pipeline-jars || [ "$$(id -u)" != 0 -a -z "$$CI" ]
	$(BIN)/python -m tests.support.compiled_tests
	$(PYTEST) -m "not long"

test-pipeline-killed: setup java kafka-jars pipeline-jars  ## the pipeline's driver killed with SIGKILL at every point, call and random times: an hour. KILLS=100, SEED=1
	$(BIN)/python -m tests.pipeline.killed_chain
	$(BIN)/python -m tests.pipeline.killed_times $(or $(KILLS),100) $(or $(SEED),1)

test-pipeline-hostile: setup java pipeline-jars  ## both stores make every table of events that no cluster emits. EVENTS=1000000, SEED=1
	$(BIN)/python -m tests.pipeline.extreme_events $(or $(EVENTS),1000000) $(or $(SEED),1)

test-pipeline-clocks: setup java pipeline-jars  ## every table of fleets with wrong clocks, against the truth. SEEDS=100
	$(BIN)/python -m tests.pipeline.clock_judge $(or $(SEEDS),100)

test-lowest: .cache/lowest-venv/.complete  ## the tests that need no Java, with the lowest versions that pyproject.toml allows: minutes
	@# Distributions are installed with pins of their own, by uv, which is no dependency.
	.cache/lowest-venv/bin/pytest --numprocesses $(PROCESSES) -m "not kafka and not spark and not tools" \
		--ignore tests/test_distributions_installed.py

.cache/lowest-venv/.complete: requirements/lowest.txt pyproject.toml | $(UV)
	sh requirements/make-venv.sh "$(PYTHON)" .cache/lowest-venv
	$(UV) pip sync --quiet --python .cache/lowest-venv/bin/python --require-hashes requirements/lowest.txt
	$(UV) pip install --quiet --python .cache/lowest-venv/bin/python --no-deps --no-build-isolation --editable .
	@touch $@

test-stress: setup java kafka-jars pipeline-jars  ## what `make test` runs, in fresh orders beside spinning processes: hours; it resumes. RUNS=2 NO_BROKER_RUNS=6, STRESS="--seed 1"
	$(BIN)/python -m tests.stress $(if $(RUNS),--runs $(RUNS)) $(if $(NO_BROKER_RUNS),--no-broker-runs $(NO_BROKER_RUNS)) $(STRESS)

test-long: setup java kafka-jars pipeline-jars test-pipeline-killed test-pipeline-hostile test-pipeline-clocks test-lowest  ## all that is too long for every commit
	$(PYTEST) -m long
	@$(MAKE) --no-print-directory lockstep
	@$(MAKE) --no-print-directory simulate
	$(BIN)/python -m tests.upgrades.rollback

check-deploy: setup java kafka-jars  ## image, charts, rules and dashboard, by the tools that will meet them: minutes
	$(BIN)/python -m tests.deploy

test-fast: setup  ## what needs no Java
	$(BIN)/pytest -m "not kafka and not spark"

audit:  ## asks PyPI which pins have known vulnerabilities; ends with an error if any has, or if it cannot ask
	@# Where pip-audit can't be installed, every file is reported as NOT AUDITED.
	@$(MAKE) --no-print-directory .cache/audit-venv/.complete || true
	@$(PYTHON) -m requirements.audit .cache/audit-venv/bin/pip-audit

.cache/audit-venv/.complete: requirements/audit.txt | $(UV)
	sh requirements/make-venv.sh "$(PYTHON)" .cache/audit-venv
	$(UV) pip install --quiet --python .cache/audit-venv/bin/python --require-hashes -r requirements/audit.txt
	@touch $@

fuzz: setup  ## hostile decoders' input, brokers and HTTP; prints its seed, FUZZ="--seed 1 --minutes 30" is passed on
	$(BIN)/python -m tests.fuzz $(FUZZ)
	$(BIN)/python docs/tables.py

mutants-behaviour: setup java kafka-jars pipeline-jars  ## faults planted in the product: which suite finds each. MUTANTS="--only spool"
	$(BIN)/python -m tests.mutants.behaviour $(MUTANTS)

chaos: setup java kafka-jars  ## every fault under load on real brokers, for docs/reliability.md: half an hour. SEED=any, HOURS=3: combinations only
	$(BIN)/python -m tests.chaos $(if $(SEED),--seed $(SEED)) $(if $(HOURS),--hours $(HOURS),--minutes 40)
	$(BIN)/python docs/tables.py

simulate: setup  ## produce and spool from the body to the brokers' logs in simulated time, faults by seed; it resumes. SEEDS=1000, SIMULATE="--shrink 7"
	$(BIN)/python -m tests.simulation $(if $(SEEDS),--seeds $(SEEDS)) $(SIMULATE)

soak: setup  ## hours of load and trouble in compressed time: does anything grow? MINUTES=10, SEED=any
	$(BIN)/python -m tests.soak --minutes $(or $(MINUTES),10) $(if $(SEED),--seed $(SEED))
	$(BIN)/python docs/tables.py

mutants: setup $(if $(filter gold,$(ROOM)),java pipeline-jars)  ## one-line faults of a room that no test finds. ROOM=spool, SEED=any, COUNT=150
	$(BIN)/python -m tests.mutants.one_line_run $(ROOM) $(if $(SEED),--seed $(SEED)) $(if $(COUNT),--count $(COUNT))

lockstep: setup java kafka-jars  ## Kafka's own producer and ours by the same random steps: minutes. SEEDS=20, FIRST=0, LOCKSTEP="--mode default"
	$(BIN)/python -m tests.lockstep $(if $(SEEDS),--seeds $(SEEDS)) $(if $(FIRST),--first $(FIRST)) $(LOCKSTEP)

schedules: setup  ## the producer's threads in orders that seeds draw: 2,000 take minutes; it resumes. SCHEDULES="--schedules 100000"
	$(BIN)/python -m tests.schedules $(SCHEDULES)

structure: setup  ## packages, imports between them, sizes of modules, and the code that one request runs
	$(BIN)/python -m tests.structure

lives: setup  ## forks, exits, interrupts and garbage on each Python that this machine has: some minutes
	$(BIN)/python -m tests.lives

bench: bench-venv java kafka-jars  ## the figures of README and docs, measured here
	.cache/bench-venv/bin/python -m benchmarks

bench-pipeline: setup java  ## what the data pipeline costs from 2,000 to ten million events: half an hour
	$(BIN)/python -m benchmarks.pipeline

profile: bench-venv java kafka-jars  ## where a look-up and a produce spend their time
	.cache/bench-venv/bin/python -m benchmarks.profile

bench-venv: setup
	sh requirements/make-venv.sh "$(PYTHON)" .cache/bench-venv
	$(UV) pip install --quiet --python .cache/bench-venv/bin/python --require-hashes -r requirements/bench.txt
	$(UV) pip install --quiet --python .cache/bench-venv/bin/python --no-deps --no-build-isolation --editable .

kafka-jars: $(KAFKA_JARS)/.complete  ## Apache Kafka's jars from Maven Central, into .cache

$(KAFKA_JARS)/.complete: | setup
	$(BIN)/python -m tests.support.kafka_jars $(KAFKA_JARS)

pipeline-jars: $(SPARK_JARS)/jars.json  ## Spark's Kafka connector and Delta from Maven Central, into .cache

$(SPARK_JARS)/jars.json: pipeline/jars/pom.xml | setup
	$(BIN)/python -m pipeline.jars.connector_jars $(SPARK_JARS)
	@touch $@

dist: setup  ## a release in dist/: wheels, archives, charts, SBOMs, images, checksums; COSIGN_KEY=FILE signs them (docs/image.md)
	$(BIN)/python -m requirements.release $(DIST)

image:  ## the container image, by docker, podman or buildah; PINS=otel.txt with traces (docs/image.md)
	@test -n "$(ENGINE)" || { echo "neither docker nor podman nor buildah works here; see docs/image.md" >&2; exit 1; }
	@$(call say-unpinned,BASE_IMAGE)
	$(ENGINE) build $(if $(filter docker,$(ENGINE)),,--format docker) --tag pilotfish:$(VERSION)$(FLAVOUR) \
		$(if $(BASE_IMAGE),--build-arg BASE_IMAGE=$(BASE_IMAGE)) --build-arg PINS=$(PINS) --build-arg VERSION=$(VERSION) --build-arg REVISION=$(shell git describe --always --dirty --abbrev=40 2>/dev/null) \
		$(IMAGE_FLAGS) .

pipeline-image: setup pipeline-jars  ## the data pipeline's image, by docker, podman or buildah (docs/pipeline-cluster.md)
	@test -n "$(ENGINE)" || { echo "neither docker nor podman nor buildah works here; see docs/image.md" >&2; exit 1; }
	@$(call say-unpinned,BASE_IMAGE)
	@$(call say-unpinned,JAVA_IMAGE)
	$(BIN)/python -m requirements.distributions $(DIST)
	$(ENGINE) build --tag pilotfish-pipeline:$(VERSION) \
		$(foreach name,BASE_IMAGE JAVA_IMAGE,$(if $($(name)),--build-arg $(name)=$($(name)))) --build-arg VERSION=$(VERSION) --build-arg JARS=$(SPARK_JARS) \
		--file pipeline/Dockerfile $(IMAGE_FLAGS) .

sbom: setup  ## what the image installs, from the pins, with licences, as CycloneDX in dist/
	$(BIN)/python -m requirements.sbom $(DIST) $(PINS)

java: setup  ## finds Java 17 or newer, or installs it from Debian's packages when root
	$(BIN)/python -m tests.support.java --require

lock: $(UV)  ## compiles the pins again
	$(COMPILE) requirements/uv.in -o requirements/uv.txt
	$(COMPILE) pyproject.toml -o requirements/run.txt
	$(COMPILE) pyproject.toml --extra otel -c requirements/run.txt -o requirements/otel.txt
	$(COMPILE) pyproject.toml --extra oauth -c requirements/run.txt -o requirements/oauth.txt
	$(COMPILE) pyproject.toml --extra msk-iam -c requirements/run.txt -o requirements/msk-iam.txt
	$(COMPILE) pyproject.toml --extra pipeline -c requirements/run.txt -o requirements/pipeline.txt
	$(COMPILE) pyproject.toml --extra oauth --extra otel --extra pipeline --extra test --extra check --extra build -c requirements/otel.txt -o requirements/dev.txt
	$(COMPILE) pyproject.toml --extra oauth --extra otel --extra pipeline --resolution lowest-direct -o .cache/lowest.txt
	$(COMPILE) pyproject.toml --extra oauth --extra otel --extra pipeline --extra test --extra check --extra build -c .cache/lowest.txt -o requirements/lowest.txt
	$(COMPILE) pyproject.toml --extra bench --extra build -c requirements/run.txt -o requirements/bench.txt
	$(COMPILE) requirements/build.in -c requirements/dev.txt -o requirements/build.txt
	$(COMPILE) requirements/audit.in -c requirements/dev.txt -o requirements/audit.txt
	$(COMPILE) requirements/clients.in -c requirements/dev.txt -o requirements/clients.txt

clean:  ## forgets the environment and every cache
	rm -rf $(VENV) .cache .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache .coverage
