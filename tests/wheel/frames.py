"""Tables go to pandas, polars and pyarrow, and traces come from them. Argument: the folder of traces."""

import array
import sys

import altair
import flashwise
import numpy
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
assert list(pandas_table.columns) == table.columns and pandas_table["hits"].tolist() == [row["hits"] for row in rows]
assert pyarrow.schema(table).names == table.columns
# Nothing is copied: both have the same memory.
hits = [pyarrow.table(table).column("hits").chunk(0).buffers()[1].address for _ in range(2)]
assert hits[0] == hits[1], hits
table.write_parquet("rows.parquet")
assert polars.read_parquet("rows.parquet").to_dicts() == rows

# A column is a list. A figure that a row lacks is None.
assert table["hits"] == [row["hits"] for row in rows] and table["policy"][0] == "lru"
both = flashwise.simulate([1, 2, 1], jobs=["policy=lru size=2", "policy=lru size=2 ram=50%"])
assert None in both["ram_read_hits"], both["ram_read_hits"]
try:
    table["hit_ration"]
except KeyError as error:
    assert "hit_ration" in str(error) and "Table.columns" in str(error), error
else:
    raise AssertionError("a column that does not exist was found")

# Frames are tidy: a row for each result, and no lists in cells.
for frame in (table.to_pandas(), table.to_polars()):
    assert list(frame.columns) == [name for name in table.columns if name != "epochs"] and len(frame) == 4
    assert frame["hits"].to_list() == table["hits"]
assert isinstance(table.to_pandas(), pandas.DataFrame) and isinstance(table.to_polars(), polars.DataFrame)
for frame in (table.to_pandas(epochs=True), table.to_polars(epochs=True)):
    assert len(frame) == 12 and frame["epoch"].to_list() == [0, 1, 2] * 4
    assert frame["hit_ratio"].to_list() == [epoch["hit_ratio"] for row in rows for epoch in row["epochs"]]
    assert frame["policy"].to_list() == [row["policy"] for row in rows for _ in row["epochs"]]
curves = flashwise.curve([1, 2, 3, 1, 2, 3], "lru", [1, 3])
assert curves.to_pandas()["hit_ratio"].tolist() == curves.to_polars()["hit_ratio"].to_list() == [0.0, 0.5]
for call in (curves.to_pandas, both.to_polars):
    try:
        call(epochs=True)
    except ValueError as error:
        assert "without epochs" in str(error), error
    else:
        raise AssertionError("a table without epochs gave some")

# Altair takes them as they are, and a pandas frame too.
for frame in (table.to_pandas(), table.to_polars()):
    chart = altair.Chart(frame).mark_point().encode(x="size:N", y="hit_ratio:Q", color="policy:N").to_dict()
    (drawn,) = chart["datasets"].values()
    assert [row["hit_ratio"] for row in drawn] == table["hit_ratio"]

# Numbers of blocks are a trace, however they come. LRU of two blocks: 1 and 2 miss, 1 hits, 3 replaces 2, 1 hits, 2 misses.
numbers = [1, 2, 1, 3, 1, 2]
for blocks in [
    numbers,
    tuple(numbers),
    numpy.array(numbers),
    numpy.array(numbers, dtype="uint16"),
    pandas.Series(numbers),
    polars.Series(numbers),
    pyarrow.array(numbers),
    pyarrow.chunked_array([numbers[:2], numbers[2:]]),
    array.array("I", numbers),
    pandas.DataFrame({"block": numbers}),
    polars.DataFrame({"block": numbers, "time_us": range(6)}),
]:
    (row,) = flashwise.simulate(blocks, "lru", 2).to_dicts()
    assert (row["accesses"], row["reads"], row["hits"], row["unique_blocks"]) == (6, 6, 2, 3), (type(blocks), row)
    assert len(flashwise.read_trace(blocks)) == 6
assert flashwise.simulate(range(100), "lru", 5)["hits"] == [0]
assert flashwise.read_trace(numbers, name="mine").name == "mine" and flashwise.read_trace(numbers).name == "blocks"
two = flashwise.simulate([numbers, numpy.array([5, 5])], "lru", 1)
assert (two["accesses"], two["hits"]) == ([6, 2], [0, 1])
# A column of numbers is one of blocks at any block size; op may be the number that a trace has.
assert flashwise.simulate(pandas.DataFrame({"block": numbers}), "lru", 2, block_size="64KiB")["hits"] == [2]
writes = polars.DataFrame({"block": numbers, "op": [0, 1, 0, 1, 0, 0]})
assert (flashwise.simulate(writes, "lru", 2)["writes"], flashwise.simulate(writes, "lru", 2)["hits"]) == ([2], [2])
# The accesses of a trace in columns are a trace again, whole or in part.
opened = flashwise.read_trace(numbers)
assert flashwise.simulate(polars.DataFrame(opened), "lru", 2)["hits"] == [2]
assert flashwise.simulate(polars.DataFrame(opened).filter(polars.col("block") != 0), "lru", 2)["accesses"] == [3]
for blocks, kind, said in [
    ([1, -2], TypeError, "found -2 at 1"),
    ([1, 2.5], TypeError, "found 2.5 at 1"),
    (numpy.array([0.5]), TypeError, "at 0, expected the number of a block"),
    ([], ValueError, "found an empty list"),
    (5, TypeError, "found a value of the type int"),
    ({"block": [1]}, TypeError, "found a value of the type dict"),
]:
    try:
        flashwise.simulate(blocks, "lru", 2)
    except kind as error:
        assert said in str(error), error
    else:
        raise AssertionError(said)

# A float is a share, an int a number of blocks, also those of numpy.
wanted = flashwise.simulate(numbers, "lru", ["50%", "100%"]).to_csv()
for sizes in ([0.5, 1.0], numpy.array([0.5, 1.0]), pandas.Series([0.5, 1.0]), (0.5, "100%")):
    assert flashwise.simulate(numbers, "lru", sizes).to_csv() == wanted, sizes
assert flashwise.simulate(numbers, "lru", 0.07 * 10)["size"] == ["70%"]
assert flashwise.simulate(numbers, "lru", numpy.arange(1, 4))["size"] == flashwise.simulate(numbers, "lru", range(1, 4))["size"] == ["1", "2", "3"]
for sizes in (1.5, 0.0, -0.1, float("nan")):
    try:
        flashwise.simulate(numbers, "lru", sizes)
    except ValueError as error:
        assert "expected a share above 0 and up to 1" in str(error), error
    else:
        raise AssertionError(sizes)

# The example is the bundled trace.
example = flashwise.load_example()
assert example.name == "netsfs" and {**example.info(), "trace": ""} == {**flashwise.info(f"{traces}/netsfs.csv.zst"), "trace": ""}

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
