"""Tables go to pandas, polars and pyarrow, and traces come from them. Argument: the folder of traces."""

import sys

import flashwise
import pandas
import polars
import pyarrow

traces = sys.argv[1]
table = flashwise.simulate(f"{traces}/netsfs.csv.zst", ["lru", "larc"], ["1%", "10%"], epoch=500_000)
rows = table.to_dicts()
assert len(rows) == len(table) == 4 and len(rows[0]["epochs"]) == 3 and rows[0]["policy"] == "lru"
assert polars.DataFrame(table).to_dicts() == rows
assert pyarrow.table(table).to_pylist() == rows
pandas_table = pandas.DataFrame.from_arrow(table)
assert list(pandas_table.columns) == table.column_names and pandas_table["hits"].tolist() == [row["hits"] for row in rows]
assert pyarrow.schema(table).names == table.column_names
# Nothing is copied: both have the same memory.
hits = [pyarrow.table(table).column("hits").chunk(0).buffers()[1].address for _ in range(2)]
assert hits[0] == hits[1], hits
table.write_parquet("rows.parquet")
assert polars.read_parquet("rows.parquet").to_dicts() == rows

# What a frame says is what its CSV says, however its columns are typed.
flashwise.generate("trace.csv", blocks=5000, requests=8000, csv=True)
csv = pandas.read_csv("trace.csv")
expected = flashwise.simulate("trace.csv", ["lru", "m+"], ["10%", "50%"], erase_unit="16KiB").to_csv().replace("trace.csv", "frame")
frames = [
    csv,
    polars.read_csv("trace.csv"),
    pyarrow.Table.from_pandas(csv, preserve_index=False),
    csv.astype({"op": "category"}),
    polars.read_csv("trace.csv").with_columns(polars.col("op").cast(polars.Categorical)),
    pyarrow.Table.from_pandas(csv, preserve_index=False).to_reader(max_chunksize=100),
]
for frame in frames:
    trace = flashwise.read_trace(frame)
    assert trace.name == "frame"
    assert flashwise.simulate(trace, ["lru", "m+"], ["10%", "50%"], erase_unit="16KiB").to_csv() == expected, type(frame)
assert flashwise.simulate(csv, ["lru", "m+"], ["10%", "50%"], erase_unit="16KiB").to_csv() == expected
named = flashwise.read_trace(polars.read_csv("trace.csv").rename({"op": "kind"}), format="csv:op=kind", name="web")
assert named.info()["trace"] == "web" and named.info()["reads"] == flashwise.info("trace.csv")["reads"]

# The accesses of a trace in columns.
frame = polars.DataFrame(named)
assert frame.columns == ["time_us", "op", "block", "request", "request_blocks"]
info = named.info()
assert (len(frame), frame["block"].n_unique()) == (info["accesses"], info["unique_blocks"])
assert (frame["op"] == 0).sum() == info["reads"] and frame["request"][-1] + 1 == info["requests"]

for frame, said in [
    (polars.DataFrame({"offset": [[1], [2]]}), "column offset: found the type"),
    (polars.DataFrame({"when": [1], "what": ["read"]}), "offset"),
    (polars.DataFrame({"op": ["read"], "offset_bytes": ["far"]}), "frame, line 2: found"),
]:
    try:
        flashwise.read_trace(frame)
    except (TypeError, ValueError) as error:
        assert said in str(error), error
    else:
        raise AssertionError(said)

# What a notebook shows.
html = table._repr_html_()
assert html.count("<tr>") == 5 and "<td>larc</td>" in html
workload = flashwise.plot(flashwise.read_trace("trace.csv"))
assert {"Accesses over time and address", "Reuse distances"} <= {title for title, _ in workload.charts} and len(workload.charts) >= 4
chart = flashwise.plot(table)
assert chart.svg.startswith("<svg") and "larc" in chart.svg and chart._repr_html_().count("data:image/svg+xml") == 1
curve = flashwise.plot(flashwise.curve("trace.csv", ["lru", "sieve"]))
assert curve.svg.startswith("<svg") and "sieve" in curve.svg
curve.save("curve.svg")
assert open("curve.svg").read() == curve.svg
assert flashwise.pareto("trace.csv", "lru", "10%", erase_unit="16KiB")._repr_html_().count("data:image") == 1
