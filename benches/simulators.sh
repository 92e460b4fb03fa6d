#!/usr/bin/env bash
# Miss ratios and processor time of `flashwise simulate` beside libCacheSim, over the same accesses: each block access of a trace (the bundled one
# unless it is named), at 1 %, 10 % and 50 % of its blocks.
# usage: LIBCACHESIM=CHECKOUT benches/simulators.sh [TRACE]
# LIBCACHESIM is a checkout of libCacheSim, which is built there if it was not. FLASHWISE names a program other than the one built here.
set -euo pipefail
trace=$(realpath "${1:-$(dirname "$0")/../traces/netsfs.csv.zst}")
cd "$(dirname "$0")/.."
[ -n "${LIBCACHESIM:-}" ] || {
    echo 'benches/simulators.sh: LIBCACHESIM is not set, expected a checkout of libCacheSim' >&2
    exit 2
}
if [ ! -x "$LIBCACHESIM/_build/bin/cachesim" ]; then
    cmake -S "$LIBCACHESIM" -B "$LIBCACHESIM/_build" -DCMAKE_BUILD_TYPE=Release -DENABLE_TESTS=OFF >/dev/null
    cmake --build "$LIBCACHESIM/_build" --target cachesim >/dev/null
fi
other=$(realpath "$LIBCACHESIM/_build/bin/cachesim")
program=$(realpath --canonicalize-missing "${FLASHWISE:-target/release/flashwise}")
[ -n "${FLASHWISE:-}" ] || cargo build --release --quiet -p flashwise --bin flashwise
work=$(mktemp -d -p "${TMPDIR:-/var/tmp}")
trap 'rm -rf "$work"' EXIT

# Both read the same: libCacheSim as its oracleGeneral, a record for each block access without sizes and next uses; flashwise the normalised trace.
"$program" --quiet trace convert "$trace" "$work/trace.arrow" >/dev/null
"$program" --quiet trace export "$work/trace.arrow" "$work/trace.csv" >/dev/null
python3 - "$work/trace.csv" "$work/trace.oracleGeneral" <<'PYTHON'
import csv, struct, sys
with open(sys.argv[1], newline="") as rows, open(sys.argv[2], "wb") as out:
    numbers, begin = {}, None
    for row in csv.DictReader(rows):
        time = int(row["time_us"]) // 1_000_000
        begin = time if begin is None else begin
        first, count = int(row["offset_bytes"]) // 4096, int(row["length_bytes"]) // 4096
        for block in range(first, first + count):
            number = numbers.setdefault((row["volume"], block), len(numbers))
            out.write(struct.pack("<IQIq", max(time - begin, 0), number, 1, -2))
PYTHON
blocks=$("$program" --quiet trace info "$work/trace.arrow" --json | python3 -c 'import json, sys; found = json.load(sys.stdin); print((found[0] if isinstance(found, list) else found)["unique_blocks"])')

# flashwise's name of a policy, and libCacheSim's.
policies=(lru=lru clock=clock arc=arc 2q=twoq lfu=lfu sieve=sieve s3-fifo=s3fifo lirs=lirs w-tinylfu=wtinyLFU lecar=lecar cacheus=cacheus)
seconds() { # command: its processor time in seconds; what it prints goes to $work/out
    local TIMEFORMAT='%3U'
    # libCacheSim writes its results into a folder where it is run.
    cd "$work"
    { time "$@" >"$work/out" 2>"$work/err"; } 2>&1
}
echo "libCacheSim $(git -C "$LIBCACHESIM" log -1 --format='%h of %cs' 2>/dev/null || echo 'of unknown version'), $("$program" --version), $(date +%F), $(sed -n 's/^model name.*: //p' /proc/cpuinfo | head -1)"
echo
echo '| policy | blocks | misses, flashwise | misses, libCacheSim | s, flashwise | s, libCacheSim |'
echo '| --- | --- | --- | --- | --- | --- |'
for pair in "${policies[@]}"; do
    own=${pair%=*} theirs=${pair##*=}
    for share in 1 10 50; do
        size=$((blocks * share / 100))
        s_own=$(seconds "$program" --quiet simulate "$work/trace.arrow" --policy "$own" --size $size --csv --threads 1)
        misses=$(python3 -c 'import csv, sys; row = next(csv.DictReader(open(sys.argv[1]))); print("%.4f" % (1 - float(row["hit_ratio"])))' "$work/out")
        s_theirs=$(seconds "$other" "$work/trace.oracleGeneral" oracleGeneral "$theirs" $size --ignore-obj-size 1 --num-thread 1) || s_theirs=-
        found=$(grep -oE 'miss ratio [0-9.]+' "$work/out" "$work/err" | head -1 | grep -oE '[0-9.]+$') || found=-
        echo "| ${own%%:*} | $size | $misses | $found | $s_own | $s_theirs |"
    done
done
