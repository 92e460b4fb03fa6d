"""Sweeps leave the same files wherever they run. Argument: the program."""

import json
import os
import pathlib
import signal
import subprocess
import sys
import threading
import time

import boto3
import flashwise
import polars
from dask.distributed import Client, LocalCluster
from moto.server import ThreadedMotoServer

RUNS = [
    {"policy": ["lru", "larc"], "size": ["5%", "20%"]},
    {"policy": ["lru", "m+"], "size": "20%", "erase-unit": "16KiB", "spare": ["7%", 0.28], "write-buffers": [2, 4]},
]
WORKLOADS = 4


def files(folder):
    """The files of a folder and their contents."""
    return {path.name: path.read_bytes() for path in pathlib.Path(folder).iterdir()}


def main():
    (program,) = sys.argv[1:]
    traces = []
    for seed in range(WORKLOADS):
        traces.append(f"trace{seed}.arrow")
        flashwise.generate(traces[-1], blocks=4000, accesses=30_000, seed=seed)
    plan = {"traces": "trace?.arrow", "run": RUNS}

    # By keywords, here; the rows are those of simulate.
    told = []
    serial = flashwise.sweep(traces=traces, out="serial", run=RUNS, progress=lambda done, of: told.append((done, of)))
    expected = files("serial")
    assert told == [(number + 1, WORKLOADS) for number in range(WORKLOADS)] and not serial.failures
    assert sorted(pathlib.Path(file).name for file in serial.files) == sorted(expected) and len(expected) == WORKLOADS
    jobs = json.loads(flashwise._flashwise.sweep_tasks({**plan, "out": "serial"})[0])["jobs"]
    # lru and larc at two sizes; lru and m+ with two shares of spare flash and two numbers of write buffers.
    assert len(jobs) == 4 + 8, jobs
    rows = polars.read_parquet(serial.files[0])
    assert rows["job"].to_list() == [row["job"] for row in flashwise.simulate(traces[0], jobs=jobs).to_dicts()]
    assert rows["hits"].to_list() == [row["hits"] for row in flashwise.simulate(traces[0], jobs=jobs).to_dicts()]
    sum_of = subprocess.run(["sha256sum", traces[0]], capture_output=True, check=True).stdout.split()[0].decode()
    assert set(rows["trace_checksum"]) == {sum_of} and set(rows["version"]) == {flashwise.__version__}

    # On processes, on Dask, by shards and by the command line: bit for bit the same.
    def lines(out):
        listed = lambda value: json.dumps(value)
        text = f'traces = "trace?.arrow"\nout = "{out}"\n'
        for run in RUNS:
            text += "[[run]]\n" + "".join(f"{word} = {listed(value)}\n" for word, value in run.items())
        pathlib.Path("plan.toml").write_text(text)
        return "plan.toml"

    flashwise.sweep({**plan, "out": "processes"}, workers=2, threads=1)
    with LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None) as cluster, Client(cluster) as client:
        flashwise.sweep(lines("dask"), executor=client.get_executor(), threads=1)
    for shard in ["1/3", "2/3", "3/3"]:
        flashwise.sweep({**plan, "out": "shards"}, shard=shard)
    subprocess.run([program, "sweep", lines("program"), "--workers", "2"], check=True, capture_output=True)
    for out in ["processes", "dask", "shards", "program"]:
        assert files(out) == expected, out

    objects(traces, plan, "serial")

    # What is there is not run again; what is missing is.
    before = {path: path.stat().st_mtime_ns for path in pathlib.Path("serial").iterdir()}
    lost = pathlib.Path(serial.files[1])
    lost.unlink()
    again = flashwise.sweep({**plan, "out": "serial"})
    assert files("serial") == expected and again.files == serial.files
    assert all(path.stat().st_mtime_ns == time for path, time in before.items() if path != lost)

    # One bad trace costs its own task.
    pathlib.Path("bad.csv").write_text("nothing\n")
    bad = ["trace0.arrow", "bad.csv", "none.csv", "trace1.arrow"]
    for keywords in [{}, {"workers": 2, "threads": 1}]:
        out = f"bad{len(keywords)}"
        found = flashwise.sweep(traces=bad, out=out, keep_going=True, run=RUNS, **keywords)
        assert set(found.failures) == {"bad.csv", "none.csv"} and len(found.files) == 2, found.failures
        assert set(files(out).items()) <= set(expected.items())
    try:
        flashwise.sweep(traces=bad, out="first", run=RUNS)
    except RuntimeError as error:
        assert "bad.csv" in str(error) and len(files("first")) == 1, error
    else:
        raise AssertionError("a bad trace passed")

    # A worker that is killed costs its task, which is begun again.
    killed = threading.Thread(target=kill_one, daemon=True)
    killed.start()
    flashwise.sweep({**plan, "out": "killed"}, workers=2, threads=1)
    killed.join()
    assert files("killed") == expected and KILLED, KILLED


def objects(traces, plan, here):
    """Traces and results in S3, on Dask: the rows are those of files."""
    server = ThreadedMotoServer(port=0)
    server.start()
    host, port = server.get_host_and_port()
    os.environ |= {
        "AWS_ENDPOINT_URL": f"http://{host}:{port}",
        "AWS_ACCESS_KEY_ID": "someone",
        "AWS_SECRET_ACCESS_KEY": "secret",
        "AWS_REGION": "us-east-1",
    }
    s3 = boto3.client("s3", region_name="us-east-1")
    s3.create_bucket(Bucket="traces")
    s3.create_bucket(Bucket="results")
    for trace in traces:
        s3.upload_file(trace, "traces", f"arrow/{trace}")
    plan = {**plan, "traces": "s3://traces/arrow/*", "out": "s3://results/all", "cache": "copies"}
    with LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None) as cluster, Client(cluster) as client:
        done = flashwise.sweep(plan, executor=client.get_executor(), threads=1)
    assert len(done.files) == WORKLOADS and not done.failures
    os.mkdir("fetched")
    for file in done.files:
        s3.download_file("results", file.removeprefix("s3://results/"), f"fetched/{file.rsplit('/')[-1]}")
    rows = lambda folder: polars.concat(
        polars.read_parquet(path).with_columns(polars.col("trace").str.split("/").list.last())
        for path in sorted(pathlib.Path(folder).iterdir())
    ).sort("trace", "job")
    assert rows("fetched").equals(rows(here))
    assert [flashwise._flashwise.sweep_find(task) for task in flashwise._flashwise.sweep_tasks(plan)] == [
        (file, True) for file in done.files
    ]
    server.stop()


KILLED = []


def kill_one():
    """Kills the first worker that there is."""
    while not KILLED:
        for child in pathlib.Path(f"/proc/{os.getpid()}/task").glob("*/children"):
            for pid in child.read_text().split():
                command = pathlib.Path(f"/proc/{pid}/cmdline").read_bytes()
                if b"flashwise._sweep" in command:
                    os.kill(int(pid), signal.SIGKILL)
                    KILLED.append(pid)
                    return
        time.sleep(0.01)


if __name__ == "__main__":
    main()
