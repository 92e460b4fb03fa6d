#!/bin/sh
# The cost of the order of write-back, over the traces in FLASHWISE_TRACES, as two tables in Markdown. The first counts
# blocks, with a backend that takes no time, so a group of the journal never has several epochs. The second has 16
# requests at once before one disk of 8 ms, so that dirty blocks are at their limit.
set -eu
. benches/traces.sh

printf '%s\n' 'title = "A disk of 8 ms"' 'source = "chosen"' 'capacity-gb = 6000' 'endurance-cycles = "unlimited"' \
    'read-latency-ms = 8' 'write-latency-ms = 8' 'channels = 1' 'transfer-mb-per-s = 200' >"$converted/disk.toml"
cache="policy=larc size=10% layout=log ram=1% erase-unit=256KiB"
devices="cache-device=p4500 storage-device=$converted/disk.toml arrivals=closed:depth=16"
for order in none barriers journal; do
    [ $order = journal ] || echo "$cache write-back-order=$order"
    echo "$cache write-back-order=$order $devices"
done >"$converted/jobs"
# The list of traces is split at spaces.
# shellcheck disable=SC2086
"$flashwise" simulate $all --job "$converted/jobs" --csv | benches/order.py
