"""Evict the pages of a tree one by one, and print the texts in the order of their last use."""

from tiny_llm.serving.page_pool import PagePool
from tiny_llm.serving.prefix_tree import PrefixTree

pool = PagePool(num_pages=16, page_size=1)
tree = PrefixTree(pool)


def text_of(node) -> str:
    return "" if node is tree.root else text_of(node.parent) + chr(node.tokens[0])


def remember(text: str) -> list[int]:
    tokens = [ord(letter) for letter in text]
    return tree.insert(tokens, pool.allocate(len(tokens)))


def show(what: str) -> None:
    """Print the text of each node, the least recently used node first. Brackets mark pages that a request holds."""
    texts = [
        f"[{text_of(node)}]" if pool.holders(node.page) > 1 else text_of(node)
        for node in sorted(tree.root, key=lambda node: node.last_used)
    ]
    print(f"{what:22}{'  '.join(texts)}")


for text in ("abc", "abd", "xy", "z"):
    pool.release(remember(text))
show("four texts")
held, _ = tree.match([ord("x")])
pool.share(held)
show("somebody takes x")
tree.match([ord("a"), ord("b")])
show("ab is looked for")
for _ in range(5):
    before = {text_of(node) for node in tree.root}
    count = tree.evict(1)
    show(f"{count} page goes: {''.join(before - {text_of(node) for node in tree.root})}")
print(f"asked for 5: {tree.evict(5)}")
pool.release(held)
print(f"asked for 5, when x is held by nobody: {tree.evict(5)}; {pool.num_free} of {pool.num_pages} pages are free")
