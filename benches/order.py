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
    return [f"{run['mean']:.3g} ms", f"{run['p99']:.4g} ms", f"{run['rate']:,.0f}", f"{run['rate'] / none['rate']:.2f}"]


counted, timed = {}, {}
for row in csv.DictReader(sys.stdin):
    words = dict(word.split("=", 1) for word in row["job"].split())
    order = ", ".join([row["write_back_order"] or "none", *(f"{key}={words[key]}" for key in words if key == "dirty-high")])
    is_timed = bool(row["requests_per_s"])
    runs = (timed if is_timed else counted).setdefault(re.sub(r".*/|\..*", "", row["trace"]), {})
    if is_timed:
        runs[order] = {
            "mean": float(row["latency_mean_us"]) / 1000,
            "p99": float(row["latency_p99_us"]) / 1000,
            "rate": float(row["requests_per_s"]),
        }
    else:
        runs[order] = {
            "backend": int(row["destaged_blocks"]) + int(row["backend_written_blocks"]),
            "dirty": int(row["dirty_blocks"]),
            "flushes": int(row["backend_flushes"]),
            "flash": int(row["flash_writes_blocks"]),
            "hits": 100 * float(row["hit_ratio"]),
        }
of_blocks = ["blocks to the backend", "of none", "still dirty", "flushes of the backend", "blocks to flash", "of none", "hits"]
table(of_blocks, counted, blocks)
print()
table(["mean latency", "p99", "requests a second", "of none"], timed, waits)
