"""Paged attention: the rows of many requests attend to keys and values in place, in the pages of a pool."""

import math
from pathlib import Path

import mlx.core as mx
import numpy as np

from tiny_llm_native import fallback
from tiny_llm_native.extension import kernel
from tiny_llm_native.metal import metal, uses_metal

__all__ = ["paged_attention", "paged_attention_metal", "store_pages"]

_HERE = Path(__file__).parent
_CPP, _METAL, _JOIN = _HERE / "paged_attention.cpp", _HERE / "paged_attention.metal", _HERE / "attention.metal"
_FEW = 32  # rows of a request: if a request has more rows, the kernel handles them in blocks
_LARGEST = 256  # numbers in a head, in Metal
_PART = 64  # keys per simdgroup
_ROWS = 8  # simdgroups per threadgroup
_INPUTS = ("query", "keys", "values", "tables", "rows", "scale")
_FOUND = ("maxima", "totals", "sums")


def paged_attention(
    query: mx.array,
    keys: mx.array,
    values: mx.array,
    tables: mx.array,
    spans: mx.array,
    scale: float | None = None,
) -> mx.array:
    """Compute causal attention for all rows of a step in one operation; each row attends to its own request.

    The kernel reads keys and values in their pages, and copies nothing. A step may mix prompts and single tokens. The
    kernel handles the many rows of a prompt in blocks; for a request with few rows, threads share out the keys.
    Shapes: query: T x H_q x D, keys and values: P x H_kv x page_size x D, tables: R x W, spans: R x 3 -> T x H_q x D.
    Query head h reads key/value head h // (H_q / H_kv). query, keys, values and the result have the same float dtype;
    the arithmetic is float32. tables and spans are int32.
    tables: row r lists the pages of request r in the order of its positions: page tables[r, i] holds positions
        i * page_size up to, not including, (i + 1) * page_size. Entries after the request's last page are ignored.
    spans: first, last and length of each request. Rows first to last (exclusive) of the step are the request's newest
        positions. `length` counts all stored positions, including these rows', so row i of the step sees the first
        length - (last - 1 - i) positions. The spans follow one another, and together they cover all T rows.
    scale: None means 1/sqrt(D).
    Source: Kwon et al. 2023, "Efficient Memory Management for Large Language Model Serving with PagedAttention",
    section 4, arXiv:2309.06180.

    Raises:
        ValueError: shapes or dtypes do not match; spans do not follow one another; a table has too few pages for its
            request's length, or names a page that does not exist.
    """
    if uses_metal(_METAL, "w3d4.3"):
        return paged_attention_metal(query, keys, values, tables, spans, scale)
    _check_arrays(query, keys, values, tables, spans)
    rows = [last - first for first, last, _ in _check_places(query, keys, tables, spans)]
    scale = 1 / math.sqrt(query.shape[-1]) if scale is None else scale
    tasks = ["w3d4.1"]
    tasks += ["w2d7.2"] if max(rows, default=0) > _FEW else []  # blocks of queries are those of flash_attention
    tasks += ["w3d4.2"] if min(rows, default=0) <= _FEW else []
    run = kernel(_CPP, "attend_pages", *tasks)
    if run is None:
        return fallback.paged_attention(query, keys, values, tables, spans, scale)
    return run([query, keys, values, tables, spans], [(query.shape, query.dtype)], [scale, _FEW])[0]


def paged_attention_metal(
    query: mx.array,
    keys: mx.array,
    values: mx.array,
    tables: mx.array,
    spans: mx.array,
    scale: float | None = None,
) -> mx.array:
    """Compute the same result as `paged_attention` on a GPU, or in metal_host if there is none.

    The kernel handles each row separately: each simdgroup takes a part of the keys that the row sees, and a second pass
    joins the results of these parts. For heads of more than 256 numbers, MLX's own operations run instead.
    """
    run = metal(_METAL, "attend_part", _INPUTS, _FOUND, "w3d4.3")
    _check_arrays(query, keys, values, tables, spans)
    places = _check_places(query, keys, tables, spans)
    scale = 1 / math.sqrt(query.shape[-1]) if scale is None else scale
    if query.size == 0 or query.shape[-1] > _LARGEST:
        return fallback.paged_attention(query, keys, values, tables, spans, scale)
    T, H_q, D = query.shape
    rows = [
        (i, length - last + row + 1) for i, (first, last, length) in enumerate(places) for row in range(first, last)
    ]
    parts = -(-max(sees for _, sees in rows) // _PART)
    found = [((T * H_q, parts, *last), mx.float32) for last in ((), (), (D,))]
    inputs = [query, keys, values, tables, mx.array(rows, mx.int32), mx.array(scale, mx.float32)]
    grid, threads = (32 * parts, H_q, T), (32, min(H_q, _ROWS), 1)
    of_parts = run(inputs, found, grid, threads, [("T", query.dtype), ("D", D)])
    join = metal(_JOIN, "join_split_kv", _FOUND, ["out"])
    out, grid, threads = [((T * H_q, D), query.dtype)], (D, T * H_q, 1), (min(D, 32), 1, 1)
    return join(of_parts, out, grid, threads, [("T", query.dtype)])[0].reshape(query.shape)


def store_pages(
    keys: mx.array, values: mx.array, key: mx.array, value: mx.array, pages: mx.array, places: mx.array
) -> tuple[mx.array, mx.array]:
    """Return `keys` and `values` with row t's key and value written to place `places[t]` of page `pages[t]`.

    Assign the results to the variables that held `keys` and `values`: if nothing else refers to these arrays, the
    results take over the arrays' memory, and only the places of the rows are written. No two rows may have the same
    page and place.
    Shapes: keys and values: P x H_kv x page_size x D, key and value: T x H_kv x D, pages and places: T, int32. All
    other arrays have the same float dtype.

    Raises:
        ValueError: shapes or dtypes do not match, or a page or place does not exist.
    """
    _check_stored(keys, values, key, value, pages, places)
    run = None if uses_metal(_METAL) else kernel(_CPP, "store_pages")
    if run is None:
        return fallback.store_pages(keys, values, key, value, pages, places)
    stored, also = run([key, value, pages, places], [], [], [keys, values])
    return stored, also


def _check_arrays(query: mx.array, keys: mx.array, values: mx.array, tables: mx.array, spans: mx.array) -> None:
    if query.ndim != 3 or not query.shape[-1]:
        raise ValueError(f"query: expected shape T x H_q x D, got {query.shape}")
    _check_pages(keys, values, query)
    H_q, H_kv = query.shape[1], keys.shape[1]
    if H_kv < 1 or H_q % H_kv:
        raise ValueError(f"query heads: expected a multiple of the {H_kv} key/value heads, got {H_q}")
    if spans.ndim != 2 or spans.shape[1] != 3 or tables.ndim != 2 or len(tables) != len(spans):
        raise ValueError(f"expected tables R x W and spans R x 3, got {tables.shape} and {spans.shape}")
    if tables.dtype != mx.int32 or spans.dtype != mx.int32:
        raise ValueError(f"tables, spans: expected int32, got {tables.dtype}, {spans.dtype}")


def _check_pages(keys: mx.array, values: mx.array, rows: mx.array) -> None:
    if keys.ndim != 4 or not keys.shape[2] or keys.shape[3] != rows.shape[-1]:
        raise ValueError(f"keys: expected shape P x H_kv x page_size x {rows.shape[-1]}, got {keys.shape}")
    if values.shape != keys.shape:
        raise ValueError(f"values: expected shape {keys.shape}, as keys have, got {values.shape}")
    if not keys.dtype == values.dtype == rows.dtype or not mx.issubdtype(keys.dtype, mx.floating):
        raise ValueError(
            f"rows, keys, values: expected one float dtype, got {rows.dtype}, {keys.dtype}, {values.dtype}"
        )


def _check_places(query: mx.array, keys: mx.array, tables: mx.array, spans: mx.array) -> list[list[int]]:
    """Check the spans and the tables. Return the spans as lists of Python integers."""
    found: list[list[int]] = np.array(spans, copy=False).tolist()
    page_size, width, end = keys.shape[2], tables.shape[1], 0
    for first, last, length in found:
        if first != end or not first < last <= first + length:
            expected = f"first = {end}, one row or more, and no more rows than length"
            raise ValueError(f"spans: expected {expected}, got {[first, last, length]}")
        if length > width * page_size:
            raise ValueError(f"tables: expected pages for a length of {length}, got {width} of {page_size}")
        end = last
    if end != len(query):
        raise ValueError(f"spans: expected {len(query)} rows, got {end}")
    _check_tables(np.array(tables, copy=False), len(keys), [-(-length // page_size) for _, _, length in found])
    return found


def _check_tables(tables: np.ndarray, num_pages: int, needed: list[int]) -> None:
    if not (tables.view(np.uint32) >= num_pages).any():
        return  # every entry is an existing page, even the ignored entries
    for table, count in zip(tables, needed, strict=True):
        for page in table[:count].tolist():
            if not 0 <= page < num_pages:
                raise ValueError(f"tables: expected pages 0 to {num_pages - 1}, got {page}")


def _check_stored(
    keys: mx.array, values: mx.array, key: mx.array, value: mx.array, pages: mx.array, places: mx.array
) -> None:
    if key.ndim != 3 or keys.ndim != 4 or key.shape[1] != keys.shape[1]:
        raise ValueError(f"key: expected shape T x H_kv x D, for keys {keys.shape}, got {key.shape}")
    _check_pages(keys, values, key)
    if (value.shape, value.dtype) != (key.shape, key.dtype):
        raise ValueError(f"value: expected {key.shape} in {key.dtype}, as key, got {value.shape} in {value.dtype}")
    for name, chosen, count in (("pages", pages, keys.shape[0]), ("places", places, keys.shape[2])):
        if chosen.shape != key.shape[:1] or chosen.dtype != mx.int32:
            raise ValueError(f"{name}: expected {len(key)} in int32, got {chosen.shape} in {chosen.dtype}")
        numbers: list[int] = np.array(chosen, copy=False).tolist()
        if numbers and not 0 <= min(numbers) <= max(numbers) < count:
            raise ValueError(f"{name}: expected 0 to {count - 1}, got {min(numbers)} to {max(numbers)}")
