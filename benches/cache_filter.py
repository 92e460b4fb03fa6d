#!/usr/bin/python3
"""Compares the writes and reads below nbdkit's cache filter and flashwise for the same requests, as a table in Markdown.

usage: FLASHWISE=PROGRAM benches/cache_filter.py

The requests follow Zipf's law (exponent 1.1) over a volume of 256 MiB: 80 MiB in requests of 4 KiB, 70 % reads, 16 in flight, and a final flush. The
cache has 32 MiB. Both use a file in TMPDIR as the backend; nbdkit's filter stats counts its reads and writes. nbdkit's writes to its cache are the
kernel's count of its writes, less its writes to that file. Needs libnbd for the system's Python (python3-libnbd) and nbdkit: see run-tests.
"""

import bisect
import itertools
import json
import os
import random
import re
import subprocess
import sys
import tempfile
import time

import nbd

BLOCK, VOLUME, CACHE, ASKED = 4096, 256 << 20, 32 << 20, 80 << 20
UNITS = {"bytes": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30}


def requests():
    """Yields offsets, each with True for a read; the same in every run."""
    chance = random.Random(1)
    blocks = list(range(VOLUME // BLOCK))
    chance.shuffle(blocks)
    weights = list(itertools.accumulate(1 / (rank + 1) ** 1.1 for rank in range(len(blocks))))
    for _ in range(ASKED // BLOCK):
        yield blocks[bisect.bisect(weights, chance.random() * weights[-1])] * BLOCK, chance.random() < 0.7


def replay(socket):
    """Makes all requests; returns the client, and the bytes read and written."""
    client = nbd.NBD()
    client.connect_unix(socket)
    read = written = 0
    under_way = set()
    for offset, is_read in requests():
        while len(under_way) >= 16:
            client.poll(-1)
            under_way = {cookie for cookie in under_way if not client.aio_command_completed(cookie)}
        if is_read:
            under_way.add(client.aio_pread(nbd.Buffer(BLOCK), offset))
            read += BLOCK
        else:
            under_way.add(client.aio_pwrite(nbd.Buffer.from_bytearray(bytearray(os.urandom(BLOCK))), offset))
            written += BLOCK
    while under_way:
        client.poll(-1)
        under_way = {cookie for cookie in under_way if not client.aio_command_completed(cookie)}
    client.flush()
    return client, read, written


def started(command, socket, folder):
    with open(f"{folder}/log", "w") as log:
        server = subprocess.Popen(command, stderr=log, env={**os.environ, "TMPDIR": folder, "STATE_DIRECTORY": folder})
    while not os.path.exists(socket):
        if server.poll() is not None:
            sys.exit(f"{command[0]} ended: {open(f'{folder}/log').read()}")
        time.sleep(0.05)
    return server


def nbdkit(folder, mode, block):
    socket, stats = f"{folder}/socket", f"{folder}/stats"
    server = started(
        ["nbdkit", "--foreground", "--unix", socket, "--filter=cache", "--filter=stats", "file", f"{folder}/backend", f"cache={mode}",
         "cache-on-read=true", f"cache-max-size={CACHE}", f"cache-min-block-size={block}", f"statsfile={stats}"],
        socket, folder,
    )
    client, read, written = replay(socket)
    wrote = int(re.search(r"wchar: (\d+)", open(f"/proc/{server.pid}/io").read())[1])
    client.shutdown()
    server.terminate()
    server.wait()
    found = {}
    for line in open(stats):
        if told := re.match(r"(read|write): \d+ ops, [\d.]+ s, ([\d.]+) (\w+)", line):
            found[told[1]] = float(told[2]) * UNITS[told[3]]
    below_read, below_written = found.get("read", 0), found.get("write", 0)
    return (wrote - below_written) / written, below_written / written, below_read / read


def flashwise(folder, policy, mode):
    program = os.environ.get("FLASHWISE", "target/dist/flashwise")
    socket, api = f"{folder}/socket", f"{folder}/api"
    # Space for the cached blocks, and for the log's reserve.
    server = started(
        [program, "serve", "--backend", f"{folder}/backend", "--flash", f"{folder}/flash", "--flash-size", str(CACHE), "--ram", "0", "--policy", policy,
         "--write-mode", mode, "--listen", f"nbd+unix:///?socket={socket}", "--api", f"unix:{api}"],
        socket, folder,
    )
    client, read, written = replay(socket)
    subprocess.run([program, "flush", "--api", f"unix:{api}"], check=True, stdout=subprocess.DEVNULL)
    [volume] = json.loads(subprocess.run([program, "status", "--json", "--api", f"unix:{api}"], check=True, capture_output=True).stdout)["volumes"]
    client.shutdown()
    server.terminate()
    server.wait()
    # nbdkit writes everything back at a flush, flashwise later.
    back = (volume["backend_written_blocks"] + volume["destaged_blocks"] + volume["dirty_blocks"]) * BLOCK
    return volume["flash_bytes_written"] / written, back / written, volume["backend_read_blocks"] * BLOCK / read


print("| cache | flash written per byte written | backend written per byte written | backend read per byte read |")
print("| --- | --- | --- | --- |")
for name, measure, options in [
    ("nbdkit's cache filter, write-back", nbdkit, ["writeback", "64K"]),
    ("nbdkit's cache filter, write-back, blocks of 4 KiB", nbdkit, ["writeback", "4K"]),
    ("nbdkit's cache filter, write-through", nbdkit, ["writethrough", "64K"]),
    ("nbdkit's cache filter, write-through, blocks of 4 KiB", nbdkit, ["writethrough", "4K"]),
    ("flashwise, larc, write-back", flashwise, ["larc", "write-back"]),
    ("flashwise, larc, write-through", flashwise, ["larc", "write-through"]),
    ("flashwise, lru, write-back", flashwise, ["lru", "write-back"]),
    ("flashwise, lru, write-through", flashwise, ["lru", "write-through"]),
]:
    with tempfile.TemporaryDirectory(dir=os.environ.get("TMPDIR", "/var/tmp")) as folder:
        with open(f"{folder}/backend", "wb") as backend:
            backend.truncate(VOLUME)
        row = measure(folder, *options)
    print(f"| {name} | " + " | ".join(f"{figure:.2f}" for figure in row) + " |", flush=True)
