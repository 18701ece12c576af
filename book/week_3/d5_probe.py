"""Guess another user's prompt token by token from the number of tokens that the model has to compute."""

from tiny_llm.serving.page_pool import PagePool
from tiny_llm.serving.prefix_tree import PrefixTree

tree = PrefixTree(PagePool(num_pages=16, page_size=4))
begin = [ord(letter) for letter in "the code is "]
secret = begin + [ord(letter) for letter in "7291"]
tree.insert(secret, tree.pool.allocate(4))  # another user's prompt was served


def computed(prompt: list[int]) -> int:
    """Return how many tokens the model has to compute. For long prompts, a stopwatch shows this number."""
    return len(prompt) - tree.match(prompt[:-1])[1]


known, tries = list(begin), 0
while len(known) < len(secret):
    counts = {}
    for digit in "0123456789":
        counts[digit] = computed([*known, ord(digit), 0])
        tries += 1
    fastest = min(counts, key=counts.get)
    print(f"{''.join(map(chr, known)):16} " + " ".join(f"{digit}:{count}" for digit, count in counts.items()))
    known.append(ord(fastest))
print(f"{''.join(map(chr, known))}, after {tries} tries of {10**4:,}")
