#!/usr/bin/env bash
# Requests per second and processor time per request of `flashwise serve`, compared with nbdkit over a Unix socket.
# One run has random requests at several queue depths and sizes, over one or more connections. Figures are medians of
# RUNS (5) alternating runs of SECONDS_EACH (1) each. ROWS, a regular expression, selects rows by their first column.
# FLASHWISE names another program, and BEFORE an older one to run as well.
set -euo pipefail
cd "$(dirname "$0")/.."
runs=${RUNS:-5} seconds=${SECONDS_EACH:-1}
cargo build --profile dist --quiet -p flashwise-server --example nbd_load
[ -n "${FLASHWISE:-}" ] || cargo build --profile dist --quiet -p flashwise --bin flashwise
program=${FLASHWISE:-target/dist/flashwise}
load=target/dist/examples/nbd_load
# On a disk, because a file system in memory has no direct I/O.
work=$(mktemp -d -p "${TMPDIR:-/var/tmp}")
trap 'kill $(jobs -p) 2>/dev/null || true; wait; rm -rf "$work"' EXIT

declare -A pids uris results
begin() { # name, command: starts it, fills it, and reads until RAM is full
    local name=$1
    shift
    "$@" 2>"$work/$name.log" &
    pids[$name]=$!
    uris[$name]="nbd+unix:///?socket=$work/$name.sock"
    until [ -S "$work/$name.sock" ]; do sleep 0.1; done
    "$load" "${uris[$name]}" 16 fill 0 >/dev/null
    "$load" "${uris[$name]}" 16 read 2 >/dev/null
}
# A volume of 64 MiB, with RAM for all of it or none, with or without direct I/O.
serve() { # name, program, RAM, mode, true for direct I/O
    local name=$1
    truncate -s 64M "$work/$name.img"
    mkdir "$work/$name.state"
    cat >"$work/$name.toml" <<END
listen = "nbd+unix:///?socket=$work/$name.sock"
state-directory = "$work/$name.state"
[api]
listen = "off"
[[volume]]
name = "v"
backend = "$work/$name.img"
flash = "$work/$name.cache"
flash-size = "256MiB"
ram = "$3"
policy = "lru"
write-mode = "$4"
sequential-bypass = 0
direct-io = $5
END
    begin "$name" "$2" serve "$work/$name.toml"
}
kit() { # name, plugin, arguments
    local name=$1 plugin=$2
    shift 2
    if [ "$plugin" = memory ]; then
        begin "$name" nbdkit --foreground --unix "$work/$name.sock" memory 64M
    else
        truncate -s 64M "$work/$name.img"
        # shellcheck disable=SC2086 # Each word is an option.
        begin "$name" nbdkit --foreground --unix "$work/$name.sock" "$@" "$plugin" "$work/$name.img" ${options[$name]:-}
    fi
}
declare -A options=([cache]="cache=writeback" [cold]="fadvise=random cache=none")

start() { # name
    [ -z "${pids[$1]:-}" ] || return 0
    case $1 in
    memory) kit memory memory ;;
    file) kit file file ;;
    cold) kit cold file ;;
    cache) kit cache file --filter=cache ;;
    *-ram) serve "$1" "$2" 256MiB write-back false ;;
    *-flash) serve "$1" "$2" 0B write-back false ;;
    *-through) serve "$1" "$2" 0B write-through false ;;
    *-direct) serve "$1" "$2" 0B write-back true ;;
    esac
}
one() { # name, depth, kind, bytes, connections
    local line
    line=$("$load" "${uris[$1]}" "$2" "$3" "$seconds" "${pids[$1]}" "$4" "$5")
    results[$1]+="$line"$'\n'
}
median() { # name, field of the lines
    awk -v field="$2" '{ for (i = 1; i < NF; i++) if ($i == field) print $(i + 1) }' <<<"${results[$1]}" | sort -g |
        awk '{ v[NR] = $1 } END { print v[int((NR + 1) / 2)] }'
}
ratio() { awk -v a="$1" -v b="$2" 'BEGIN { if (b > 0) printf "%.2f", a / b; else printf "-" }'; }
compare() { # title, kind, ours, theirs, then points of bytes:depth:connections
    local what=$1 kind=$2 kit=$4 names=("now-$3" "$4") bytes depth connections
    shift 2
    [[ $what =~ ${ROWS:-.} ]] || return 0
    if [ -n "${BEFORE:-}" ]; then
        names+=("before-$1")
        start "before-$1" "$BEFORE"
    fi
    start "now-$1" "$program"
    start "$kit" ''
    for point in "${@:3}"; do
        IFS=: read -r bytes depth connections <<<"$point"
        for name in "${names[@]}"; do results[$name]=''; done
        for ((run = 0; run < runs; run++)); do
            for name in "${names[@]}"; do one "$name" "$depth" "$kind" "$bytes" "$connections"; done
        done
        local ours theirs ours_cpu theirs_cpu before=''
        ours=$(median "now-$1" iops) theirs=$(median "$kit" iops)
        ours_cpu=$(median "now-$1" server_cpu_us_per_io) theirs_cpu=$(median "$kit" server_cpu_us_per_io)
        if [ -n "${BEFORE:-}" ]; then
            before=" $(median "before-$1" iops) | $(median "before-$1" server_cpu_us_per_io) |"
        fi
        echo "| $what | $((bytes / 1024)) | $depth | $connections | $ours | $theirs | $(ratio "$ours" "$theirs") | $ours_cpu | $theirs_cpu |" \
            "$(ratio "$ours_cpu" "$theirs_cpu") |$before"
    done
}
echo "| requests | KiB | depth | connections | flashwise/s | nbdkit/s | ratio | flashwise CPU us | nbdkit CPU us | ratio |${BEFORE:+ before/s | before CPU us |}"
echo "| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |${BEFORE:+ --- | --- |}"
small="4096:1:1 4096:16:1 4096:64:1" large="131072:1:1 131072:16:1"
# shellcheck disable=SC2086 # Each word is a point.
{
    compare 'reads that hit RAM, nbdkit memory' read ram memory $small
    compare 'writes to RAM, nbdkit memory' write ram memory $small
    compare 'reads that hit flash, nbdkit file' read flash file $small 4096:16:2 4096:16:4 $large
    compare 'reads that hit flash, past the page cache, nbdkit file' read direct cold $small 4096:16:2 4096:16:4 $large
    compare 'writes to flash, nbdkit file' write flash file $small $large
    compare 'write-through writes, nbdkit file' write through file $small
    compare 'write-back writes, nbdkit cache filter' write ram cache $small
}
echo
uptime
