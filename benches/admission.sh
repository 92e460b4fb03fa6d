#!/bin/sh
# Latency over lifetime by admission rule and trace, compared with LRU without one (Moon, Reddy, MSST 2016, Figure 10).
# Writes a report, and the rows as CSV. The traces are in FLASHWISE_TRACES.
set -eu
report=${1:?a file for the report}
. benches/traces.sh

# The paper's parameters: a cache of 5 % of a storage twice as large as the trace's blocks, its target and its sampling
# rate. The list of traces is split at spaces.
# shellcheck disable=SC2086
"$flashwise" simulate $all \
    --size 10% --policy lru --admission none --admission adaptive:kind=probability,size,hotness,writes=filter,admit,timeframe=1%,target=400us \
    --admission auto:timeframe=1% --html "$report" --csv
