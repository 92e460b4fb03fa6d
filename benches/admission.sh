#!/bin/sh
# Latency over lifetime by admission rule and trace, compared with LRU without one (Moon, Reddy, MSST 2016, Figure 10).
# Writes a report, and the rows as CSV. The traces are in FLASHWISE_TRACES; some are converted first, because their
# columns must be named.
set -eu
traces=${FLASHWISE_TRACES:?names the directory of traces}
report=${1:?a file for the report}
flashwise=${FLASHWISE:-target/dist/flashwise}
converted=$(mktemp -d)
trap 'rm -rf "$converted"' EXIT

# Trace, name and format.
convert() {
    "$flashwise" trace convert "$traces/$1" "$converted/$2" --format "$3" >&2
}
ssdsim="csv:delimiter=space,time=0,volume=1,offset=2,length=3,op=4,read=1,offset-unit=512"
convert msps/DTRS-300s.ssdsim.ts_us.zst dtrs.arrow "$ssdsim,length-unit=512"
convert umass/Financial1-head50000.flashsim.zst financial1.arrow "$ssdsim,length-unit=4096,time-unit=ms"
convert nexus5/Installing_log181.txt.zst nexus5.arrow \
    "csv:delimiter=space,offset=0,length=2,op=3,time=4,time-unit=s,offset-unit=512,read=0/4"
convert opencas/rocksdb-ycsbA-load-0702.csv.zst rocksdb-load.arrow "csv:read=1,write=2"

# The paper's parameters: a cache of 5 % of a storage twice as large as the trace's blocks, its target and its sampling
# rate.
"$flashwise" simulate "$traces/captured/homes.csv.zst" "$traces/captured/netsfs.csv.zst" "$traces/captured/rocksdb-rww.csv.zst" \
    "$traces/captured/tpcc-pg.csv.zst" "$traces/captured/webserver.csv.zst" "$traces/cloudphysics/cloudPhysicsIO.vscsi.zst" \
    "$converted/dtrs.arrow" "$converted/financial1.arrow" "$traces/blktrace/java-f2fs.blkparse.zst" "$converted/nexus5.arrow" \
    "$traces/benchmarks/postmark-62k.disksim.zst" "$converted/rocksdb-load.arrow" "$traces/tencent/tencent-cut50k-490.csv.zst" \
    --size 10% --policy lru --admission none --admission adaptive:kind=probability,size,hotness,writes=filter,admit,timeframe=1%,target=400us \
    --admission auto:timeframe=1% --html "$report" --csv
