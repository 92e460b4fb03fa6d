#!/usr/bin/env bash
# Miss ratios and processor time of `flashwise simulate`, compared with Caffeine's simulator and libCacheSim.
# All use the same accesses: each block access of a trace (by default the bundled one), at 1 %, 10 % and 50 % of its
# blocks.
# usage: benches/simulators.sh [TRACE]
# Caffeine's simulator comes from the Maven registry, libCacheSim from PyPI, and Java from apt-get if it is missing.
# FLASHWISE names another program.
set -euo pipefail
trace=$(realpath "${1:-$(dirname "$0")/../traces/netsfs.csv.zst}")
cd "$(dirname "$0")/.."
if ! command -v mvn >/dev/null || ! command -v java >/dev/null; then
    echo 'benches/simulators.sh: installing maven and default-jdk-headless with apt-get' >&2
    as_root=()
    [ "$(id -u)" = 0 ] || as_root=(sudo)
    "${as_root[@]}" apt-get update -qq
    DEBIAN_FRONTEND=noninteractive "${as_root[@]}" apt-get install -y -qq maven default-jdk-headless >/dev/null
fi

# The last version whose classes run on Java 11. Its dependency for JAXB is on a registry that no longer exists, and
# nothing here uses it.
caffeine_version=3.2.0 caffeine=$PWD/target/caffeine
if [ ! -f "$caffeine/simulator-$caffeine_version.jar" ]; then
    mkdir -p "$caffeine"
    cat >"$caffeine/pom.xml" <<XML
<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion><groupId>flashwise</groupId><artifactId>simulators</artifactId><version>1</version>
  <dependencies><dependency>
    <groupId>com.github.ben-manes.caffeine</groupId><artifactId>simulator</artifactId><version>$caffeine_version</version>
    <exclusions><exclusion><groupId>org.glassfish.jaxb</groupId><artifactId>*</artifactId></exclusion></exclusions>
  </dependency></dependencies>
</project>
XML
    mvn -q -B -f "$caffeine/pom.xml" dependency:copy-dependencies -DoutputDirectory="$caffeine" >&2
fi
libcachesim_version=0.3.5 python=target/libcachesim/bin/python
$python -c 'import libcachesim' 2>/dev/null || {
    python3 -m venv target/libcachesim
    $python -m pip install --quiet --disable-pip-version-check "libcachesim==$libcachesim_version" >&2
}
python=$PWD/$python
program=$(realpath --canonicalize-missing "${FLASHWISE:-target/release/flashwise}")
[ -n "${FLASHWISE:-}" ] || cargo build --release --quiet -p flashwise --bin flashwise
work=$(mktemp -d -p "${TMPDIR:-/var/tmp}")
trap 'rm -rf "$work"' EXIT

# All read the same accesses. libCacheSim reads oracleGeneral, a record per block access without sizes and next uses.
# Caffeine's simulator reads block numbers, one a line. flashwise reads the normalised trace.
"$program" --quiet trace convert "$trace" "$work/trace.arrow" >/dev/null
"$program" --quiet trace export "$work/trace.arrow" "$work/trace.csv" >/dev/null
python3 - "$work/trace.csv" "$work/trace.oracleGeneral" "$work/trace.lirs" <<'PYTHON'
import csv, struct, sys
with open(sys.argv[1], newline="") as rows, open(sys.argv[2], "wb") as out, open(sys.argv[3], "w") as lines:
    numbers, begin = {}, None
    for row in csv.DictReader(rows):
        time = int(row["time_us"]) // 1_000_000
        begin = time if begin is None else begin
        first, count = int(row["offset_bytes"]) // 4096, int(row["length_bytes"]) // 4096
        for block in range(first, first + count):
            number = numbers.setdefault((row["volume"], block), len(numbers))
            out.write(struct.pack("<IQIq", max(time - begin, 0), number, 1, -2))
            lines.write(f"{number}\n")
PYTHON
blocks=$("$program" --quiet trace info "$work/trace.arrow" --json | python3 -c 'import json, sys; found = json.load(sys.stdin); print((found[0] if isinstance(found, list) else found)["unique_blocks"])')

# flashwise's name of a policy, libCacheSim's, and Caffeine's; - if it has none. Caffeine's random admissions against
# attacks on its hashes are off. Its LIRS remembers as many blocks as flashwise's.
policies=(
    'lru LRU linked.Lru' 'clock Clock linked.Clock' 'arc ARC adaptive.Arc' 'car - adaptive.Car' '2q TwoQ two-queue.TwoQueue' 'lfu LFU linked.Lfu'
    'sieve Sieve linked.Sieve' 's3-fifo - two-queue.S3Fifo' 's3-fifo:variant=libcachesim S3FIFO -' 'lirs LIRS irr.Lirs' 'clock-pro ClockPro -'
    'clock-pro:ghosts=2 - irr.ClockPro'
    'w-tinylfu WTinyLFU sketch.WindowTinyLfu' 'w-tinylfu:climb=on - sketch.HillClimberWindowTinyLfu' 'lecar LeCaR -' 'cacheus Cacheus -'
    'fif - opt.Clairvoyant'
)
seconds() { # command: prints its processor time in seconds; its output goes to $work/out
    local TIMEFORMAT='%3U'
    { time "$@" >"$work/out" 2>"$work/err"; } 2>&1
}
caffeine_run() { # policy, blocks: its hits and accesses go to $work/caffeine.csv
    cat >"$work/caffeine.conf" <<CONF
caffeine.simulator {
  report { format = csv, output = "$work/caffeine.csv" }
  files.paths = [ "lirs:$work/trace.lirs" ]
  maximum-size = $2
  policies = [ $1 ]
  admission = [ Always ]
  tiny-lfu.jitter.enabled = false
  hill-climber-window-tiny-lfu.strategy = [ simple ]
  lirs.non-resident-multiplier = 2500
}
CONF
    seconds java -Dconfig.file="$work/caffeine.conf" -cp "$caffeine/*" com.github.benmanes.caffeine.cache.simulator.Simulator
}
libcachesim_run() { # policy, blocks: its miss ratio goes to $work/out
    seconds "$python" - "$1" "$2" "$work/trace.oracleGeneral" <<'PYTHON'
import sys, libcachesim
policy, blocks, path = sys.argv[1:]
reader = libcachesim.TraceReader(path, libcachesim.TraceType.ORACLE_GENERAL_TRACE, libcachesim.ReaderInitParam(ignore_obj_size=True))
print("%.4f" % getattr(libcachesim, policy)(int(blocks)).process_trace(reader)[0])
PYTHON
}
failed() { cat "$work/err" >&2; exit 1; }
echo "$("$program" --version), libCacheSim $libcachesim_version, Caffeine's simulator $caffeine_version, $(date +%F), $(sed -n 's/^model name.*: //p' /proc/cpuinfo | head -1)"
echo
echo '| policy | blocks | misses, flashwise | libCacheSim | Caffeine | s, flashwise | libCacheSim | Caffeine |'
echo '| --- | --- | --- | --- | --- | --- | --- | --- |'
for names in "${policies[@]}"; do
    read -r own theirs caffeines <<<"$names"
    for share in 1 10 50; do
        size=$((blocks * share / 100)) found=- s_theirs=- found_c=- s_c=-
        s_own=$(seconds "$program" --quiet simulate "$work/trace.arrow" --policy "$own" --size $size --csv --threads 1) || failed
        misses=$(python3 -c 'import csv, sys; row = next(csv.DictReader(open(sys.argv[1]))); print("%.4f" % (1 - float(row["hit_ratio"])))' "$work/out")
        if [ "$theirs" != - ]; then
            s_theirs=$(libcachesim_run "$theirs" $size) || failed
            found=$(tail -1 "$work/out")
        fi
        if [ "$caffeines" != - ]; then
            s_c=$(caffeine_run "$caffeines" $size) || failed
            found_c=$(python3 -c 'import csv, sys; row = next(csv.DictReader(open(sys.argv[1]))); print("%.4f" % (int(row["Misses"]) / int(row["Requests"])))' "$work/caffeine.csv")
        fi
        echo "| $own | $size | $misses | $found | $found_c | $s_own | $s_theirs | $s_c |"
    done
done
