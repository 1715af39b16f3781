# What people type; the build itself is Meson's (meson.build).
PREFIX ?= /usr/local
BUILD ?= build
DESTDIR ?=

.DEFAULT_GOAL := help
.PHONY: help setup build up down test test-portal test-portal-debian test-mcp test-kills test-slurm-engine test-failover test-vm test-deb deb faults fuzz bench attack install uninstall docs clean

help: ## this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "make %-10s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

setup: ## install the Debian packages that are missing
	@tools/setup

build: setup ## compile
	@tools/build $(BUILD)

up: ## install what is missing, build the programs, start a one-machine cluster, run a sample job (./run up)
	@BUILD=$(BUILD) ./run up

down: ## stop the cluster that `make up` has started (./run down)
	@BUILD=$(BUILD) ./run down

test: ## set up, build and run all tests (./run test)
	@./run test

test-kills: build ## every kind of client under 1,000 kills and cuts (STREAM_ROUNDS=200 PARALLEL=4 for fewer, side by side)
	@BUILD=$(abspath $(BUILD)) PYTHONPATH=$(CURDIR) /usr/bin/python3 -m tests.kills.run --rounds $${STREAM_ROUNDS:-1000} \
	$${PARALLEL:+--parallel $$PARALLEL}

test-slurm-engine: build ## pilot jobs on a real Slurm, with pilots, slurmctld and the controller killed at random (JOBS=200 SECONDS_OF_KILLS=120)
	@ACEQUIA_BUILD=$(abspath $(BUILD)) BUILD=$(abspath $(BUILD)) PYTHONPATH=$(CURDIR):$(CURDIR)/tests /usr/bin/python3 -m pytest -q -p no:cacheprovider tests/journeys/test_providers_slurm.py

test-failover: build ## every kind of client under 300 faults of three controllers and their database (ROUNDS=20 PARALLEL=2)
	@BUILD=$(abspath $(BUILD)) PYTHONPATH=$(CURDIR) /usr/bin/python3 -m tests.kills.run --failover --rounds $${ROUNDS:-300} \
		$${PARALLEL:+--parallel $$PARALLEL}

test-portal: build ## all journeys of the portal; every page, wide and narrow, light and dark, with axe, and by keyboard alone; screenshots in $(BUILD)/portal/shots
	@tools/setup --test
	@tools/portal $(BUILD) --check
	@cd portal && npm ci --no-audit --no-fund >/dev/null
	@BUILD=$(abspath $(BUILD)) PORTAL_AXE=$(CURDIR)/portal/node_modules/axe-core/axe.min.js PYTHONPATH=$(CURDIR):$(CURDIR)/tests \
	/usr/bin/python3 -m pytest -q -m 'not long' -p no:cacheprovider tests/portal tests/journeys/test_portal*.py

test-portal-debian: build ## the portal built by Debian's own Node and npm, in a fresh Debian (debootstrap, root)
	@tools/setup --deb
	@tools/setup --test
	@BUILD=$(abspath $(BUILD)) PYTHONPATH=$(CURDIR):$(CURDIR)/tests /usr/bin/python3 -m pytest -q -p no:cacheprovider tests/portal/test_debian_node.py

test-mcp: build ## acequia mcp over standard input and over HTTP with the protocol's own client (PyPI's mcp)
	@tools/setup --test
	@ACEQUIA_BUILD=$(abspath $(BUILD)) BUILD=$(abspath $(BUILD)) PYTHONPATH=$(CURDIR):$(CURDIR)/tests /usr/bin/python3 -m pytest -q -p no:cacheprovider tests/journeys/test_mcp.py

test-vm: build ## limits on emulated machines: cgroup v2, v1, both, none (MODES="v2 v1" for some)
	@tools/setup --vm
	@python3 tests/vm/run.py --build $(BUILD) $(MODES)

deb: ## the Debian package, in dist/
	@tools/setup --deb
	@tools/deb dist

test-deb: ## in fresh Debians (debootstrap, root): the package installed, upgraded, removed; ./run up from a clone
	@tools/setup --deb
	@PYTHONPATH=$(CURDIR):$(CURDIR)/tests /usr/bin/python3 -m pytest -q -p no:cacheprovider tests/packages

faults: build ## search for faults in virtual time (FOR=60 seconds), on new seeds; keeps count
	@$(BUILD)/sim/faults/acequia-faults --fresh --for $${FOR:-60} -j $$(nproc) --count .faults-runs

fuzz: ## every fuzz target for a while (SECONDS_EACH=30), with the number of inputs tried
	@tools/setup --test
	@tools/fuzz $${SECONDS_EACH:-30}

bench: build ## Acequia and Debian's Slurm side by side (ARGS="submit list lost" for some of it)
	@tools/bench $(BUILD) $(ARGS)

attack: build ## what another user feels while one user does what he should not (ARGS="--jobs 200000 cancel")
	@BUILD=$(BUILD) bench/attack $(ARGS)

install: setup ## install programs, portal, man pages, completions, systemd units into PREFIX
	@tools/build build-install --prefix=$(PREFIX) -Dwerror=false
	@tools/portal build-install
	@DESTDIR=$(DESTDIR) meson install -C build-install --no-rebuild --quiet
	@if [ -f build-install/portal/portal.pack ]; then \
	    install -D -m 644 build-install/portal/portal.pack "$(DESTDIR)$(PREFIX)/libexec/acequia/portal.pack"; fi
	@echo "Installed into $(DESTDIR)$(PREFIX); try: $(PREFIX)/bin/acequia up"

uninstall: ## remove what `make install` has put there
	@test -d build-install || { echo "Nothing was installed from here"; exit 1; }
	@prefix=$$(meson introspect build-install --buildoptions | python3 -c 'import json, sys; print([o["value"] for o in json.load(sys.stdin) if o["name"] == "prefix"][0])'); \
	DESTDIR=$(DESTDIR) ninja -C build-install uninstall >/dev/null; \
	share="$(DESTDIR)$$prefix/share"; rm -f "$(DESTDIR)$$prefix/libexec/acequia/portal.pack"; \
	rm -f "$$share"/man/man1/acequia.1 "$$share"/man/man1/acequia-*.1 "$$share"/man/man1/aq.1 "$$share"/man/man5/acequia.conf.5 \
	    "$$share"/bash-completion/completions/acequia "$$share"/bash-completion/completions/aq "$$share"/zsh/site-functions/_acequia \
	    "$$share"/fish/vendor_completions.d/acequia.fish; \
	echo "Removed from $(DESTDIR)$$prefix"

docs: build ## write the pages that are made from the program's tables
	@$(BUILD)/src/cli/acequia man --markdown > docs/commands.md
	@$(BUILD)/src/cli/acequia man --configuration > docs/configuration.md
	@$(BUILD)/src/acequiad/acequiad api-reference > docs/api.md
	@$(BUILD)/src/acequiad/acequiad openapi | python3 python/tools/types.py > python/acequia/types.py
	@sed -i '/^### The daemons/,$$d' docs/monitoring.md && $(BUILD)/src/metrics/metrics_show reference >> docs/monitoring.md

clean: ## remove what was built
	@rm -rf build build-asan build-install build-fuzz
