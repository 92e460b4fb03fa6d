#!/bin/sh
# Latency over lifetime by admission rule over generated weeks like those of MSR-Cambridge, compared with LRU without a
# rule. Runs start with the first access, and after a warm-up of 20 %. Hotness has the first two of its thresholds.
# Makes the table of docs/results/admission.md.
set -eu
flashwise=${FLASHWISE:-target/dist/flashwise}
weeks=$(mktemp -d)
trap 'rm -rf "$weeks"' EXIT
rules=adaptive:kind=probability,size,hotness,timeframe=1%,target=400us
for server in hm mds prn proj prxy rsrch src1 src2 stg ts usr wdev web; do
    week=$weeks/msr-$server.arrow
    "$flashwise" -q trace generate "$week" --like "msr-$server" --accesses 500000
    "$flashwise" -q simulate "$week" --policy lru --size 10% --admission none --admission "$rules" --json >"$weeks/$server.json"
    "$flashwise" -q simulate "$week" --policy lru --size 10% --admission none --admission "$rules" --warmup 20% --json >"$weeks/$server.warm.json"
    "$flashwise" -q simulate "$week" --policy lru --size 10% --admission none --admission "adaptive:kind=hotness,timeframe=1%,target=400us,shadows=2" \
        --json >"$weeks/$server.two.json"
done
python3 - "$weeks" <<'PYTHON'
import json, math, pathlib, sys

folder = pathlib.Path(sys.argv[1])
columns = []
print("| week | reads | read hits of LRU | `probability` | `size` | `hotness` | warmed up: `probability` | `size` | `hotness` | `hotness`, 1 and 2 |")
print("| --- " * 10 + "|")
for path in sorted(folder.glob("*.two.json")):
    server = path.name.split(".")[0]
    gains = []
    for name in [f"{server}.json", f"{server}.warm.json", f"{server}.two.json"]:
        lru, *rules = json.loads((folder / name).read_text())
        gains += [lru["latency_over_lifetime"] / rule["latency_over_lifetime"] for rule in rules]
        if name == f"{server}.json":
            alone = lru
    columns.append(gains)
    about = [f"msr-{server}", f"{alone['reads'] / alone['accesses']:.0%}", f"{alone['read_hit_ratio']:.1%}"]
    print("| " + " | ".join(about + [f"{gain:.2f}" for gain in gains]) + " |")
means = {
    "harmonic mean": lambda of: len(of) / sum(1 / gain for gain in of),
    "geometric mean": lambda of: math.exp(sum(map(math.log, of)) / len(of)),
    "mean": lambda of: sum(of) / len(of),
}
for name, mean in means.items():
    print(f"| {name} | | | " + " | ".join(f"{mean(of):.2f}" for of in zip(*columns)) + " |")
PYTHON
