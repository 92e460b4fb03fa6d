"""Data frames of tables."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pandas
    import polars

    from ._flashwise import Table

# The columns that tell an epoch's row from those of other rows.
KEYS = ("trace", "job", "policy", "size", "capacity_blocks")


def to_pandas(table: Table, epochs: bool) -> pandas.DataFrame:
    """Returns the rows of a table, or their epochs, for pandas."""
    import pandas

    if epochs:
        return pandas.DataFrame(_epochs(table))
    if hasattr(pandas.DataFrame, "from_arrow"):
        frame = pandas.DataFrame.from_arrow(table)
    else:  # before pandas 3
        import pyarrow

        frame = pyarrow.table(table).to_pandas()
    return frame.drop(columns="epochs", errors="ignore")


def to_polars(table: Table, epochs: bool) -> polars.DataFrame:
    """Returns the rows of a table, or their epochs, for polars."""
    import polars

    if epochs:
        return polars.DataFrame(_epochs(table), infer_schema_length=None)
    return polars.DataFrame(table).drop("epochs", strict=False)


def _epochs(table: Table) -> list[dict[str, Any]]:
    """Returns a dictionary for each epoch of each row."""
    rows = table.to_dicts()
    if not any(row.get("epochs") for row in rows):
        raise ValueError("epochs: found a table without epochs, expected one of simulate with the keyword epoch")
    return [{**{key: row.get(key) for key in KEYS}, "epoch": number, **epoch} for row in rows for number, epoch in enumerate(row["epochs"])]
