"""Policies written once more, in another language, on ordered dictionaries: what the simulator's counts are compared with.

Usage: reference.py TRACE.csv.zst SIZE_BLOCKS REQUESTS

Reads the first requests of a trace in MSR-Cambridge CSV, cuts it into blocks of 4 KiB and prints one line per policy: its name, hits, write hits,
admissions and replacements.
"""

import csv
import io
import itertools
import sys
from collections import OrderedDict

import pyarrow


def accesses(path, requests):
    """(block, is_write) of each block access."""
    with pyarrow.CompressedInputStream(path, "zstd") as stream:
        text = io.TextIOWrapper(io.BytesIO(stream.read()), "ascii")
    result = []
    for _, _, _, kind, offset, size, _ in itertools.islice(csv.reader(text), requests):
        offset, size = int(offset), int(size)
        for block in range(offset // 4096, (offset + size - 1) // 4096 + 1):
            result.append((block, kind == "Write"))
    return result


class Lru:
    def __init__(self, c):
        self.c, self.q = c, OrderedDict()

    def access(self, block, write):
        """'hit', 'fill', 'replace' or 'bypass'."""
        if block in self.q:
            self.q.move_to_end(block)
            return "hit"
        return self.admit(block)

    def admit(self, block):
        full = len(self.q) == self.c
        if full:
            self.q.popitem(last=False)
        self.q[block] = None
        return "replace" if full else "fill"


class Fifo(Lru):
    def access(self, block, write):
        return "hit" if block in self.q else self.admit(block)


class Larc(Lru):
    """Algorithm 1 of the paper. The last of an ordered dictionary is the most recently used."""

    def __init__(self, c, fill="admit", writes="filter"):
        super().__init__(c)
        self.fill, self.writes = fill, writes
        self.c_r, self.q_r = 0.1 * c, OrderedDict()

    def access(self, block, write):
        c = self.c
        if block in self.q:
            self.q.move_to_end(block)
            self.c_r = max(0.1 * c, self.c_r - c / (c - self.c_r))
            return "hit"
        self.c_r = min(0.9 * c, self.c_r + c / self.c_r)
        filling = self.fill == "admit" and len(self.q) < c
        if block in self.q_r or filling or (self.writes == "admit" and write):
            self.q_r.pop(block, None)
            return self.admit(block)
        self.q_r[block] = None
        if len(self.q_r) > self.c_r:
            self.q_r.popitem(last=False)
        return "bypass"


class S3Fifo:
    """Algorithm 1 of the paper; the first of an ordered dictionary is the tail."""

    def __init__(self, c):
        self.c, self.s, self.m, self.g = c, OrderedDict(), OrderedDict(), OrderedDict()

    def access(self, block, write):
        for queue in (self.s, self.m):
            if block in queue:
                queue[block] = min(queue[block] + 1, 3)
                return "hit"
        evicted = False
        while len(self.s) + len(self.m) >= self.c:
            evicted = True
            if len(self.s) >= 0.1 * self.c:
                self.evict_s()
            else:
                self.evict_m()
        if block in self.g:
            del self.g[block]
            self.m[block] = 0
        else:
            self.s[block] = 0
        return "replace" if evicted else "fill"

    def evict_s(self):
        while self.s:
            block, freq = self.s.popitem(last=False)
            if freq <= 1:
                self.g[block] = None
                if len(self.g) > int(0.9 * self.c):
                    self.g.popitem(last=False)
                return
            self.m[block] = 0
            if len(self.m) > 0.9 * self.c:
                return self.evict_m()

    def evict_m(self):
        while self.m:
            block, freq = self.m.popitem(last=False)
            if freq == 0:
                return
            self.m[block] = freq - 1


class Clock(Lru):
    """The first of an ordered dictionary is under the hand."""

    def access(self, block, write):
        if block in self.q:
            self.q[block] = True
            return "hit"
        full = len(self.q) == self.c
        while full:
            block_under_hand, used = self.q.popitem(last=False)
            if not used:
                break
            self.q[block_under_hand] = False
        self.q[block] = False
        return "replace" if full else "fill"


class Slru:
    """Two segments; the last of an ordered dictionary is the most recently used."""

    def __init__(self, c):
        self.c, self.probationary, self.protected = c, OrderedDict(), OrderedDict()

    def access(self, block, write):
        if block in self.protected:
            self.protected.move_to_end(block)
            return "hit"
        if block in self.probationary:
            del self.probationary[block]
            self.protected[block] = None
            if len(self.protected) > int(0.8 * self.c):
                self.probationary[self.protected.popitem(last=False)[0]] = None
            return "hit"
        full = len(self.probationary) + len(self.protected) == self.c
        if full:
            (self.probationary or self.protected).popitem(last=False)
        self.probationary[block] = None
        return "replace" if full else "fill"


class Car:
    """Figure 2 of the paper; the first of an ordered dictionary is the head page, and T1 and T2 have the reference bits."""

    def __init__(self, c):
        self.c, self.p = c, 0.0
        self.t1, self.t2, self.b1, self.b2 = (OrderedDict() for _ in range(4))

    def access(self, block, write):
        for clock in (self.t1, self.t2):
            if block in clock:
                clock[block] = True
                return "hit"
        full = len(self.t1) + len(self.t2) == self.c
        if full:
            self.replace()
            if block not in self.b1 and block not in self.b2:
                if len(self.t1) + len(self.b1) == self.c:
                    self.b1.popitem(last=False)
                elif sum(map(len, (self.t1, self.t2, self.b1, self.b2))) == 2 * self.c:
                    self.b2.popitem(last=False)
        if block in self.b1:
            self.p = min(self.p + max(1.0, len(self.b2) / len(self.b1)), self.c)
            del self.b1[block]
            self.t2[block] = False
        elif block in self.b2:
            self.p = max(self.p - max(1.0, len(self.b1) / len(self.b2)), 0.0)
            del self.b2[block]
            self.t2[block] = False
        else:
            self.t1[block] = False
        return "replace" if full else "fill"

    def replace(self):
        while True:
            clock, history = (self.t1, self.b1) if len(self.t1) >= max(1, self.p) else (self.t2, self.b2)
            block, used = clock.popitem(last=False)
            if not used:
                history[block] = None
                return
            self.t2[block] = False


POLICIES = {
    "lru": Lru,
    "fifo": Fifo,
    "clock": Clock,
    "slru": Slru,
    "car": Car,
    "larc": Larc,
    "larc:fill=ghost": lambda c: Larc(c, fill="ghost"),
    "larc:writes=admit": lambda c: Larc(c, writes="admit"),
    "s3-fifo": S3Fifo,
}


def main(path, size, requests):
    trace = accesses(path, int(requests))
    for name, make in POLICIES.items():
        policy = make(int(size))
        counts = {"hit": 0, "fill": 0, "replace": 0, "bypass": 0}
        write_hits = 0
        for block, write in trace:
            outcome = policy.access(block, write)
            counts[outcome] += 1
            write_hits += write and outcome == "hit"
        print(name, counts["hit"], write_hits, counts["fill"] + counts["replace"], counts["replace"])


if __name__ == "__main__":
    main(*sys.argv[1:])
