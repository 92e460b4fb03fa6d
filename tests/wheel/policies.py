"""Policies that are written in Python count what the same policies count in Rust. Argument: the folder of traces."""

import sys
from collections import OrderedDict, deque

import flashwise

traces = sys.argv[1]


class Lru:
    """The least recently used block leaves."""

    def __init__(self, capacity):
        self.blocks = OrderedDict()
        self.hit = self.blocks.move_to_end

    def miss(self, block):
        self.blocks[block] = None

    def evict(self):
        return self.blocks.popitem(last=False)[0]


class Fifo:
    """The block that is in the cache for longest leaves."""

    def __init__(self, capacity):
        self.queue = deque()
        self.miss = self.queue.append
        self.evict = self.queue.popleft

    def hit(self, block):
        pass


class SecondTime(Lru):
    """LRU of what was asked for before."""

    def __init__(self, capacity):
        super().__init__(capacity)
        self.seen = set()

    def admits(self, block):
        known = block in self.seen
        self.seen.add(block)
        return known


trace = flashwise.read_trace(f"{traces}/netsfs.csv.zst")
sizes = ["1%", "10%"]
rows = flashwise.simulate(trace, ["lru", "fifo", Lru, Fifo], sizes, warmup="10%", epoch=500_000).to_dicts()
assert [row["policy"] for row in rows[::2]] == ["lru", "fifo", "Lru", "Fifo"]
for known, own in zip(rows[:4], rows[4:]):
    known.pop("job")
    own["policy"] = own["policy"].lower()
    assert known == own

# By hand: 1, 2 are passed over; 1 and 2 enter, 3 is passed over, 1 hits, 3 takes the place of 2, 2 that of 1.
offsets = [1, 2, 1, 2, 3, 1, 3, 2]
open("by_hand.csv", "w").write("op,offset,length\n" + "".join(f"read,{block * 4096},4096\n" for block in offsets))
(row,) = flashwise.simulate("by_hand.csv", SecondTime, 2, format="csv").to_dicts()
assert (row["hits"], row["bypasses"], row["admissions"], row["replacements"]) == (1, 3, 4, 2), row



class Deaf(Fifo):
    """Is told of no hits."""

    hit = None


deaf, heard = flashwise.simulate(trace, [Deaf, Fifo], "10%").to_dicts()
assert deaf["hits"] == heard["hits"] > 0
told = []
flashwise.simulate(trace, Fifo, "10%", progress=told.append)
assert told[-1] == len(trace) and told == sorted(told)


class Forgets:
    """Names the same block again and again."""

    def __init__(self, capacity):
        pass

    def hit(self, block):
        pass

    def miss(self, block):
        pass

    def evict(self):
        return 0


class Raises(Forgets):
    """Fails."""

    def evict(self):
        raise RuntimeError("no idea")


class Half:
    """Lacks a method."""

    def __init__(self, capacity):
        self.hit = self.miss = print


for policy, keywords, said in [
    (Forgets, {}, "Forgets.evict: found 0, expected a block that is in the cache"),
    (Raises, {}, "no idea"),
    (Half, {}, "Half: found no method evict, expected hit, miss and evict"),
    (Fifo, {"ram": "5%"}, "a policy written in Python goes with warmup and epoch only; remove ram"),
    ([Fifo, "lru"], {"warmup": "1%", "admission": "size:max=64KiB"}, "a policy written in Python goes with warmup and epoch only; remove admission"),
    (Fifo, {"layout": "in-place", "spare": ["7%", "28%"]}, "a policy written in Python goes with warmup and epoch only; remove layout"),
    (Fifo, {"warmup": len(trace)}, "leaves none to count"),
]:
    try:
        flashwise.simulate(trace, policy, "1%", **keywords)
    except (ValueError, RuntimeError, TypeError) as error:
        assert said in str(error), error
    else:
        raise AssertionError(said)
