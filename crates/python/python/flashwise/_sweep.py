"""Sweeps: many jobs over many traces, here, on a pool of processes, or on any concurrent.futures.Executor such as Dask's."""

from __future__ import annotations

import concurrent.futures
import json
import multiprocessing.spawn
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Sequence
from typing import Any

from . import _flashwise

# Attempts of a task whose process dies.
ATTEMPTS = 3

# Program of a worker process: runs the task on its standard input, with the module paths of this process.
PROCESS = """import json, sys
said = json.load(sys.stdin)
sys.path[:] = said.pop("path")
from flashwise._sweep import run_task
try:
    print(json.dumps({"file": run_task(**said)}))
except (ValueError, OSError, RuntimeError) as error:
    print(json.dumps({"error": str(error)}))
"""


class SweepError(RuntimeError):
    """A task failed. Results of finished tasks exist."""


class Sweep:
    """Result of a sweep: the files with results, and the failures."""

    def __init__(self) -> None:
        self.files: list[str] = []
        self.failures: dict[str, str] = {}

    def __repr__(self) -> str:
        return f"<flashwise.Sweep of {len(self.files)} files and {len(self.failures)} failures>"


def run_task(task: str, threads: int | None = None) -> str:
    """Runs one task in this process."""
    return _flashwise.sweep_run(task, threads=threads)


def sweep(
    plan: str | os.PathLike[str] | dict[str, Any] | None = None,
    *,
    traces: str | os.PathLike[str] | Sequence[str | os.PathLike[str]] | None = None,
    out: str | os.PathLike[str] | None = None,
    run: dict[str, Any] | Sequence[dict[str, Any]] | None = None,
    executor: concurrent.futures.Executor | None = None,
    workers: int | None = None,
    threads: int | None = None,
    keep_going: bool = False,
    shard: str | None = None,
    progress: Callable[[int, int], object] | None = None,
    **words: object,
) -> Sweep:
    """Runs the missing tasks of a plan, and writes a Parquet file for each trace.

    The plan is a TOML file, or given by keywords: traces and out, and words of jobs or lists of them; run lists several such sets of words.
    Tasks run one after another on all cores, or on a number of processes (workers), or on an executor. progress is called with the numbers
    of finished and of all tasks. A trace that fails ends the sweep, or with keep_going only its own task.
    """
    if (plan is None) == (traces is None):
        found = "neither a plan nor traces" if plan is None else "a plan and traces"
        raise TypeError(f"found {found}, expected one of them")
    if executor is not None and workers is not None:
        raise TypeError("found an executor and workers, expected one of them")
    for name, number in [("workers", workers), ("threads", threads)]:
        if number is not None and not 1 <= number <= 256:
            raise ValueError(f"{name}: found {number}, expected a number from 1 to 256")
    if plan is None:
        assert traces is not None
        named = [traces] if isinstance(traces, (str, os.PathLike)) else traces
        runs = [words] if run is None else [{**words, **one} for one in ([run] if isinstance(run, dict) else run)]
        plan = {"traces": [os.fspath(trace) for trace in named], "out": out if out is None else os.fspath(out), "run": runs}
    else:
        beside = [*words, *(name for name, value in [("run", run), ("out", out)] if value is not None)]
        if beside:
            raise TypeError(f"a plan says all that is to be run: found {beside[0]} beside it, expected a plan alone")
    tasks = _flashwise.sweep_tasks(plan, shard)
    done = Sweep()

    def end(task, future):
        """Records the result of a task; raises an error that ends the sweep."""
        try:
            done.files.append(future.result())
        except (ValueError, OSError, RuntimeError) as error:
            trace = json.loads(task)["trace"]
            done.failures[trace] = str(error)
            if not keep_going:
                raise SweepError(f"{trace}: {error}" if trace not in str(error) else str(error)) from error
        if progress is not None:
            progress(len(done.files) + len(done.failures), len(tasks))

    if workers is not None:
        processes = _Processes()
        with concurrent.futures.ThreadPoolExecutor(workers) as pool:
            try:
                _on(pool, processes.run, tasks, threads, end)
            except SweepError:
                raise
            except BaseException:
                processes.kill()
                raise
    elif executor is not None:
        _on(executor, run_task, tasks, threads, end)
    else:
        for task in tasks:
            future: concurrent.futures.Future[str] = concurrent.futures.Future()
            try:
                future.set_result(run_task(task, threads))
            except Exception as error:  # noqa: BLE001: kept as an executor keeps it
                future.set_exception(error)
            end(task, future)
    done.files.sort()
    return done


def _on(executor, run, tasks, threads, end):
    """Runs tasks on an executor. Once a task ends the sweep, no further one starts."""
    futures = {executor.submit(run, task, threads): task for task in tasks}
    try:
        for future in concurrent.futures.as_completed(futures):
            end(futures[future], future)
    except BaseException:
        for future in futures:
            future.cancel()
        raise


class _Processes:
    """Runs each task in its own process, so a crash loses only that task.

    A process pool of the standard library would hang if one dies while it receives its task (before Python 3.11.5).
    """

    def __init__(self):
        self._lock = threading.Lock()
        self._running = set()
        self._killed = False

    def run(self, task, threads):
        """Runs a task as run_task does, and again if its process dies."""
        said = json.dumps({"path": sys.path, "task": task, "threads": threads})
        command = [multiprocessing.spawn.get_executable(), "-c", PROCESS]
        for _ in range(ATTEMPTS):
            with self._lock:
                if self._killed:
                    raise RuntimeError("the sweep was ended")
                process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
                self._running.add(process)
            out, _ = process.communicate(said)
            with self._lock:
                self._running.discard(process)
            if process.returncode == 0:
                result = json.loads(out)
                if "error" in result:
                    raise RuntimeError(result["error"])
                return result["file"]
        how = f"signal {-process.returncode}" if process.returncode < 0 else f"exit code {process.returncode}"
        raise RuntimeError(f"its process ended with {how}, {ATTEMPTS} times")

    def kill(self):
        """Stops running tasks, and starts no more."""
        with self._lock:
            self._killed = True
            for process in self._running:
                process.kill()
