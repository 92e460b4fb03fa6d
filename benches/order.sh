#!/bin/sh
# The cost of the order of write-back, over the traces in FLASHWISE_TRACES, as a table in Markdown.
set -eu
. benches/traces.sh

for order in none barriers "barriers dirty-high=0%"; do
    echo "policy=larc size=10% layout=log ram=1% erase-unit=256KiB write-back-order=$order"
done >"$converted/jobs"
# The list of traces is split at spaces.
# shellcheck disable=SC2086
"$flashwise" simulate $all --job "$converted/jobs" --csv | benches/order.py
