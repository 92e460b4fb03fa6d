"""Simulates flash caches from traces: hit ratio, latency and flash lifetime.

    import flashwise
    table = flashwise.simulate("trace.csv", policies=["lru", "larc"], sizes=["1%", "10%"])

pandas, polars and pyarrow read a table without a copy: polars.DataFrame(table). See docs/python.md.
"""

from ._flashwise import (
    Table,
    Trace,
    __version__,
    convert,
    curve,
    generate,
    info,
    lifetime,
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
    "convert",
    "curve",
    "generate",
    "info",
    "lifetime",
    "pareto",
    "plot",
    "policies",
    "read_trace",
    "reuse",
    "simulate",
    "sweep",
]
