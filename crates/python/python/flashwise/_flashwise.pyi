"""What is written in Rust, with its types."""

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
    """A replacement policy that is written in Python, made with the size of its cache in blocks. It may have admits(block) -> bool as well."""

    def hit(self, block: int) -> object:
        """An access to a block that is in the cache."""
    def miss(self, block: int) -> object:
        """An access to a block that was not in the cache, and now is."""
    def evict(self) -> int:
        """The cache is full: the block that leaves."""

_Path: TypeAlias = str | PathLike[str]
_TraceLike: TypeAlias = "_Path | Trace | ArrowStream"
_Size: TypeAlias = str | int
_Sizes: TypeAlias = "_Size | Sequence[_Size] | None"
_Policy: TypeAlias = str | Callable[[int], OwnPolicy]
_Progress: TypeAlias = Callable[[int], object] | None

@final
class Table:
    """Results in columns, as docs/figures.md describes them. pandas, polars and pyarrow take a table without a copy."""

    @property
    def column_names(self) -> list[str]:
        """The names of the columns."""
    def to_csv(self) -> str:
        """The rows as CSV with a header, as the command line prints it. Epochs are left out."""
    def to_json(self) -> str:
        """The rows as a JSON array, as the command line prints it."""
    def to_dicts(self) -> list[dict[str, Any]]:
        """The rows as dictionaries; figures that a row has not are absent."""
    def write_parquet(self, path: _Path) -> None:
        """Writes the columns to a Parquet file."""
    def charts(self) -> list[tuple[str, str]]:
        """For each trace its name and its chart of hit ratios by cache size, as SVG."""
    def __len__(self) -> int: ...
    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object: ...
    def __arrow_c_schema__(self) -> object: ...

@final
class Trace:
    """A trace that is open: normalised, and mapped into memory."""

    @property
    def name(self) -> str:
        """What results call it: its path as it was given."""
    @property
    def block_size_bytes(self) -> int:
        """Length of a block."""
    @property
    def unique_blocks(self) -> int:
        """Different blocks."""
    def info(self) -> dict[str, Any]:
        """What the trace is like."""
    def charts(self) -> list[tuple[str, str]]:
        """The charts of the workload as SVG, each with its title."""
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
    """Simulates caches over traces: a row for each trace, policy and size, those of `flashwise simulate` with the same options."""

def policies() -> list[str]:
    """The names of all replacement policies."""

def read_trace(
    trace: _TraceLike,
    *,
    format: str | None = None,
    block_size: _Size | None = None,
    lenient: bool = False,
    name: str | None = None,
    progress: _Progress = None,
) -> Trace:
    """Reads a trace of any format, or a data frame whose columns are called as those of a CSV."""

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
    """What a trace is like: requests, blocks, sizes, duration, re-access."""

def reuse(
    trace: _TraceLike,
    *,
    distance: Literal["unique", "accesses"] = "unique",
    format: str | None = None,
    block_size: _Size | None = None,
    lenient: bool = False,
    progress: _Progress = None,
) -> dict[str, Any]:
    """How long it takes until blocks are used again: numbers of accesses by distance."""

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
    """What policies hit at every cache size, with knees marked."""

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
    """Of policies and sizes those that hit most for their erasures: a row for each cache, and their chart as SVG."""

def lifetime(
    file: _Path | None = None,
    *,
    cache: str | None = None,
    storage: str | None = None,
    workloads: str | Iterable[str] | None = None,
) -> list[dict[str, Any]]:
    """How long an array of cache and storage lasts under workloads in plain numbers, and how fast it answers."""

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
    """Generates a trace, always the same one for the same arguments."""

def sweep_tasks(plan: _Path | dict[str, Any], shard: str | None = None) -> list[str]:
    """The tasks of a plan, a TOML file or a dictionary with the same keys, as JSON."""

def sweep_find(task: str) -> tuple[str | None, bool]:
    """Where the results of a task are, and whether they are there."""

def sweep_run(task: str, *, threads: int | None = None) -> str:
    """Runs a task, if its results are not there yet, and says in which file they are."""
