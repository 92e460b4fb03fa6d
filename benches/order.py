#!/usr/bin/env python3
"""A table in Markdown of the rows that `order.sh` simulates: standard input, as CSV."""

import csv
import re
import sys

COLUMNS = [
    "trace",
    "order",
    "blocks to the backend",
    "of none",
    "still dirty",
    "flushes of the backend",
    "blocks to flash",
    "of none",
    "hits",
]
runs = {}
for row in csv.DictReader(sys.stdin):
    words = dict(word.split("=", 1) for word in row["job"].split())
    order = ", ".join([row["write_back_order"] or "none", *(f"{key}={words[key]}" for key in words if key == "dirty-high")])
    runs.setdefault(re.sub(r".*/|\..*", "", row["trace"]), {})[order] = {
        "backend": int(row["destaged_blocks"]) + int(row["backend_written_blocks"]),
        "dirty": int(row["dirty_blocks"]),
        "flushes": int(row["backend_flushes"]),
        "flash": int(row["flash_writes_blocks"]),
        "hits": 100 * float(row["hit_ratio"]),
    }
for cells in [COLUMNS, ["---"] * len(COLUMNS)]:
    print(f"| {' | '.join(cells)} |")
for name, orders in runs.items():
    for order, run in orders.items():
        times = {key: f"{run[key] / max(orders['none'][key], 1):.2f}" for key in ["backend", "flash"]}
        cells = [name, order, f"{run['backend']:,}", times["backend"], f"{run['dirty']:,}", f"{run['flushes']:,}"]
        cells += [f"{run['flash']:,}", times["flash"], f"{run['hits']:.1f} %"]
        print(f"| {' | '.join(cells)} |")
