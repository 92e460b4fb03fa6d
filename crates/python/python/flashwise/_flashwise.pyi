"""The part written in Rust, with its types."""

from collections.abc import Callable, Iterable, Sequence
from os import PathLike
from typing import Any, Literal, Protocol, TypeAlias, TypedDict, final, type_check_only

import pandas
import polars
from typing_extensions import Unpack

__all__ = [
    "advise",
    "load_example",
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

    @property
    def hit(self) -> Callable[[int], object] | None:
        """A method for hits, or None if the policy ignores them."""
    def miss(self, block: int, /) -> object:
        """A miss: the block is now in the cache."""
    def evict(self) -> int:
        """Returns the block that leaves the full cache."""

@type_check_only
class Array(Protocol):
    """Values in order: an array of numpy, a column of a data frame, a range."""

    def __iter__(self) -> Any: ...
    def __len__(self) -> int: ...

_Path: TypeAlias = str | PathLike[str]
_TraceLike: TypeAlias = "_Path | Trace | ArrowStream | Sequence[int] | Array"
_Size: TypeAlias = str | float
_Sizes: TypeAlias = "_Size | Sequence[_Size] | Array | None"
_Policy: TypeAlias = str | Callable[[int], OwnPolicy]
_Progress: TypeAlias = Callable[[int], object] | None
_Value: TypeAlias = str | float | bool | None
_Values: TypeAlias = "_Value | Sequence[str | float]"

@type_check_only
class _Stages(TypedDict, total=False):
    """Options of a run, beside policies and sizes: the words of docs/jobs.md, with _ for -."""

    admission: _Values
    allow_clients: _Value
    arrivals: _Value
    bucket: _Value
    cache_clients: _Value
    cache_device: _Value
    commit_age: _Value
    copy_forward: _Value
    deny_clients: _Value
    device: _Value
    dirty_age: _Value
    dirty_high: _Value
    dirty_low: _Value
    drive_writes_per_day: _Value
    epoch: _Value
    erase_unit: _Value
    gc_placement: _Value
    gc_reserve: _Value
    gc_victim: _Value
    halving: _Value
    journal_logs: _Value
    large_write: _Value
    layout: _Value
    over_provision: _Value
    ram: _Value
    refresh: _Value
    sample: _Value
    sample_by: _Value
    sample_seed: _Value
    sequential_bypass: _Value
    spare: _Values
    storage_device: _Value
    storage_size: _Value
    trim: _Value
    warmup: _Value
    wear_levelling: _Value
    wfue_alpha: _Value
    write_back_order: _Value
    write_buffer_half_life: _Value
    write_buffer_share: _Value
    write_buffers: _Value
    write_mode: _Value
    write_queue: _Value

@final
class Table:
    """Results in columns, as described in `docs/figures.md`.

    pandas, polars and pyarrow read a table without a copy. `table["hit_ratio"]` is a column as a list.

    Examples
    --------
    >>> import flashwise
    >>> table = flashwise.simulate([1, 2, 1, 3, 1, 2], ["lru", "fifo"], [1, 2])
    >>> len(table), table["policy"]
    (4, ['lru', 'lru', 'fifo', 'fifo'])

    >>> table.to_pandas()[["policy", "size", "hits"]].shape
    (4, 3)
    """

    @property
    def columns(self) -> list[str]:
        """Names of the columns, in order: a list of str, shape (columns,)."""
    def to_pandas(self, *, epochs: bool = False) -> pandas.DataFrame:
        """Returns the rows as a data frame of pandas. Needs pandas and pyarrow.

        Parameters
        ----------
        epochs : bool, default False
            Return a row for each epoch of each row, instead of the rows. They exist after `simulate(..., epoch=N)`.

        Returns
        -------
        pandas.DataFrame
            A tidy frame, shape (rows, columns): a row for each result, a column for each figure, and no lists in cells.
        """
    def to_polars(self, *, epochs: bool = False) -> polars.DataFrame:
        """Returns the rows as a data frame of polars. Needs polars.

        Parameters
        ----------
        epochs : bool, default False
            Return a row for each epoch of each row, instead of the rows. They exist after `simulate(..., epoch=N)`.

        Returns
        -------
        polars.DataFrame
            A tidy frame, shape (rows, columns): a row for each result, a column for each figure, and no lists in cells.
        """
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
    def __getitem__(self, column: str, /) -> list[Any]: ...
    def __len__(self) -> int: ...
    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object: ...
    def __arrow_c_schema__(self) -> object: ...

@final
class Trace:
    """An open trace: normalised, and mapped into memory. It can be passed to `simulate` and the other functions any number of times."""

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
        """Describes the trace: see `info`."""
    def charts(self) -> list[tuple[str, str]]:
        """Returns the charts of the workload, each with its title."""
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
    block_size: str | int | None = None,
    lenient: bool = False,
    threads: int | None = None,
    progress: _Progress = None,
    **stages: Unpack[_Stages],
) -> Table:
    """Simulates caches over traces, as `flashwise simulate` with the same options.

    Parameters
    ----------
    trace : path, Trace, data frame, or list or array of int; or a list of these
        Accesses. Integers, shape (accesses,), are the numbers of the blocks that are read.
        A data frame has the columns of a CSV, or a column "block" with such numbers, and "op" and "time_us" if there are any.
    policies : str or class, or a list of these, optional
        Names from `policies`, with their options, or classes of your own.
    sizes : float, int or str, or a list or an array of these, optional
        Cache sizes. A float is a share of the unique blocks, an int a number of blocks.
        Text is "10%", "512MiB", or a range such as "1%..10%:1%".
    accuracy : float or str, optional
        Use the smallest sample with hit ratios within this margin, such as 0.01.
    jobs : str or dict, or a list of these, optional
        Jobs in place of policies, sizes and stages.
    per_volume : bool, default False
        Give each volume a cache of its own.
    format : str, optional
        Format of the trace, such as "msr" or "csv:op=kind". By default it is recognised.
    block_size : int or str, optional
        Block size in bytes, a power of two from 512 to 1 MiB. The default is 4 KiB.
    lenient : bool, default False
        Skip malformed records instead of raising an error.
    threads : int, optional
        Number of threads, from 1 to 256. The default is one for each core.
    progress : callable, optional
        Called about twenty times a second with the bytes read and the block accesses run so far.
    **stages
        Other options of the command line, with `_` for `-`: `layout="log"`, `erase_unit="256KiB"`, `warmup="10%"`.

    Returns
    -------
    Table
        A row for each trace, policy and size, in this order. Its shape is (rows, columns).

    Raises
    ------
    TypeError
        A keyword, or the type of a value, is unknown.
    ValueError
        A value or a trace is malformed.
    OSError
        A file cannot be read.

    Examples
    --------
    >>> import flashwise
    >>> table = flashwise.simulate([1, 2, 1, 3, 1, 2], "lru", 2)
    >>> table["hits"], table["hit_ratio"]
    ([2], [0.3333333333333333])

    >>> example = flashwise.load_example()
    >>> flashwise.simulate(example, ["lru", "larc"], [0.01, 0.1])["size"]
    ['1%', '10%', '1%', '10%']
    """

def policies() -> list[str]:
    """Returns the names of all replacement policies.

    Returns
    -------
    list of str
        Names, shape (policies,). `flashwise policies` explains them.

    Examples
    --------
    >>> import flashwise
    >>> "larc" in flashwise.policies()
    True
    """

def read_trace(
    trace: _TraceLike,
    *,
    format: str | None = None,
    block_size: str | int | None = None,
    lenient: bool = False,
    name: str | None = None,
    progress: _Progress = None,
) -> Trace:
    """Opens a trace for many calls.

    Parameters
    ----------
    trace : path, Trace, data frame, or list or array of int
        Accesses. Integers, shape (accesses,), are the numbers of the blocks that are read.
        A data frame has the columns of a CSV, or a column "block" with such numbers, and "op" and "time_us" if there are any.
    format : str, optional
        Format of the trace, such as "msr" or "csv:op=kind". By default it is recognised.
    block_size : int or str, optional
        Block size in bytes, a power of two from 512 to 1 MiB. The default is 4 KiB.
    lenient : bool, default False
        Skip malformed records instead of raising an error.
    name : str, optional
        Name in results, for a data frame, a list or an array. A file is named by its path.
    progress : callable, optional
        Called about twenty times a second with the bytes read and the block accesses run so far.

    Returns
    -------
    Trace
        Its length is the number of block accesses.

    Examples
    --------
    >>> import flashwise
    >>> trace = flashwise.read_trace([7, 8, 7], name="mine")
    >>> trace.name, len(trace), trace.unique_blocks
    ('mine', 3, 2)
    """

def convert(
    trace: _Path,
    out: _Path,
    *,
    force: bool = False,
    format: str | None = None,
    block_size: str | int | None = None,
    lenient: bool = False,
    progress: _Progress = None,
) -> None:
    """Converts a trace of any kind to a normalised one, an Arrow IPC file.

    Parameters
    ----------
    trace : path
        Trace in any format.
    out : path
        File to write.
    force : bool, default False
        Replace an existing file.
    format : str, optional
        Format of the trace, such as "msr" or "csv:op=kind". By default it is recognised.
    block_size : int or str, optional
        Block size in bytes, a power of two from 512 to 1 MiB. The default is 4 KiB.
    lenient : bool, default False
        Skip malformed records instead of raising an error.
    progress : callable, optional
        Called about twenty times a second with the bytes read and the block accesses run so far.
    """

def load_example() -> Trace:
    """Opens the trace that is part of the package: three minutes of a network file server.

    Returns
    -------
    Trace
        1,126,563 accesses to 617,197 blocks of 4 KiB, under a synthetic load.

    Examples
    --------
    >>> import flashwise
    >>> flashwise.load_example()
    <flashwise.Trace netsfs of 1126563 block accesses>
    """

def info(
    trace: _TraceLike,
    *,
    format: str | None = None,
    block_size: str | int | None = None,
    lenient: bool = False,
    progress: _Progress = None,
) -> dict[str, Any]:
    """Describes a trace: requests, blocks, sizes, duration and reuse.

    Parameters
    ----------
    trace : path, Trace, data frame, or list or array of int
        Accesses. Integers, shape (accesses,), are the numbers of the blocks that are read.
        A data frame has the columns of a CSV, or a column "block" with such numbers, and "op" and "time_us" if there are any.
    format : str, optional
        Format of the trace, such as "msr" or "csv:op=kind". By default it is recognised.
    block_size : int or str, optional
        Block size in bytes, a power of two from 512 to 1 MiB. The default is 4 KiB.
    lenient : bool, default False
        Skip malformed records instead of raising an error.
    progress : callable, optional
        Called about twenty times a second with the bytes read and the block accesses run so far.

    Returns
    -------
    dict
        The figures of `flashwise trace info --json`.

    Examples
    --------
    >>> import flashwise
    >>> flashwise.info([1, 2, 1])["unique_blocks"]
    2
    """

def reuse(
    trace: _TraceLike,
    *,
    distance: Literal["unique", "accesses"] = "unique",
    format: str | None = None,
    block_size: str | int | None = None,
    lenient: bool = False,
    progress: _Progress = None,
) -> dict[str, Any]:
    """Returns the reuse distances of a trace: numbers of accesses by distance.

    Parameters
    ----------
    trace : path, Trace, data frame, or list or array of int
        Accesses. Integers, shape (accesses,), are the numbers of the blocks that are read.
        A data frame has the columns of a CSV, or a column "block" with such numbers, and "op" and "time_us" if there are any.
    distance : {"unique", "accesses"}, default "unique"
        Count unique blocks or all accesses since the last access to the block.
    format : str, optional
        Format of the trace, such as "msr" or "csv:op=kind". By default it is recognised.
    block_size : int or str, optional
        Block size in bytes, a power of two from 512 to 1 MiB. The default is 4 KiB.
    lenient : bool, default False
        Skip malformed records instead of raising an error.
    progress : callable, optional
        Called about twenty times a second with the bytes read and the block accesses run so far.

    Returns
    -------
    dict
        The figures of `flashwise trace reuse --json`.

    Examples
    --------
    >>> import flashwise
    >>> flashwise.reuse([1, 2, 1])["reads"]["first_accesses"]
    2
    """

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
    block_size: str | int | None = None,
    lenient: bool = False,
    threads: int | None = None,
    progress: _Progress = None,
) -> Table:
    """Returns the hit ratios of policies at every cache size, with knees marked.

    Parameters
    ----------
    trace : path, Trace, data frame, or list or array of int
        Accesses. Integers, shape (accesses,), are the numbers of the blocks that are read.
        A data frame has the columns of a CSV, or a column "block" with such numbers, and "op" and "time_us" if there are any.
    policies : str or list of str, optional
        Names from `policies`. The default is "lru".
    sizes : float, int or str, or a list or an array of these, optional
        Cache sizes. A float is a share of the unique blocks, an int a number of blocks.
        Text is "10%", "512MiB", or a range such as "1%..10%:1%".
    accuracy : float or str, optional
        Use the smallest sample with hit ratios within this margin, such as 0.01.
    warmup : int or str, optional
        Accesses at the start that are not counted: a number, or a share such as "10%".
    sample : float or str, optional
        Share of the blocks to simulate.
    sample_by : {"blocks", "groups"}, optional
        Draw single blocks or groups of neighbours.
    sample_seed : int, optional
        Seed of the sample.
    format : str, optional
        Format of the trace, such as "msr" or "csv:op=kind". By default it is recognised.
    block_size : int or str, optional
        Block size in bytes, a power of two from 512 to 1 MiB. The default is 4 KiB.
    lenient : bool, default False
        Skip malformed records instead of raising an error.
    threads : int, optional
        Number of threads, from 1 to 256. The default is one for each core.
    progress : callable, optional
        Called about twenty times a second with the bytes read and the block accesses run so far.

    Returns
    -------
    Table
        A row for each policy and size. Its shape is (rows, columns).

    Examples
    --------
    >>> import flashwise
    >>> curve = flashwise.curve([1, 2, 3, 1, 2, 3], "lru", [1, 2, 3])
    >>> curve["hit_ratio"]
    [0.0, 0.0, 0.5]
    """

def pareto(
    trace: _TraceLike,
    policies: str | Sequence[str] | None = None,
    sizes: _Sizes = None,
    *,
    format: str | None = None,
    block_size: str | int | None = None,
    lenient: bool = False,
    threads: int | None = None,
    progress: _Progress = None,
    **stages: Unpack[_Stages],
) -> tuple[list[dict[str, Any]], str]:
    """Returns the caches with the most hits for their erasures, beside the best possible.

    Parameters
    ----------
    trace : path, Trace, data frame, or list or array of int
        Accesses. Integers, shape (accesses,), are the numbers of the blocks that are read.
        A data frame has the columns of a CSV, or a column "block" with such numbers, and "op" and "time_us" if there are any.
    policies : str or list of str, optional
        Names from `policies`, except offline ones.
    sizes : float, int or str, or a list or an array of these, optional
        Cache sizes. A float is a share of the unique blocks, an int a number of blocks.
        Text is "10%", "512MiB", or a range such as "1%..10%:1%".
    format : str, optional
        Format of the trace, such as "msr" or "csv:op=kind". By default it is recognised.
    block_size : int or str, optional
        Block size in bytes, a power of two from 512 to 1 MiB. The default is 4 KiB.
    lenient : bool, default False
        Skip malformed records instead of raising an error.
    threads : int, optional
        Number of threads, from 1 to 256. The default is one for each core.
    progress : callable, optional
        Called about twenty times a second with the bytes read and the block accesses run so far.
    **stages
        Options about flash, such as `erase_unit="256KiB"`, and `warmup`.

    Returns
    -------
    Frontier
        A list with a dictionary for each cache. `frontier` is true for caches worth having. The attribute `svg` is the chart.
    """

def advise(
    trace: _TraceLike,
    *,
    latency: str | None = None,
    years: float = 5.0,
    devices: _Path | None = None,
    policies: str | Sequence[str] | None = None,
    admissions: str | Sequence[str] | None = None,
    write_modes: str | Sequence[str] | None = None,
    write_back_order: str = "none",
    over_provisions: str | float | Sequence[str | float] | None = None,
    warmup: str | int | None = None,
    exhaustive: bool = False,
    format: str | None = None,
    block_size: str | int | None = None,
    lenient: bool = False,
    threads: int | None = None,
    progress: _Progress = None,
) -> dict[str, Any]:
    """Finds the cheapest cache that is fast enough and lasts long enough, as `flashwise advise`.

    Parameters
    ----------
    trace : path, Trace, data frame, or list or array of int
        Accesses. Integers, shape (accesses,), are the numbers of the blocks that are read.
        A data frame has the columns of a CSV, or a column "block" with such numbers, and "op" and "time_us" if there are any.
    latency : str, optional
        How long a request may wait on average, such as "1ms". A catalogue with a price of waiting needs none.
    years : float, default 5
        Required lifetime of the flash in years at the rate of the trace, from 0 to 100. 0 asks for none.
    devices : path, optional
        Catalogue in TOML with devices, sizes and prices. The default is an example with assumed prices.
    policies : str or list of str, optional
        Policies to choose among.
    admissions : str or list of str, optional
        Admission rules to choose among.
    write_modes : str or list of str, optional
        Some of "write-back", "write-through" and "write-around".
    write_back_order : str, default "none"
        Required order of write-back: "none", "barriers" or "journal". With the last two, the backend is a consistent
        older state if the flash is lost. `order_cost` then has the cost of the order.
    over_provisions : str or float, or a list of these, optional
        Free shares of the flash to choose among, up to 0.9.
    warmup : int or str, optional
        Accesses at the start that are not counted: a number, or a share such as "10%".
    exhaustive : bool, default False
        Run every cache exactly instead of searching.
    format : str, optional
        Format of the trace, such as "msr" or "csv:op=kind". By default it is recognised.
    block_size : int or str, optional
        Block size in bytes, a power of two from 512 to 1 MiB. The default is 4 KiB.
    lenient : bool, default False
        Skip malformed records instead of raising an error.
    threads : int, optional
        Number of threads, from 1 to 256. The default is one for each core.
    progress : callable, optional
        Called about twenty times a second with the bytes read and the block accesses run so far.

    Returns
    -------
    dict
        The advice of `flashwise advise --json`: `verdict`, `sentences`, `cache`, `alternatives`, `cautions` and more.
        If no cache meets the targets, `verdict` is "nothing-meets".

    Examples
    --------
    >>> import flashwise
    >>> advice = flashwise.advise([1, 2, 1, 3] * 10, latency="1ms", years=0)
    >>> advice["verdict"]
    'ram-only'
    """

def lifetime(
    file: _Path | None = None,
    *,
    cache: str | None = None,
    storage: str | None = None,
    workloads: str | Iterable[str] | None = None,
) -> list[dict[str, Any]]:
    """Returns lifetime and latency of cache and storage under workloads given in numbers.

    Parameters
    ----------
    file : path, optional
        Description in TOML, as for `flashwise lifetime`.
    cache : str, optional
        Device of the cache, such as "slc".
    storage : str, optional
        Device of the storage, such as "mlc:devices=3".
    workloads : str or list of str, optional
        Workloads as options of the command line write them.

    Returns
    -------
    list of dict
        A dictionary for each workload, shape (workloads,).

    Examples
    --------
    >>> import flashwise
    >>> load = "read-mb-per-s=160,write-mb-per-s=200,read-hit-ratio=90%,write-hit-ratio=85%,dirty=65%"
    >>> len(flashwise.lifetime(cache="slc", storage="mlc:devices=3", workloads=load))
    1
    """

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
    block_size: str | int | None = None,
    csv: bool = False,
    progress: _Progress = None,
) -> None:
    """Generates a synthetic trace; the same arguments give the same trace.

    Parameters
    ----------
    out : path
        File to write.
    pattern : str, optional
        Pattern of `flashwise trace generate`. The default is "zipf".
    like : str, optional
        A server whose week is imitated, in place of a pattern.
    blocks : int, optional
        Blocks of the address range. Required with a pattern.
    requests, accesses : int, optional
        Length in requests or in block accesses.
    read_share : float or str, default 0.7
        Share of the requests that read.
    request_blocks : int or str, default 1
        Blocks of a request, or a range such as "1..4".
    rate : float or str, default "1000/s"
        Requests per second.
    arrivals : {"poisson", "constant"}, default "poisson"
        Intervals between requests.
    seed : int, default 1
        Seed of the random numbers.
    block_size : int or str, default 4096
        Block size in bytes.
    csv : bool, default False
        Write CSV instead of a normalised trace.
    progress : callable, optional
        Called about twenty times a second with the bytes read and the block accesses run so far.
    """

def sweep_tasks(plan: _Path | dict[str, Any], shard: str | None = None) -> list[str]:
    """Returns the tasks of a plan, a TOML file or a dictionary with the same keys, as JSON. `shard` selects a part of them: `2/10`."""

def sweep_find(task: str) -> tuple[str | None, bool]:
    """Finds the results of a task: the path, if known yet, and true if they exist."""

def sweep_run(task: str, *, threads: int | None = None) -> str:
    """Runs a task unless its results exist, and returns their path."""
