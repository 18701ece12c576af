"""Print the mean number of tokens per step if each guess is accepted with probability a, whatever came earlier."""

RATES, COUNTS = (0.5, 0.7, 0.8, 0.9, 0.95), (1, 2, 3, 4, 6, 8, 12)


def expected(a: float, k: int) -> float:
    """Return the mean number of tokens of a step with k guesses: a sum over the number of accepted guesses, 0 to k."""
    return sum((i + 1) * a**i * (1 - a) for i in range(k)) + (k + 1) * a**k


print("tokens of a step")
print("  a \\ k" + "".join(f"{k:7}" for k in COUNTS))
for a in RATES:
    for k in COUNTS:
        assert abs(expected(a, k) - (1 - a ** (k + 1)) / (1 - a)) < 1e-12
    print(f"{a:7.2f}" + "".join(f"{expected(a, k):7.2f}" for k in COUNTS))

for cost in (0.25, 0.05):  # the time of one pass of the drafter, in passes of the model
    print(f"tokens for each pass of the model's time, if a guess costs {cost} of it and checking costs nothing")
    for a in RATES:
        found = [expected(a, k) / (1 + cost * k) for k in COUNTS]
        best = max(range(len(COUNTS)), key=found.__getitem__)
        marks = ["*" if i == best else " " for i in range(len(COUNTS))]
        print(f"{a:7.2f}" + "".join(f"{n:6.2f}{mark}" for n, mark in zip(found, marks, strict=True)))
