# The nightly run of the power-failure tests: FLASHWISE_CRASH_POINTS and FLASHWISE_SEED choose how many and which.
FLASHWISE_CRASH_POINTS ?= 1000000
FLASHWISE_SEED ?= 1

.PHONY: crash
crash:
	FLASHWISE_CRASH_POINTS=$(FLASHWISE_CRASH_POINTS) FLASHWISE_SEED=$(FLASHWISE_SEED) \
	cargo test -p flashwise-server --test crash -- --nocapture what_was_flushed
