"""Tables and charts for notebooks."""

from __future__ import annotations

import base64
import csv
import html
import io
import os
import pathlib
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from . import _flashwise

if TYPE_CHECKING:
    from typing_extensions import Unpack

# A table can have more columns than are shown.
SHOWN = (
    "trace", "policy", "size", "capacity_blocks", "hit_ratio", "read_hit_ratio", "write_hit_ratio", "flash_writes_blocks",
    "erasures", "latency_mean_us", "lifetime_years", "hit_ratio_low", "hit_ratio_high", "knee",
)
ROWS_MAX = 60


def table(text: str) -> str:
    """Returns the first rows of CSV as HTML."""
    header, *rows = csv.reader(io.StringIO(text))
    shown = [name for name in SHOWN if name in header]
    columns = [header.index(name) for name in shown]

    def line(tag, cells):
        return "<tr>" + "".join(f"<{tag}>{html.escape(cell)}</{tag}>" for cell in cells) + "</tr>"

    lines = [line("th", shown)]
    lines += [line("td", [row[column] for column in columns]) for row in rows[:ROWS_MAX]]
    left = f"<p>{len(rows) - ROWS_MAX} rows more</p>" if len(rows) > ROWS_MAX else ""
    return f"<table>{''.join(lines)}</table>{left}<p>{len(rows)} rows, {len(header)} columns</p>"


class Chart:
    """Charts, an SVG with a title each, which a notebook shows."""

    def __init__(self, charts: Iterable[tuple[str, str]]) -> None:
        self.charts = list(charts)

    @property
    def svg(self) -> str:
        """Returns the first chart as SVG."""
        return self.charts[0][1]

    @property
    def html(self) -> str:
        """Returns all charts as HTML. Each is a separate picture, so none changes the look of others."""
        def picture(title, svg):
            data = base64.b64encode(svg.encode()).decode()
            said = html.escape(title)
            return f'<figure><figcaption>{said}</figcaption><img alt="{said}" src="data:image/svg+xml;base64,{data}"/></figure>'

        return "".join(picture(*chart) for chart in self.charts)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes the first chart to a file that ends in .svg, or all of them to one that ends in .html."""
        path = pathlib.Path(path)
        if path.suffix not in (".svg", ".html"):
            raise ValueError(f"{path}: found the ending '{path.suffix}', expected .svg or .html")
        page = f'<!DOCTYPE html><meta charset="utf-8"><title>flashwise</title>{self.html}'
        path.write_text(self.svg if path.suffix == ".svg" else page, encoding="utf-8")

    def _repr_html_(self) -> str:
        return self.html


class Frontier(list):
    """Caches, a dictionary each. A notebook shows a chart of hits against erasures with their frontier."""

    def __init__(self, points: Iterable[dict[str, Any]], svg: str) -> None:
        super().__init__(points)
        self.svg = svg

    def _repr_html_(self) -> str:
        return plot(self).html


def pareto(
    trace: _flashwise._TraceLike,
    policies: str | Sequence[str] | None = None,
    sizes: _flashwise._Sizes = None,
    *,
    format: str | None = None,
    block_size: str | int | None = None,
    lenient: bool = False,
    threads: int | None = None,
    progress: _flashwise._Progress = None,
    **stages: Unpack[_flashwise._Stages],
) -> Frontier:
    reading = {"format": format, "block_size": block_size, "lenient": lenient, "threads": threads, "progress": progress}
    return Frontier(*_flashwise.pareto(trace, policies, sizes, **reading, **stages))


pareto.__doc__ = _flashwise.pareto.__doc__


def plot(results: _flashwise.Table | _flashwise.Trace | Frontier) -> Chart:
    """Returns the charts of a result of simulate, curve or pareto, or of a trace's workload. The latter are accesses over time and address,
    requests per second, their lengths, popularity and reuse."""
    if isinstance(results, _flashwise.Trace):
        return Chart(results.charts())
    if isinstance(results, Frontier):
        return Chart([("hits against erasures", results.svg)])
    return Chart((f"hit ratio of {trace}", svg) for trace, svg in results.charts())
