"""Simulates flash caches from traces: hit ratio, latency and flash lifetime.

    import flashwise
    table = flashwise.simulate(flashwise.load_example(), ["lru", "larc"], [0.01, 0.1])
    table.to_pandas()

See docs/python.md.
"""

from ._flashwise import (
    Table,
    Trace,
    __version__,
    advise,
    convert,
    curve,
    generate,
    info,
    lifetime,
    load_example,
    policies,
    read_trace,
    reuse,
    simulate,
)
from ._notebook import Chart, Frontier, pareto, plot
from ._sweep import Sweep, SweepError, sweep

__all__ = [
    "Chart",
    "Frontier",
    "Sweep",
    "SweepError",
    "Table",
    "Trace",
    "__version__",
    "advise",
    "convert",
    "curve",
    "generate",
    "info",
    "lifetime",
    "load_example",
    "pareto",
    "plot",
    "policies",
    "read_trace",
    "reuse",
    "simulate",
    "sweep",
]
