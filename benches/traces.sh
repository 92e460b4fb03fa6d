# The traces in FLASHWISE_TRACES on which tables are made: $all, with a program named by $flashwise. Some are converted
# first, because their columns must be named.
traces=${FLASHWISE_TRACES:?names the directory of traces}
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
all="$traces/captured/homes.csv.zst $traces/captured/netsfs.csv.zst $traces/captured/rocksdb-rww.csv.zst
    $traces/captured/tpcc-pg.csv.zst $traces/captured/webserver.csv.zst $traces/cloudphysics/cloudPhysicsIO.vscsi.zst
    $converted/dtrs.arrow $converted/financial1.arrow $traces/blktrace/java-f2fs.blkparse.zst $converted/nexus5.arrow
    $traces/benchmarks/postmark-62k.disksim.zst $converted/rocksdb-load.arrow $traces/tencent/tencent-cut50k-490.csv.zst"
