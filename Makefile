# The nightly run of the power-failure tests: FLASHWISE_CRASH_POINTS and FLASHWISE_SEED choose how many and which.
FLASHWISE_CRASH_POINTS ?= 1000000
FLASHWISE_SEED ?= 1
# With it, damaged pages of so many caches, devices that fail in part in so many worlds, and random faults in so many.
FLASHWISE_SALVAGE_SEEDS ?= 100
FLASHWISE_DAMAGE_SEEDS ?= 50
FLASHWISE_MENDING_SEEDS ?= 1500
FLASHWISE_FAULT_SEEDS ?= 3000

# The nightly run of the tests with kill -9, about one a second.
FLASHWISE_KILLS ?= 1000

# The nightly run of file systems at every flush; as root.
FLASHWISE_FLUSH_POINTS ?= 5000

# Lost flashes with each write-back-order, for each file system; a fifth of them for each database.
FLASHWISE_ORDERED ?= 100

# Power cuts of a real kernel in QEMU for each layout, half of them with ext4 and half with xfs.
FLASHWISE_CUTS ?= 30

# Two hours of a lightly loaded server, at full speed.
FLASHWISE_SOAK_SECONDS ?= 600

# Each fuzz target runs for so long; all of them, or those that are named. Needs a nightly toolchain.
FLASHWISE_FUZZ_SECONDS ?= 60
FLASHWISE_FUZZ_TARGETS ?=

.DEFAULT_GOAL := help
# Every target here is a command, none a file.
.PHONY: $(shell sed -n 's/^\([a-z-]*\):.*/\1/p' $(firstword $(MAKEFILE_LIST)))

help: ## This list
	@awk -F ':.*## ' '/^##@ / { printf "\n%s\n", substr($$0, 5) } /^[a-z-]+:.*## / { printf "  make %-16s %s\n", $$1, $$2 }' $(firstword $(MAKEFILE_LIST))

##@ Every day

# What `make build` makes and `make install` installs.
PROGRAM ?= $(or $(CARGO_TARGET_DIR),target)/dist/flashwise
build: ## Build the program, optimised, as target/dist/flashwise
	cargo build --profile dist --locked -p flashwise

test: ## Run all tests
	./run-tests

check: ## Check formatting, lints, licences and API documentation
	.ci/run check

# As packages do it: program, manual pages, completions, unit, documentation, and a configuration, if there is none. Root needs no cargo for it.
PREFIX ?= /usr/local
install: ## Install what `make build` made, below DESTDIR and PREFIX (/usr/local)
	test -x $(PROGRAM) || $(MAKE) build
	packaging/install $(PROGRAM) "$(DESTDIR)" "$(PREFIX)"

uninstall: ## Remove what was installed, except /etc/flashwise
	cd "$(DESTDIR)$(PREFIX)" && rm -rf bin/flashwise lib/systemd/system/flashwise.service lib/sysusers.d/flashwise.conf \
		share/man/man1/flashwise.1.gz share/man/man1/flashwise-*.1.gz share/man/man5/flashwise.toml.5.gz \
		share/man/man8/flashwise-serve.8.gz share/doc/flashwise share/bash-completion/completions/flashwise \
		share/fish/vendor_completions.d/flashwise.fish share/zsh/site-functions/_flashwise

# The pages of docs/SUMMARY.md, in target/book. Links to files outside of docs become text there.
MDBOOK ?= $(or $(shell command -v mdbook),target/tools/bin/mdbook)
book: ## Build the documentation as a site in target/book
	test -x $(MDBOOK) || cargo install mdbook --version 0.5.4 --locked --quiet --debug --no-default-features --features search --root target/tools
	$(MDBOOK) build docs
	sed -i -E 's,<a href="\.\./[^"]*">(([^<]|<code>[^<]*</code>)*)</a>,\1,g' target/book/*.html
	sed -i -E 's,<a href="\.\./\.\./[^"]*">(([^<]|<code>[^<]*</code>)*)</a>,\1,g' target/book/*/*.html

clean: ## Remove all that was built
	cargo clean

##@ More tests

# A policy and an admission rule that are a file and a row each, a figure and a setting that are a row each, planted by a feature: builds all
# of the project once more, in a folder of its own.
planted: ## A policy, a rule, a figure and a setting as CONTRIBUTING.md adds them
	CARGO_TARGET_DIR=$(or $(CARGO_TARGET_DIR),target/planted) cargo test --workspace --features planted --test cli planted::

# The program and the library that serves with each feature left out by itself, with none, and with what is not there by default.
features: ## Lints and tests with each feature left out
	for features in http,parquet,serve http,serve,tls parquet,serve,tls parquet s3 serve ""; do \
		cargo clippy -p flashwise --locked --no-default-features --features "$$features" -- -D warnings || exit 1; done
	for features in http tls ""; do \
		cargo clippy -p flashwise-server --locked --no-default-features --features "$$features" -- -D warnings || exit 1; done
	cargo test -p flashwise-server --locked --no-default-features --lib built_without
	cargo test -p flashwise-sim --locked --lib built_without

crash: ## Simulated power failures: FLASHWISE_CRASH_POINTS, FLASHWISE_SEED
	FLASHWISE_CRASH_POINTS=$(FLASHWISE_CRASH_POINTS) FLASHWISE_SEED=$(FLASHWISE_SEED) \
	cargo test -p flashwise-storage --test storage -- --nocapture crash::flushed_data crash::wlfc::data_flushed crash::starts::starts_and_ends
	FLASHWISE_SALVAGE_SEEDS=$(FLASHWISE_SALVAGE_SEEDS) FLASHWISE_DAMAGE_SEEDS=$(FLASHWISE_DAMAGE_SEEDS) \
	cargo test -p flashwise-storage --test storage -- --nocapture crash::salvage:: crash::damage::
	FLASHWISE_SEEDS=$(FLASHWISE_MENDING_SEEDS) cargo test -p flashwise-storage --test storage -- --nocapture mending::nothing_acknowledged
	FLASHWISE_FAULT_SEEDS=$(FLASHWISE_FAULT_SEEDS) FLASHWISE_SEED=$(FLASHWISE_SEED) \
	cargo test -p flashwise-storage --test storage -- --nocapture crash::faults::random_faults

# With write-back in order, the backend is a state of the volume whenever the flash is lost. About 2,000 losses a second.
# Then worlds of a pool, with 200 losses each.
FLASHWISE_POOLS ?= 1000
lost-flash: ## Losses of the flash, with write-back in order: FLASHWISE_CRASH_POINTS, FLASHWISE_POOLS, FLASHWISE_SEED
	FLASHWISE_CRASH_POINTS=$(FLASHWISE_CRASH_POINTS) FLASHWISE_SEED=$(FLASHWISE_SEED) \
	cargo test -p flashwise-storage --test storage -- --nocapture crash::in_order_ crash::scripts::in_order_ crash::an_order_
	FLASHWISE_WORLDS=$(FLASHWISE_POOLS) FLASHWISE_SEED=$(FLASHWISE_SEED) \
	cargo test -p flashwise-storage --test storage -- --nocapture pool::in_order::

# Volumes and pools on devices that fail for a while: 10,000 worlds of each of five kinds.
FLASHWISE_WORLDS ?= 50000
failing-devices: ## Volumes and pools on failing devices: FLASHWISE_WORLDS, FLASHWISE_SEED
	FLASHWISE_WORLDS=$(FLASHWISE_WORLDS) FLASHWISE_SEED=$(FLASHWISE_SEED) \
	cargo test -p flashwise-storage --test storage -- --nocapture failing::

# Random volumes in virtual time: settings, devices, clients, and a backend that hangs or becomes slower or faster. A scenario takes 2 s of CPU time.
FLASHWISE_TIMES ?= 2000
time: ## How long requests wait, in virtual time: FLASHWISE_TIMES, FLASHWISE_SEED
	FLASHWISE_TIMES=$(FLASHWISE_TIMES) FLASHWISE_SEED=$(FLASHWISE_SEED) \
	cargo test -p flashwise-storage --test storage -- --nocapture times::random

kill: ## Kill a server with SIGKILL, FLASHWISE_KILLS times
	FLASHWISE_KILLS=$(FLASHWISE_KILLS) FLASHWISE_SEED=$(FLASHWISE_SEED) \
	cargo test --release -p flashwise --test cli -- --nocapture kill::flushed_data kill::data_flushed

file-systems: ## File systems at every flush; as root
	FLASHWISE_FLUSH_POINTS=$(FLASHWISE_FLUSH_POINTS) FLASHWISE_SEED=$(FLASHWISE_SEED) \
	cargo test -p flashwise-server --features device-tests --test server -- --nocapture recovers_at_every_flush

ordered: ## Lost flashes under file systems, databases and pools, FLASHWISE_ORDERED; as root
	FLASHWISE_ORDERED=$(FLASHWISE_ORDERED) FLASHWISE_SEED=$(FLASHWISE_SEED) tests/ordered/run

power-cuts: ## Power cuts of a Linux kernel in QEMU
	FLASHWISE_CUTS=$(FLASHWISE_CUTS) FLASHWISE_SEED=$(FLASHWISE_SEED) tests/power-cuts/run

# Caches on zoned devices of a real kernel, in a guest: the log and WLFC, ext4 and xfs.
zoned: ## Zoned devices of a Linux kernel in QEMU
	tests/zoned/run

# Write streams on a device with flexible data placement, in a guest: what the device counts is what the server counts.
fdp: ## Flexible data placement in QEMU
	tests/fdp/run

# Linux's own iSCSI initiator, in a guest: file systems while sessions are lost and the server is restarted, and reservations of two initiators.
open-iscsi: ## The iSCSI initiator of Linux in QEMU
	tests/open-iscsi/run

soak: ## Two hours of a lightly loaded server, at full speed
	FLASHWISE_SOAK_SECONDS=$(FLASHWISE_SOAK_SECONDS) FLASHWISE_SEED=$(FLASHWISE_SEED) \
	cargo test -p flashwise --test cli soak:: -- --nocapture

fuzz: ## Fuzz FLASHWISE_FUZZ_TARGETS for FLASHWISE_FUZZ_SECONDS each; needs nightly Rust
	FLASHWISE_FUZZ_SECONDS=$(FLASHWISE_FUZZ_SECONDS) fuzz/run $(FLASHWISE_FUZZ_TARGETS)

##@ Benchmarks

bench-serve: ## Requests per second and processor time beside nbdkit
	benches/serve.sh

# LRU and LARC before a slow disk, as in Figures 10 and 11 of the paper on LARC: a table, and docs/larc.svg. Takes a quarter of an hour.
bench-larc: ## The figures of the paper on LARC
	cargo build --profile dist -p flashwise -p flashwise-benches --bins
	target/dist/bench_larc --svg docs/larc.svg

# A pool of three slow disks with RAM alone and with an SSD, as in Figures 4 and 5 of the paper on NCache: tables, and docs/ncache.svg; then
# pgbench on ext4 and fio, as root. Takes ten minutes.
bench-ncache: ## The figures of the paper on NCache; as root
	cargo build --profile dist -p flashwise -p flashwise-benches --bin flashwise --bin bench_ncache
	target/dist/bench_ncache --svg docs/ncache.svg
	benches/ncache.sh

# iSCSI beside tgt and NBD over loopback, and the cost of a pool's map: processor time of a request.
bench-iscsi: ## iSCSI beside tgt and NBD
	benches/iscsi.sh

# A minute of writers before a slow disk in virtual time: docs/pacing.svg, from the table that a test writes.
bench-pacing: ## The picture of pacing
	mkdir -p target
	FLASHWISE_TIME_CSV=$(CURDIR)/target/pacing.csv \
	cargo test -p flashwise-storage --test storage times::scenarios::writers_do_not_stop_when
	cargo run -p flashwise-benches --bin bench_pacing target/pacing.csv docs/pacing.svg

# WLFC, WLFC_c and B_like, as in Figures 5 to 8 of the paper on WLFC, in simulation: tables, and docs/wlfc.svg. Takes some minutes.
bench-wlfc: ## The figures of the paper on WLFC
	cargo build --profile dist -p flashwise-benches --bin bench_wlfc
	target/dist/bench_wlfc --svg docs/wlfc.svg

# What bcache, dm-cache, dm-writecache and flashwise write on flash and backend, in a guest of QEMU; the trace of a database only with
# FLASHWISE_TRACES. Takes an hour or more.
bench-kernel: ## Writes beside bcache, dm-cache and dm-writecache, in QEMU
	benches/kernel/run

# bcache in a guest of QEMU beside the model of it, --layout b-like: what both write on flash for the same requests, as in docs/wlfc.md.
bench-b-like: ## bcache beside the model of it, in QEMU
	benches/kernel/b-like

# Latency over lifetime by admission rule over the traces in FLASHWISE_TRACES: admission.html and admission.csv.
admission-table: ## Latency over lifetime by admission rule, over FLASHWISE_TRACES
	cargo build --profile dist -p flashwise
	benches/admission.sh admission.html > admission.csv

# Writes and waits of caches that write back in order, beside those that do not, as in benches/README.md.
order-table: ## The cost of the order of write-back, over FLASHWISE_TRACES
	cargo build --profile dist -p flashwise
	benches/order.sh

# The same over generated weeks like those of MSR-Cambridge, as in docs/results/admission.md. Takes some minutes.
weeks-table: ## The same over generated weeks
	cargo build --profile dist -p flashwise
	benches/weeks.sh

# How far estimates from samples of 1 % are off, by 100 seeds over the traces in FLASHWISE_TRACES, as in docs/results/sampling.md. Takes some
# minutes.
FLASHWISE_SEEDS ?= 100
sampling-table: ## Errors of estimates from samples, over FLASHWISE_TRACES
	cargo build --release -p flashwise -p flashwise-benches --bin flashwise --bin bench_sampling
	benches/sampling.sh --seeds $(FLASHWISE_SEEDS) --rates 1%,10%

##@ Releases

# What is handed out, in target/artefacts: static tarballs, .deb, .rpm, OCI image. DIST_ARCHITECTURES says for which: x86_64 aarch64.
DIST_ARCHITECTURES ?= x86_64 aarch64
dist: book ## Build tarballs, .deb, .rpm, OCI image and wheel for DIST_ARCHITECTURES
	packaging/dist $(DIST_ARCHITECTURES)

# Installs each of them in a clean root, runs it, and removes it; as root.
test-dist: ## Install, run and remove each of them in a clean root; as root
	packaging/test

# `packaging/dist` sets `dist`, which builds a faster package in three times the processor time.
WHEEL_PROFILE ?= release

# The Python package, in target/wheels: for every Python from 3.10 on, and for systems whose C library is as old as glibc 2.17, which zig links for.
wheel: ## Build the Python package in target/wheels
	test -x target/maturin/bin/maturin || { python3 -m venv target/maturin && target/maturin/bin/pip install --quiet maturin==1.16.0 -r packaging/requirements.txt; }
	packaging/notices.py flashwise-python "$$(uname -m)-unknown-linux-gnu" >crates/python/THIRD-PARTY-NOTICES
	PATH="$(CURDIR)/target/maturin/bin:$$PATH" maturin build --profile $(WHEEL_PROFILE) --locked --zig --compatibility manylinux2014 \
		--manifest-path crates/python/Cargo.toml --out target/wheels

# The package against the command line, on processes and Dask, its documents as written; in the .venv that ./run-tests makes.
test-wheel: ## Test the Python package
	.venv/bin/pip install --quiet --disable-pip-version-check -r tests/wheel/requirements.txt
	cargo test --workspace --features wheel-tests --test cli wheel::
