#!/usr/bin/env bash
# Independent checks of `make bench-ncache`, each with and without a flash, before three disks that take 8 ms per
# transfer:
# - pgbench's TPC-B-like transactions on PostgreSQL on ext4 on a logical disk.
# - fio over NBD, with nine in ten requests to a tenth of the disk.
# SECONDS_EACH (60) is the measured time of each. FLASHWISE names another program, POLICY another policy of the flash.
# Needs root, for nbdfuse, the loop device and the mount.
set -euo pipefail
cd "$(dirname "$0")/.."
seconds=${SECONDS_EACH:-60} ram=${RAM:-8MiB} flash=${FLASH:-64MiB} scale=${PGBENCH_SCALE:-10}
program=$(realpath "${FLASHWISE:-target/dist/flashwise}")
fetch() { DEBIAN_FRONTEND=noninteractive apt-get install -y -qq "$@" >/dev/null; }
command -v nbdfuse >/dev/null || fetch nbdfuse
command -v fio >/dev/null || fetch fio
postgres=$(ls -d /usr/lib/postgresql/*/bin 2>/dev/null | tail -1)
[ -n "$postgres" ] || { fetch postgresql; postgres=$(ls -d /usr/lib/postgresql/*/bin | tail -1); }
work=$(mktemp -d -p "${TMPDIR:-/var/tmp}")
chmod 755 "$work"
loop='' server='' fuse=''
clean() {
    [ ! -e "$work/mnt/pg/postmaster.pid" ] || as_postgres pg_ctl -D "$work/mnt/pg" -m immediate stop >/dev/null || true
    ! mountpoint -q "$work/mnt" || umount -l "$work/mnt"
    [ -z "$loop" ] || losetup -d "$loop" || true
    [ -z "$fuse" ] || { fusermount3 -uz "$work/fuse" || true; wait "$fuse" || true; }
    [ -z "$server" ] || { kill "$server" 2>/dev/null && wait "$server" || true; }
    loop='' server='' fuse=''
}
trap 'clean; rm -rf "$work"' EXIT
as_postgres() { runuser -u postgres -- "$postgres/$1" "${@:2}"; }

serve() { # delay, lines of the cache
    cat >"$work/tank.toml" <<END
listen = "nbd+unix:///?socket=nbd.sock"
state-directory = "."
[api]
listen = "unix:api.sock"
[[pool]]
name = "tank"
disks = ["a.img", "b.img", "c.img"]
ram = "$ram"
direct-io = false
backend-delay = "$1"
$2
END
    rm -f "$work/nbd.sock" "$work/api.sock"
    (cd "$work" && exec "$program" serve tank.toml 2>server.log) &
    server=$!
    until [ -S "$work/nbd.sock" ] && [ -S "$work/api.sock" ]; do sleep 0.1; kill -0 $server; done
}
stop() { kill $server; wait $server; server=''; }
mount_disk() {
    mkdir -p "$work/fuse" "$work/mnt"
    nbdfuse "$work/fuse" "nbd+unix:///db?socket=$work/nbd.sock" &
    fuse=$!
    until [ -e "$work/fuse/nbd" ]; do sleep 0.1; kill -0 $fuse; done
    loop=$(losetup --find --show --direct-io=on "$work/fuse/nbd")
    [ "$(blkid -o value -s TYPE "$loop" || true)" = ext4 ] || mkfs.ext4 -q -E lazy_itable_init=0,lazy_journal_init=0 "$loop"
    mount "$loop" "$work/mnt"
}
unmount_disk() {
    umount "$work/mnt"
    losetup -d "$loop"
    fusermount3 -u "$work/fuse"
    wait $fuse
    loop='' fuse=''
}

truncate -s 512M "$work/a.img" "$work/b.img" "$work/c.img"
(cd "$work" && "$program" pool create tank a.img b.img c.img >/dev/null)
flash_lines="flash = \"flash.img\"
flash-size = \"$flash\"
erase-unit = \"256KiB\"${POLICY:+
policy = \"$POLICY\"}"
# The database is created without delays.
serve 0s ''
"$program" disk create db --size 1GiB --striped --api "unix:$work/api.sock" >/dev/null
"$program" disk create raw --size 256MiB --striped --api "unix:$work/api.sock" >/dev/null
fio --name=fill --ioengine=nbd --uri="nbd+unix:///raw?socket=$work/nbd.sock" \
    --rw=write --bs=1m --size=256m >/dev/null
mount_disk
install -d -o postgres "$work/mnt/pg" "$work/run"
as_postgres initdb -D "$work/mnt/pg" -A trust >/dev/null
# The database's own buffer is small compared with its data, as on the paper's clients.
cat >>"$work/mnt/pg/postgresql.conf" <<END
listen_addresses = ''
unix_socket_directories = '$work/run'
shared_buffers = '4MB'
END
as_postgres pg_ctl -D "$work/mnt/pg" -w -l "$work/run/log" start >/dev/null
as_postgres pgbench -h "$work/run" -i -q -s "$scale" postgres >/dev/null 2>&1
as_postgres pg_ctl -D "$work/mnt/pg" -w stop >/dev/null
unmount_disk
stop

pgbench_tps() { # lines of the cache
    serve 8ms "$1"
    mount_disk
    echo 3 >/proc/sys/vm/drop_caches || true
    as_postgres pg_ctl -D "$work/mnt/pg" -w -t 300 -l "$work/run/log" start >/dev/null
    as_postgres pgbench -h "$work/run" -n -c 16 -j 2 -T "$seconds" postgres >/dev/null 2>&1
    tps=$(as_postgres pgbench -h "$work/run" -n -c 16 -j 2 -T "$seconds" postgres 2>/dev/null | sed -n 's/^tps = \([0-9.]*\).*/\1/p')
    as_postgres pg_ctl -D "$work/mnt/pg" -w -t 300 -m fast stop >/dev/null
    unmount_disk
    stop
}
fio_iops() { # lines of the cache
    serve 8ms "$1"
    fio --name=load --ioengine=nbd --uri="nbd+unix:///raw?socket=$work/nbd.sock" --rw=randrw --rwmixread=50 --bs=8k --iodepth=16 \
        --random_distribution=zoned:90/10:10/90 --time_based --ramp_time="$seconds" --runtime="$seconds" --output-format=json \
        >"$work/fio.json"
    tps=$(python3 -c 'import json, sys; text = open(sys.argv[1]).read(); job = json.loads(text[text.index("{"):])["jobs"][0]; print(job["read"]["iops"] + job["write"]["iops"])' "$work/fio.json")
    stop
}
# RAM only comes first: the pool cannot give up a flash once it has one.
declare -A tps_of
for cache in '' "$flash_lines"; do
    for check in pgbench_tps fio_iops; do
        $check "$cache"
        tps_of[$check${cache:+ flash}]=$tps
    done
done
row() { # title, function
    awk -v what="$1" -v a="${tps_of[$2]}" -v b="${tps_of[$2 flash]}" 'BEGIN { printf "| %s | %.0f | %.0f | %.2f |\n", what, a, b, b / a }'
}
echo "| check | RAM only | with flash of $flash | acceleration |"
echo "| --- | --- | --- | --- |"
row "pgbench on ext4, transactions/s" pgbench_tps
row "fio, 8 KiB, half of them writes, requests/s" fio_iops
