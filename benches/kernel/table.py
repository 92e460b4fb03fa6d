#!/usr/bin/env python3
"""Helpers of benches/kernel/run: writes a trace for fio, and the table of the guests' results."""

import csv
import itertools
import json
import sys
from random import Random

WORKLOADS = {
    "random": "random 4 KiB writes",
    "zipf": "Zipf, 70 % reads",
    "fsync": "random writes, a flush for every 8",
    "sequential": "sequential, written and read",
    "trace": "a database",
}

UNITS = {"k": 2**10, "M": 2**20, "G": 2**30}


def iolog(requests_max):
    """Prints the first requests of a trace or a recording as an iolog of fio, for a device named DEVICE."""
    print("fio version 2 iolog\nDEVICE add\nDEVICE open")
    for row in itertools.islice(csv.DictReader(sys.stdin), requests_max):
        operation = {"r": "read", "w": "write", "f": "sync"}[row["op"][0].lower()]
        print("DEVICE", operation, row.get("offset_bytes") or row["offset"], row.get("length_bytes") or row["length"])
    print("DEVICE close")


def recording(name):
    """Prints a recording of requests to 64 MiB. In NAME-flushed, a flush follows each write."""
    workload, _, flushed = name.partition("-")
    random = Random(1)
    blocks, requests = 16384, {"random": 12000, "mixed": 8000}[workload]
    print("time_us,volume,op,offset,length,flags")
    for number in range(requests):
        operation, block, length = "write", random.randrange(blocks), 1
        if workload == "mixed":
            # Six of ten write, 4 to 16 KiB; eight of ten go to a tenth of the blocks.
            operation = "write" if random.random() < 0.6 else "read"
            length = random.choice((1, 1, 2, 4))
            block = min(block // 10 if random.random() < 0.8 else block, blocks - length)
        print(f"{number * 1000},v,{operation},{block * 4096},{length * 4096},")
        if flushed and operation == "write":
            print(f"{number * 1000 + 500},v,flush,0,0,")


def b_like(told, simulated, names):
    """Prints a row for each recording: bcache's writes to flash in the guest, and its model's, by cause, in bytes per byte of the user."""
    print("| workload | requests | written by users, MiB | bcache: flash written per byte | of that, data | nodes of the B+ tree | journal and others "
          "| b-like: flash written per byte | of that, data | copies | journal | b-like against bcache |")
    print("|" + " --- |" * 12)
    for name in names:
        lines = [line.split() for line in open(f"{told}/bcache-writeback.recorded-{name}")]
        done = next(line for line in lines if line[0] == "done")
        disks = [int(number) for number in done[7:]]
        counters = {line[3]: float(line[4][:-1]) * UNITS[line[4][-1]] for line in lines if line[0] == "counter"}
        model = json.load(open(f"{simulated}/{name}.json"))
        model = model[0] if isinstance(model, list) else model
        user = model["writes"] * 4096
        flash, tree, metadata = (disks[9] - disks[1]) * 512, counters["btree_written"], counters["metadata_written"]
        blocks = lambda *keys: sum(model["flash_" + key + "_blocks"] for key in keys) * 4096
        of_model = model["flash_bytes_written"]
        # Its metadata includes everything except data, nodes too.
        shares = [flash, flash - metadata, tree, metadata - tree, of_model, blocks("client", "admission"),
                  blocks("copy_forward"), blocks("metadata")]
        print("|", " | ".join([name.replace("-", ", "), str(model["requests"]), f"{user / 2**20:.1f}", *(f"{share / user:.2f}" for share in shares),
                               f"{100 * (of_model / flash - 1):+.1f} %"]), "|")


def per(bytes_done, user_bytes):
    return f"{bytes_done / user_bytes:.2f}" if user_bytes else "-"


def table():
    """Prints a row for each workload and cache."""
    rows = {}
    for line in sys.stdin:
        if not line.startswith("done "):
            continue
        _, cache, workload, *numbers = line.split()
        if workload not in WORKLOADS:
            # Recorded requests are in the table that compares them with the model.
            continue
        user_read, user_written, hits, reads, *disks = map(int, numbers)
        # Sectors read and written, writes and flushes of flash and backend: before, after, and once everything is written back.
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
    command, *arguments = sys.argv[1:]
    if command == "iolog":
        iolog(int(arguments[0]) if arguments else None)
    elif command == "recording":
        recording(arguments[0])
    elif command == "b-like":
        b_like(arguments[0], arguments[1], arguments[2:])
    else:
        table()
