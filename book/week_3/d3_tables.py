"""Follows a pool of twelve pages, four positions each, while three requests come, grow and leave."""

from tiny_llm.serving.page_pool import PagePool
from tiny_llm.serving.paged_cache import PagedKVCache

pool = PagePool(num_pages=12, page_size=4)
cache = PagedKVCache(1, pool)


def show(what: str) -> None:
    """Who has which page, and each request's table."""
    owner = {page: id for id, table in cache.tables.items() for page in table}
    row = " ".join(owner.get(page, ".") for page in range(pool.num_pages))
    tables = "  ".join(f"{id} {cache.length(id):2} {table}" for id, table in cache.tables.items())
    print(f"{what:10} {row}   {tables}")


def come(id: str, length: int) -> None:
    cache.open(id, [0] * length)
    cache.extend(id, [0] * length)
    show(f"{id} comes")


def grow(id: str, count: int) -> None:
    cache.extend(id, [0] * count)
    show(f"{id} + {count}")


come("a", 6)
come("b", 9)
grow("a", 2)
grow("a", 1)
come("c", 3)
grow("b", 5)
cache.close("a")
show("a leaves")
grow("c", 10)
cache.trim("b", 7)
show("b - 7")
come("d", 12)
print(f"d + 9: {cache.missing('d', 9)} pages missing, {pool.num_free} free, room: {cache.can_extend('d', 9)}")
