"""Writes documents.parquet: three row groups, text columns of several kinds, one with a null."""

import pathlib

import pyarrow
import pyarrow.parquet

ROWS = 3000
table = pyarrow.table({
    "nested": pyarrow.array([{"a": i, "b": str(i)} for i in range(ROWS)]),
    "number": pyarrow.array(range(ROWS), pyarrow.int64()),
    "text": pyarrow.array([f"document {i}" for i in range(ROWS)], pyarrow.string()),
    "large": pyarrow.array([f"large {i}" for i in range(ROWS)], pyarrow.large_string()),
    "holes": pyarrow.array([None if i == 6 else "x" for i in range(ROWS)], pyarrow.string()),
})
out = pathlib.Path(__file__).parent / "documents.parquet"
pyarrow.parquet.write_table(table, out, row_group_size=1000, compression="zstd")
print(out, out.stat().st_size, "bytes, pyarrow", pyarrow.__version__)
