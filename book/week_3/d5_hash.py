"""Look up tokens whose hash equals that of other tokens: in a cache keyed by hashes, and in a tree keyed by tokens."""

from tiny_llm.serving.page_pool import PagePool
from tiny_llm.serving.prefix_tree import PrefixTree

theirs = [103, 7, 52, 9]
ours = [103 + 2**61 - 1, 7, 52, 9]
print(f"the same tokens: {ours == theirs}, the same hash: {hash(tuple(ours)) == hash(tuple(theirs))}")

by_hash = {hash(tuple(theirs)): 0}  # hash -> page
print(f"by hash:   ours is on page {by_hash.get(hash(tuple(ours)))}")

tree = PrefixTree(PagePool(num_pages=8, page_size=4))
tree.insert(theirs, tree.pool.allocate(1))
print(f"by tokens: ours is on pages {tree.match(ours)[0]}")
