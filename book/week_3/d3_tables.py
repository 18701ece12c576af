"""Print the owners of twelve pages of four positions while three requests arrive, grow and leave."""

from tiny_llm.serving.page_pool import PagePool
from tiny_llm.serving.paged_cache import PagedKVCache
from tiny_llm.serving.request import Request

cache = PagedKVCache(1, PagePool(num_pages=12, page_size=4))
requests: dict[str, Request] = {}


def show(what: str) -> None:
    """Print the owner of each page, and the computed tokens and the pages of each request."""
    owner = {page: id for id, request in requests.items() for page in request.pages}
    row = " ".join(owner.get(page, ".") for page in range(cache.pool.num_pages))
    tables = "  ".join(f"{id} {request.num_computed_tokens:2} {request.pages}" for id, request in requests.items())
    print(f"{what:16} {row}   {tables}")


def come(id: str, count: int) -> None:
    """Add a request with a prompt of `count` tokens, which count as computed. No model is run."""
    requests[id] = request = Request(id, [0] * count)
    cache.open(request)
    cache.commit(request, count)
    show(f"{id} comes")


def grow(id: str, count: int) -> None:
    """Add `count` tokens to a request, which count as computed, too."""
    reserve(id, count)
    requests[id].output += [0] * count
    cache.commit(requests[id], requests[id].num_tokens)
    show(f"{id} + {count}")


def reserve(id: str, count: int) -> bool:
    return cache.reserve(requests[id], count)


come("a", 6)
come("b", 9)
grow("a", 2)
grow("a", 1)
come("c", 3)
grow("b", 5)
cache.close(requests.pop("a"))
show("a leaves")
grow("c", 10)
reserve("b", 7)
show("b reserves 7")
requests["b"].output += [0]
cache.commit(requests["b"], 15)
show("b commits 1")
come("d", 12)
print(f"room for 9 more of d: {reserve('d', 9)}; it has {requests['d'].pages}")
