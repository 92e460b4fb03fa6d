"""Ctrl-C and what a callback raises end long work at once; other threads of Python go on meanwhile."""

import signal
import threading

import flashwise

# A shell that runs this in the background has it ignore Ctrl-C.
signal.signal(signal.SIGINT, signal.default_int_handler)

flashwise.generate("long.arrow", pattern="zipf", blocks=50_000, accesses=2_000_000)
trace = flashwise.read_trace("long.arrow")
work = {"policies": flashwise.policies(), "sizes": "1%..50%:1%"}

# Another thread presses Ctrl-C once the work has begun: it runs while the work does.
begun = threading.Event()
threading.Thread(target=lambda: (begun.wait(), signal.raise_signal(signal.SIGINT)), daemon=True).start()
told = []
try:
    flashwise.simulate(trace, **work, progress=lambda done: (told.append(done), begun.set()))
except KeyboardInterrupt:
    pass
else:
    raise AssertionError("it went on")
total = len(trace) * len(work["policies"]) * 50
assert 0 < told[-1] < total / 2, (told, total)

# One run ends in its midst, and not when it is done.
for words in [{"policies": "lru", "layout": "in-place"}, {"policies": "m+"}, {"policies": "c"}]:
    begun.clear()
    told.clear()
    threading.Thread(target=lambda: (begun.wait(), signal.raise_signal(signal.SIGINT)), daemon=True).start()
    work_on = lambda done: (told.append(done), begun.set())
    try:
        flashwise.simulate([trace] * 4, **words, sizes="50%", erase_unit="64KiB", threads=1, progress=work_on)
    except KeyboardInterrupt:
        pass
    else:
        raise AssertionError(f"{words}: it went on")
    assert any(done % len(trace) for done in told), (words, told)


class Enough(Exception):
    """Raised by a callback."""


def enough(done):
    raise Enough(done)


class Fifo:
    """Ends with the first block that leaves."""

    def __init__(self, capacity):
        self.hit = self.miss = lambda block: None

    def evict(self):
        signal.raise_signal(signal.SIGINT)
        return 0


for kind, call in [
    (Enough, lambda: flashwise.simulate(trace, **work, progress=enough)),
    (KeyboardInterrupt, lambda: flashwise.simulate(trace, Fifo, "1%")),
]:
    try:
        call()
    except kind:
        pass
    else:
        raise AssertionError(kind)

# What was ended can be run again.
assert len(flashwise.simulate(trace, "lru", "1%")) == 1
