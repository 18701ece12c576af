"""Print a tree of pages with four words each, the holders of each page, and the pages that match other texts."""

from tiny_llm.serving.page_pool import PagePool
from tiny_llm.serving.prefix_tree import PrefixTree

pool = PagePool(num_pages=24, page_size=4)
tree = PrefixTree(pool)
words = []  # a word's token is its index in this list


def encode(text: str) -> list[int]:
    words.extend(word for word in text.split() if word not in words)
    return [words.index(word) for word in text.split()]


def draw() -> None:
    """Print each page on its own line, indented under its parent."""
    depth = {id(tree.root): 0}
    for node in tree.root:
        depth[id(node)] = depth[id(node.parent)] + 1
    for node in sorted(tree.root, key=path):
        text = "    " * (depth[id(node)] - 1) + " ".join(words[token] for token in node.tokens)
        print(f"{text:44}page {node.page}, holders: {pool.holders(node.page)}")


def path(node) -> list[int]:
    return [] if node is tree.root else [*path(node.parent), node.page]


def compute(text: str) -> list[int]:
    """Let a request compute this text in new pages. Return the pages that the request uses from then on."""
    tokens = encode(text)
    had = pool.allocate(pool.pages_for(len(tokens)))
    used = tree.insert(tokens, had)
    print(f"{len(tokens)} words: on pages {had}, then on {used}")
    return used


SYSTEM = "you tell stories to children . be kind and short"
pool.release(compute(f"{SYSTEM} . tell me about a cat and a dog"))  # this request has finished
compute(f"{SYSTEM} . tell me about a bird in a tree")  # all other requests go on
compute(f"{SYSTEM} . who are you ?")
compute("be kind and short")
print()
draw()

print()
for text in (
    f"{SYSTEM} . tell me about a bird in a box",
    f"{SYSTEM} . tell us about a bird",
    "you tell stories to cats",
    "tell stories to children",
    "be kind and short , you tell stories",
):
    pages, length = tree.match(encode(text))
    print(f"{length:2} of {len(text.split()):2} words, on pages {pages!s:14}{text.replace(SYSTEM, '...')}")
