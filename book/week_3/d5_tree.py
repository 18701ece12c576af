"""Draws a tree of pages, four words in each: what is known, who holds it, what is found of another text."""

from tiny_llm.serving.page_pool import PagePool
from tiny_llm.serving.prefix_tree import PrefixTree

pool = PagePool(num_pages=24, page_size=4)
tree = PrefixTree(pool)
words = []  # a word's token is its place in this list


def encode(text: str) -> list[int]:
    words.extend(word for word in text.split() if word not in words)
    return [words.index(word) for word in text.split()]


def draw() -> None:
    """Each page on a line of its own, behind the one that it follows."""
    depth = {id(tree.root): 0}
    for node in tree.root:
        depth[id(node)] = depth[id(node.parent)] + 1
    for node in sorted(tree.root, key=path):
        text = "    " * (depth[id(node)] - 1) + " ".join(words[token] for token in node.tokens)
        print(f"{text:44}page {node.page}, holders: {pool.holders(node.page)}")


def path(node) -> list[int]:
    return [] if node is tree.root else [*path(node.parent), node.page]


def compute(text: str) -> list[int]:
    """A request that computes this text, in pages of its own. Returns those that it is to use from then on."""
    tokens = encode(text)
    had = pool.allocate(pool.pages_for(len(tokens)))
    used = tree.insert(tokens, had)
    print(f"{len(tokens)} words: on pages {had}, then on {used}")
    return used


SYSTEM = "you tell stories to children . be kind and short"
pool.release(compute(f"{SYSTEM} . tell me about a cat and a dog"))  # this one is over
compute(f"{SYSTEM} . tell me about a bird in a tree")  # all others go on
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
