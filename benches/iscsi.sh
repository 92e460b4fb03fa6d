#!/usr/bin/env bash
# Requests per second and processor time per request of `flashwise serve` over iSCSI, compared with its NBD and with
# tgt.
# One run over loopback has random reads and writes of 4 KiB at three depths, and sequential ones of 128 KiB. Figures
# are medians of RUNS (5) alternating runs of SECONDS_EACH (1) each. Then it measures the cost of a pool's map per
# request.
# FLASHWISE names another program, and PROFILE the profile to build (dist). Needs root, for tgt.
set -euo pipefail
cd "$(dirname "$0")/.."
runs=${RUNS:-5} seconds=${SECONDS_EACH:-1} profile=${PROFILE:-dist} port=${PORT:-13260}
folder=target/$profile
[ "$profile" != dev ] || folder=target/debug
cargo build --profile "$profile" --quiet -p flashwise-server --example nbd_load --example iscsi_load
cargo build --profile "$profile" --quiet -p flashwise-storage --example map_cost
[ -n "${FLASHWISE:-}" ] || cargo build --profile "$profile" --quiet -p flashwise --bin flashwise
program=${FLASHWISE:-$folder/flashwise}
command -v tgtd >/dev/null || DEBIAN_FRONTEND=noninteractive apt-get install -y -qq tgt >/dev/null
work=$(mktemp -d -p "${TMPDIR:-/var/tmp}")
theirs=''
# tgtd does not exit while it has targets.
trap '[ -z "$theirs" ] || kill -KILL "$theirs"; kill $(jobs -p) 2>/dev/null || true; wait; rm -rf "$work"' EXIT

# flashwise has all of it in RAM, as tgt has all of its file in the page cache.
truncate -s 64M "$work/ours.img" "$work/theirs.img"
cat >"$work/ours.toml" <<END
listen = ["nbd://127.0.0.1:$((port + 1))", "iscsi://127.0.0.1:$port"]
state-directory = "$work"
[api]
listen = "off"
[[volume]]
name = "v"
backend = "$work/ours.img"
ram = "256MiB"
write-mode = "write-back"
sequential-bypass = 0
direct-io = false
END
"$program" serve "$work/ours.toml" 2>"$work/ours.log" &
ours=$!
theirs_name=iqn.2026-11.org.example:v
tgtd -f -C 77 --iscsi "portal=127.0.0.1:$((port + 2))" 2>"$work/theirs.log" &
theirs=$!
tgt() { tgtadm -C 77 --lld iscsi "$@"; }
for _ in $(seq 100); do
    if tgt --op show --mode target >/dev/null 2>&1; then break; fi
    sleep 0.1
done
tgt --op new --mode target --tid 1 -T "$theirs_name"
tgt --op new --mode logicalunit --tid 1 --lun 1 -b "$work/theirs.img"
tgt --op bind --mode target --tid 1 -I ALL

load() { # server, depth, kind, bytes
    case $1 in
    iscsi) "$folder/examples/iscsi_load" "127.0.0.1:$port" iqn.2026-11.org.flashwise:v 0 "$2" "$3" "$seconds" $ours "$4" ;;
    tgt) "$folder/examples/iscsi_load" "127.0.0.1:$((port + 2))" "$theirs_name" 1 "$2" "$3" "$seconds" $theirs "$4" ;;
    nbd) "$folder/examples/nbd_load" "nbd://127.0.0.1:$((port + 1))/v" "$2" "$3" "$seconds" $ours "$4" ;;
    esac
}
for _ in $(seq 100); do
    if load iscsi 1 read 4096 >/dev/null 2>&1; then break; fi
    sleep 0.1
done
for who in iscsi tgt; do load $who 16 fill 65536 >/dev/null; done
load iscsi 16 read-on 65536 >/dev/null

declare -A results
median() { # server, field of the lines
    awk -v field="$2" '{ for (i = 1; i < NF; i++) if ($i == field) print $(i + 1) }' <<<"${results[$1]}" | sort -g |
        awk '{ v[NR] = $1 } END { print v[int((NR + 1) / 2)] }'
}
ratio() { awk -v a="$1" -v b="$2" 'BEGIN { if (b > 0) printf "%.2f", a / b; else printf "-" }'; }
echo "| requests | KiB | depth | iSCSI/s | tgt/s | NBD/s | iSCSI CPU us | tgt CPU us | NBD CPU us | relative to tgt | relative to NBD |"
echo "| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |"
for point in read:4096:1 read:4096:16 read:4096:64 write:4096:1 write:4096:16 write:4096:64 \
    read-on:131072:1 read-on:131072:16 write-on:131072:1 write-on:131072:16; do
    IFS=: read -r kind bytes depth <<<"$point"
    for who in iscsi tgt nbd; do results[$who]=''; done
    for ((run = 0; run < runs; run++)); do
        for who in iscsi tgt nbd; do results[$who]+="$(load $who "$depth" "$kind" "$bytes")"$'\n'; done
    done
    line="| $kind | $((bytes / 1024)) | $depth |"
    for who in iscsi tgt nbd; do line+=" $(median $who iops) |"; done
    for who in iscsi tgt nbd; do line+=" $(median $who server_cpu_us_per_io) |"; done
    own=$(median iscsi server_cpu_us_per_io)
    echo "$line $(ratio "$own" "$(median tgt server_cpu_us_per_io)") | $(ratio "$own" "$(median nbd server_cpu_us_per_io)") |"
done
echo
"$folder/examples/map_cost"
echo
uptime
