#!/bin/sh
# Errors of estimates from samples, over the traces in FLASHWISE_TRACES, as a table in Markdown. Arguments go to
# bench_sampling. ARC's traces have blocks of 512 bytes.
set -eu
traces=${FLASHWISE_TRACES:?names the directory of traces}
bench=${BENCH_SAMPLING:-target/release/bench_sampling}
flashwise=${FLASHWISE:-target/release/flashwise}
converted=$(mktemp -d)
trap 'rm -rf "$converted"' EXIT
for name in OLTP P3 P6; do
    "$flashwise" trace convert "$traces/arc/$name.lis.zst" "$converted/$name.arrow" --block-size 512 >&2
done
ssdsim="csv:delimiter=space,time=0,volume=1,offset=2,length=3,op=4,read=1,offset-unit=512"
"$bench" "$@" "$converted/OLTP.arrow" "$converted/P3.arrow" "$converted/P6.arrow" "$traces/captured/homes.csv.zst" \
    "$traces/captured/netsfs.csv.zst" "$traces/captured/rocksdb-rww.csv.zst" "$traces/captured/tpcc-pg.csv.zst" \
    "$traces/captured/webserver.csv.zst" "$traces/cloudphysics/cloudPhysicsIO.vscsi.zst" \
    "$traces/msps/DTRS-300s.ssdsim.ts_us.zst=$ssdsim,length-unit=512" \
    "$traces/umass/Financial1-head50000.flashsim.zst=$ssdsim,length-unit=4096,time-unit=ms" \
    "$traces/tencent/tencent-cut50k-490.csv.zst"
