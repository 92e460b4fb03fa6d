"""The part written in Rust, with its types."""

from collections.abc import Callable, Iterable, Sequence
from os import PathLike
from typing import Any, Literal, Protocol, TypeAlias, final, type_check_only

__all__ = [
    "policies",
    "simulate",
    "sweep_find",
    "sweep_run",
    "sweep_tasks",
    "Table",
    "convert",
    "curve",
    "generate",
    "info",
    "lifetime",
    "pareto",
    "reuse",
    "Trace",
    "read_trace",
    "__version__",
]

__version__: str

@type_check_only
class ArrowStream(Protocol):
    """Columns in Arrow: a data frame of pandas, polars or pyarrow."""

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object: ...

@type_check_only
class OwnPolicy(Protocol):
    """A replacement policy written in Python, created with the size of its cache in blocks. It may also have admits(block) -> bool."""

    def hit(self, block: int) -> object:
        """A hit."""
    def miss(self, block: int) -> object:
        """A miss: the block is now in the cache."""
    def evict(self) -> int:
        """Returns the block that leaves the full cache."""

_Path: TypeAlias = str | PathLike[str]
_TraceLike: TypeAlias = "_Path | Trace | ArrowStream"
_Size: TypeAlias = str | int
_Sizes: TypeAlias = "_Size | Sequence[_Size] | None"
_Policy: TypeAlias = str | Callable[[int], OwnPolicy]
_Progress: TypeAlias = Callable[[int], object] | None

@final
class Table:
    """Results in columns, as described in docs/figures.md. pandas, polars and pyarrow read a table without a copy."""

    @property
    def column_names(self) -> list[str]:
        """The names of the columns."""
    def to_csv(self) -> str:
        """Returns the rows as CSV with a header, as on the command line, without epochs."""
    def to_json(self) -> str:
        """Returns the rows as a JSON array, as on the command line."""
    def to_dicts(self) -> list[dict[str, Any]]:
        """Returns the rows as dictionaries, without figures that a row lacks."""
    def write_parquet(self, path: _Path) -> None:
        """Writes the columns to a Parquet file."""
    def charts(self) -> list[tuple[str, str]]:
        """Returns, for each trace, its name and its chart of hit ratios by cache size, as SVG."""
    def __len__(self) -> int: ...
    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object: ...
    def __arrow_c_schema__(self) -> object: ...

@final
class Trace:
    """An open trace: normalised, and mapped into memory."""

    @property
    def name(self) -> str:
        """Its name in results: its path as given."""
    @property
    def block_size_bytes(self) -> int:
        """Block size."""
    @property
    def unique_blocks(self) -> int:
        """Number of unique blocks."""
    def info(self) -> dict[str, Any]:
        """Describes the trace."""
    def charts(self) -> list[tuple[str, str]]:
        """Returns the charts of the workload as SVG, each with its title."""
    def __len__(self) -> int: ...
    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object: ...

def simulate(
    trace: _TraceLike | Sequence[_TraceLike],
    policies: _Policy | Sequence[_Policy] | None = None,
    sizes: _Sizes = None,
    *,
    accuracy: str | float | None = None,
    jobs: str | dict[str, Any] | Sequence[str | dict[str, Any]] | None = None,
    per_volume: bool = False,
    format: str | None = None,
    block_size: _Size | None = None,
    lenient: bool = False,
    threads: int | None = None,
    progress: _Progress = None,
    **stages: object,
) -> Table:
    """Simulates caches over traces. Returns a row for each trace, policy and size, as `flashwise simulate` with the same options."""

def policies() -> list[str]:
    """Returns the names of all replacement policies."""

def read_trace(
    trace: _TraceLike,
    *,
    format: str | None = None,
    block_size: _Size | None = None,
    lenient: bool = False,
    name: str | None = None,
    progress: _Progress = None,
) -> Trace:
    """Reads a trace of any format, or a data frame whose columns have the names of a CSV's."""

def convert(
    trace: _Path,
    out: _Path,
    *,
    force: bool = False,
    format: str | None = None,
    block_size: _Size | None = None,
    lenient: bool = False,
    progress: _Progress = None,
) -> None:
    """Converts a trace of any kind to a normalised one, an Arrow IPC file."""

def info(
    trace: _TraceLike,
    *,
    format: str | None = None,
    block_size: _Size | None = None,
    lenient: bool = False,
    progress: _Progress = None,
) -> dict[str, Any]:
    """Describes a trace: requests, blocks, sizes, duration, reuse."""

def reuse(
    trace: _TraceLike,
    *,
    distance: Literal["unique", "accesses"] = "unique",
    format: str | None = None,
    block_size: _Size | None = None,
    lenient: bool = False,
    progress: _Progress = None,
) -> dict[str, Any]:
    """Returns the reuse distances of a trace: numbers of accesses by distance."""

def curve(
    trace: _TraceLike,
    policies: str | Sequence[str] | None = None,
    sizes: _Sizes = None,
    *,
    accuracy: str | float | None = None,
    warmup: str | int | None = None,
    sample: str | float | None = None,
    sample_by: Literal["blocks", "groups"] | None = None,
    sample_seed: int | None = None,
    format: str | None = None,
    block_size: _Size | None = None,
    lenient: bool = False,
    threads: int | None = None,
    progress: _Progress = None,
) -> Table:
    """Returns the hit ratios of policies at every cache size, with knees marked."""

def pareto(
    trace: _TraceLike,
    policies: str | Sequence[str] | None = None,
    sizes: _Sizes = None,
    *,
    warmup: str | int | None = None,
    format: str | None = None,
    block_size: _Size | None = None,
    lenient: bool = False,
    threads: int | None = None,
    progress: _Progress = None,
    **stages: object,
) -> tuple[list[dict[str, Any]], str]:
    """Returns the caches with the most hits for their erasures, a row for each, and their chart as SVG."""

def lifetime(
    file: _Path | None = None,
    *,
    cache: str | None = None,
    storage: str | None = None,
    workloads: str | Iterable[str] | None = None,
) -> list[dict[str, Any]]:
    """Returns lifetime and latency of cache and storage under workloads given in numbers."""

def generate(
    out: _Path,
    *,
    pattern: str | None = None,
    like: str | None = None,
    blocks: int | None = None,
    requests: int | None = None,
    accesses: int | None = None,
    read_share: str | float | None = None,
    request_blocks: str | int | None = None,
    rate: str | float | None = None,
    arrivals: Literal["poisson", "constant"] = "poisson",
    seed: int = 1,
    block_size: _Size | None = None,
    csv: bool = False,
    progress: _Progress = None,
) -> None:
    """Generates a synthetic trace; the same arguments give the same trace."""

def sweep_tasks(plan: _Path | dict[str, Any], shard: str | None = None) -> list[str]:
    """Returns the tasks of a plan, a TOML file or a dictionary with the same keys, as JSON."""

def sweep_find(task: str) -> tuple[str | None, bool]:
    """Finds the results of a task: the path, and true if they exist."""

def sweep_run(task: str, *, threads: int | None = None) -> str:
    """Runs a task unless its results exist, and returns their path."""
