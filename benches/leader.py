#!/usr/bin/env python3
"""Compares `auto` with a leader: an ideal chooser that knows the exact results of every candidate so far on the whole cache, and that switches
without cost.

    benches/leader.py TRACE [SIZE ...]

Each candidate runs separately, in epochs. For each epoch, the leader uses the candidate with the least latency over lifetime so far. No choice from
the past can avoid the leader's cost above the best candidate. The cost of `auto` above the leader has two reasons: it uses samples, and after a switch
its cache has the contents of another policy.
"""

import json
import os
import subprocess
import sys

CANDIDATES = ["lru", "larc", "larc:writes=admit", "2q", "s3-fifo"]
FLASHWISE = os.environ.get("FLASHWISE", "target/dist/flashwise")
EPOCHS = 340


def rows(*options):
    command = [FLASHWISE, "-q", "simulate", *options, "--json"]
    return json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout)


def parts(row):
    """Returns the latency of all accesses, the wear of cache and storage, the accesses and the seconds of each epoch."""
    return [
        (epoch["latency_mean_us"] * epoch["accesses"], epoch["cache_wear_rate"] * epoch["seconds"],
         epoch["storage_wear_rate"] * epoch["seconds"], epoch["accesses"], epoch["seconds"])
        for epoch in row["epochs"]
    ]


def cost(parts):
    """Returns the latency over lifetime, up to a constant factor."""
    latency, cache, storage, accesses, seconds = (sum(of) for of in zip(*parts))
    return latency / accesses * max(cache, storage) / seconds


def main():
    trace, sizes = sys.argv[1], sys.argv[2:] or ["5%", "10%"]
    for size in sizes:
        accesses = rows(trace, "--policy", "lru", "--size", size)[0]["accesses"]
        common = [trace, "--size", size, "--epoch", str(max(1, accesses // EPOCHS))]
        policies = [word for candidate in CANDIDATES for word in ("--policy", candidate)]
        runs = {row["policy"]: parts(row) for row in rows(*common, *policies, "--admission", "none")}
        auto = parts(rows(*common, "--policy", "lru", "--admission", "auto:timeframe=1%")[0])
        best = min(cost(run) for run in runs.values())
        worst = max(cost(run) for run in runs.values())
        leader, names = [], []
        for epoch in range(len(auto)):
            ahead = min(CANDIDATES, key=lambda name: cost(runs[name][:epoch])) if epoch else CANDIDATES[0]
            leader.append(runs[ahead][epoch])
            names.append(ahead)
        print(f"{trace}, {size}")
        for name, run in [*runs.items(), ("leader", leader), ("auto", auto)]:
            print(f"  {name:20} {cost(run) / best:6.2f} of the best, {(cost(run) - best) / (worst - best):6.1%} of the spread")
        for epoch in range(1, len(names)):
            if names[epoch] != names[epoch - 1]:
                done = sum(part[3] for part in auto[:epoch]) / accesses
                at = sum(part[4] for part in auto[:epoch])
                print(f"  the lead goes to {names[epoch]} after {done:.0%} of the accesses, {at:,.1f} s")


if __name__ == "__main__":
    main()
