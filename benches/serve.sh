#!/usr/bin/env bash
# Requests per second and processor time per request of `flashwise serve` beside nbdkit, over a Unix socket, in one run: random
# 4 KiB requests at queue depth 1, 16 and 64; medians of RUNS (5) alternating runs of SECONDS (1) each.
set -euo pipefail
cd "$(dirname "$0")/.."
runs=${RUNS:-5} seconds=${SECONDS_EACH:-1}
cargo build --release --quiet -p flashwise -p flashwise-server --bin flashwise --example nbd_load
load=target/release/examples/nbd_load
work=$(mktemp -d)
trap 'kill $(jobs -p) 2>/dev/null; wait; rm -rf "$work"' EXIT

# A volume of 64 MiB: with enough RAM for all of it, or with none.
truncate -s 64M "$work/ram.img" "$work/flash.img" "$work/nbdkit.img"
start() { # name, RAM
    cat >"$work/$1.toml" <<END
listen = "nbd+unix:///?socket=$work/$1.sock"
[api]
listen = "off"
[[volume]]
name = "v"
backend = "$work/$1.img"
flash = "$work/$1.cache"
flash-size = "256MiB"
ram = "$2"
policy = "lru"
sequential-bypass = 0
direct-io = false
END
    target/release/flashwise serve "$work/$1.toml" 2>"$work/$1.log" &
    pids[$1]=$!
    uris[$1]="nbd+unix:///?socket=$work/$1.sock"
}
kit() { # name, arguments
    local name=$1
    shift
    nbdkit --foreground --unix "$work/$name.sock" "$@" &
    pids[$name]=$!
    uris[$name]="nbd+unix:///?socket=$work/$name.sock"
}
declare -A pids uris
start ram 256MiB
start flash 0B
kit memory memory 64M
kit file file "$work/nbdkit.img"
kit cache --filter=cache file "$work/nbdkit.img" cache=writeback
for name in "${!pids[@]}"; do
    until [ -S "$work/$name.sock" ]; do sleep 0.1; done
    # Everything is written, then read until what fits RAM is there.
    "$load" "${uris[$name]}" 16 fill 0 >/dev/null
    "$load" "${uris[$name]}" 16 read 2 >/dev/null
done

declare -A results
one() { # name, depth, kind
    local line
    line=$("$load" "${uris[$1]}" "$2" "$3" "$seconds" "${pids[$1]}")
    results[$1 $2 $3]+="$line"$'\n'
}
median() { # field of the lines
    awk -v field="$1" '{ for (i = 1; i < NF; i++) if ($i == field) print $(i + 1) }' | sort -g | awk '{ v[NR] = $1 } END { print v[int((NR + 1) / 2)] }'
}
compare() { # what, kind, ours, theirs
    for depth in 1 16 64; do
        for ((run = 0; run < runs; run++)); do
            one "$3" "$depth" "$2"
            one "$4" "$depth" "$2"
        done
        local ours=${results[$3 $depth $2]} theirs=${results[$4 $depth $2]}
        printf '| %s | %s | %s | %s | %s | %s | %s |\n' "$1" "$depth" \
            "$(median iops <<<"$ours")" "$(median iops <<<"$theirs")" \
            "$(awk -v a="$(median iops <<<"$ours")" -v b="$(median iops <<<"$theirs")" 'BEGIN { printf "%.2f", a / b }')" \
            "$(median server_cpu_us_per_io <<<"$ours")" "$(median server_cpu_us_per_io <<<"$theirs")"
        results[$3 $depth $2]='' results[$4 $depth $2]=''
    done
}
echo '| requests | depth | flashwise/s | nbdkit/s | ratio | flashwise CPU us | nbdkit CPU us |'
echo '| --- | --- | --- | --- | --- | --- | --- |'
compare 'reads that hit RAM, nbdkit memory' read ram memory
compare 'writes to RAM, nbdkit memory' write ram memory
compare 'reads that hit flash, nbdkit file' read flash file
compare 'writes to flash, nbdkit file' write flash file
compare 'write-back writes, nbdkit cache filter' write ram cache
echo
uptime
