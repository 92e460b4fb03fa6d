#!/usr/bin/env python3
"""Two tables in Markdown of the rows that `order.sh` simulates: standard input, as CSV."""

import csv
import re
import sys


def table(columns, runs, cells):
    """Prints the cells of each trace and order, which get the run and that without an order."""
    for row in [["trace", "order", *columns], ["---"] * (2 + len(columns))]:
        print(f"| {' | '.join(row)} |")
    for name, orders in runs.items():
        for order, run in orders.items():
            print(f"| {' | '.join([name, order, *cells(run, orders['none'])])} |")


def blocks(run, none):
    times = {key: f"{run[key] / max(none[key], 1):.2f}" for key in ["backend", "flash"]}
    counts = [f"{run['backend']:,}", times["backend"], f"{run['dirty']:,}", f"{run['flushes']:,}"]
    return [*counts, f"{run['flash']:,}", times["flash"], f"{run['hits']:.1f} %"]


def waits(run, none):
    times = {key: f"{run[key] / none[key]:.2f}" for key in ["mean", "rate", "backend", "flash"]}
    cells = [f"{run['mean']:.3g} ms", times["mean"], f"{run['p99']:.4g} ms", f"{run['rate']:,.0f}", times["rate"]]
    return [*cells, times["backend"], times["flash"]]


counted, timed = {}, {}
for row in csv.DictReader(sys.stdin):
    order = row["write_back_order"] or "none"
    is_timed = bool(row["requests_per_s"])
    runs = (timed if is_timed else counted).setdefault(re.sub(r".*/|\..*", "", row["trace"]), {})
    runs[order] = {
        "backend": int(row["destaged_blocks"]) + int(row["backend_written_blocks"]),
        "dirty": int(row["dirty_blocks"]),
        "flushes": int(row["backend_flushes"]),
        "flash": int(row["flash_writes_blocks"]),
        "hits": 100 * float(row["hit_ratio"]),
    }
    if is_timed:
        times = {"mean": row["latency_mean_us"], "p99": row["latency_p99_us"]}
        runs[order] |= {key: float(us) / 1000 for key, us in times.items()} | {"rate": float(row["requests_per_s"])}
of_blocks = ["blocks to the backend", "of none", "still dirty", "flushes of the backend", "blocks to flash", "of none", "hits"]
table(of_blocks, counted, blocks)
print()
of_waits = ["mean latency", "of none", "p99", "requests a second", "of none", "backend of none", "flash of none"]
table(of_waits, timed, waits)
