#!/usr/bin/env python3
"""Reads and writes what benches/kernel/run works with: a trace for fio, and the table of what the guests told."""

import csv
import sys

WORKLOADS = {
    "random": "random 4 KiB writes",
    "zipf": "Zipf, 70 % reads",
    "fsync": "random writes, a flush for every 8",
    "sequential": "sequential, written and read",
    "trace": "a database",
}


def iolog(requests_max):
    """The first requests of a trace as an iolog of fio, for a device that is called DEVICE."""
    print("fio version 2 iolog\nDEVICE add\nDEVICE open")
    for number, row in enumerate(csv.DictReader(sys.stdin)):
        if number == requests_max:
            break
        operation = "read" if row["op"].lower().startswith("r") else "write"
        print("DEVICE", operation, row["offset_bytes"], row["length_bytes"])
    print("DEVICE close")


def per(bytes_done, user_bytes):
    return f"{bytes_done / user_bytes:.2f}" if user_bytes else "-"


def table():
    """One row for each workload and cache."""
    rows = {}
    for line in sys.stdin:
        if not line.startswith("done "):
            continue
        _, cache, workload, *numbers = line.split()
        user_read, user_written, hits, reads, *disks = map(int, numbers)
        # Sectors read and written, writes and flushes of the flash and of the backend: before, after, and when all was written back.
        before, after, drained = disks[0:8], disks[8:16], disks[16:24]
        kilobytes = lambda then, field: (then[field] - before[field]) / 2
        rows[workload, cache] = [
            per(kilobytes(after, 1), user_written),
            str(after[3] - before[3]),
            per(kilobytes(after, 0), user_read),
            per(kilobytes(drained, 5), user_written),
            per(kilobytes(after, 4), user_read),
            f"{100 * hits / reads:.1f} %" if user_read and reads else "-",
        ]
    print("| workload | cache | flash written per byte written | flash flushes | flash read per byte read "
          "| backend written per byte written | backend read per byte read | hits |")
    print("|" + " --- |" * 8)
    order = list(WORKLOADS)
    for (workload, cache), row in sorted(rows.items(), key=lambda item: (order.index(item[0][0]), item[0][1])):
        name = cache.replace("_", "-").replace("-", " ", 1) if cache.startswith(("bcache", "flashwise")) else cache.replace("_", "-")
        print("|", " | ".join([WORKLOADS[workload], name, *row]), "|")


if __name__ == "__main__":
    if sys.argv[1] == "iolog":
        iolog(int(sys.argv[2]))
    else:
        table()
