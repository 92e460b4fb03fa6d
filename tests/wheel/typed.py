"""Programs that use the package as its documents say pass `mypy --strict`, and misspelt keywords fail there and at run time."""

import pathlib
import re
import subprocess
import sys

import flashwise

GOOD = """
from collections import OrderedDict, deque

import flashwise
import numpy


class Lru:
    def __init__(self, capacity: int) -> None:
        self.blocks: OrderedDict[int, None] = OrderedDict()

    def hit(self, block: int) -> None:
        self.blocks.move_to_end(block)

    def miss(self, block: int) -> None:
        self.blocks[block] = None

    def evict(self) -> int:
        return self.blocks.popitem(last=False)[0]


class Fifo:
    hit = None

    def __init__(self, capacity: int) -> None:
        self.blocks: deque[int] = deque()

    def miss(self, block: int) -> None:
        self.blocks.append(block)

    def evict(self) -> int:
        return self.blocks.popleft()


trace = flashwise.load_example()
table: flashwise.Table = flashwise.simulate(trace, [Lru, Fifo, "lru"], [0.1, "20%", 5])
hits: list[int] = table["hits"]
names: list[str] = table.columns
flashwise.simulate([1, 2, 1], "lru", 0.5, warmup="10%", erase_unit="256KiB", layout="in-place", spare=[0.07, "28%"])
flashwise.simulate(numpy.array([1, 2, 1]), Fifo, numpy.linspace(0.1, 0.5, 3), threads=1)
flashwise.simulate(range(10), "lru", range(1, 3), trim=True, sample=0.5)
flashwise.pareto(trace, ["lru"], 0.1, erase_unit="256KiB", warmup=10)
flashwise.curve(trace, "lru", 0.1)
advice: str = flashwise.advise(trace, latency="1ms", years=0, policies=["lru"])["verdict"]
"""

# Each is wrong by one keyword or type, for mypy and at run time.
BAD = [
    'flashwise.simulate([1, 2, 1], "lru", 0.5, erase_unti="256KiB")',
    'flashwise.simulate([1, 2, 1], "lru", size=0.5)',
    'flashwise.simulate([1, 2, 1], "lru", 0.5, formt="csv")',
    'flashwise.pareto([1, 2, 1], "lru", 0.5, erase_units="256KiB")',
    'flashwise.curve([1, 2, 1], "lru", 0.5, polices="lru")',
    'flashwise.advise([1, 2, 1], latencies="1ms")',
    'flashwise.read_trace([1, 2, 1], names="mine")',
    'flashwise.simulate([1, 2, 1], "lru", 0.5, warmup=object())',
    "flashwise.simulate(5)",
    "flashwise.simulate([1, 2, 1], 5.5j)",
]


def mypy(name, text):
    """What mypy says of a program."""
    pathlib.Path(name).write_text(text)
    ran = subprocess.run([sys.executable, "-m", "mypy", "--strict", "--python-executable", sys.executable, name], capture_output=True, check=False)
    return ran.stdout.decode() + ran.stderr.decode()


found = mypy("good.py", GOOD)
assert "Success" in found, found
lines = mypy("bad.py", "\n".join(["import flashwise", *BAD, ""]))
missed = [call for number, call in enumerate(BAD, 2) if not re.search(rf"^bad\.py:{number}: error", lines, re.MULTILINE)]
assert not missed, (missed, lines)
for call in BAD:
    try:
        eval(call)  # noqa: S307: the calls are those above
    except TypeError as error:
        assert str(error), call
    else:
        raise AssertionError(f"{call} did not raise a TypeError")
try:
    flashwise.simulate([1], "lru", 1, erase_unti="4KiB")
except TypeError as error:
    assert "'erase_unti'" in str(error) and "'erase_unit'" in str(error).split(";")[0], error
