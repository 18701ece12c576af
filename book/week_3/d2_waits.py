"""Print the latencies of one request, and the mean and percentiles of a hundred waits."""

from tiny_llm.serving.latency import latencies, percentile

print("came at 10, tokens at 12, 13 and 17:", latencies(10.0, [12.0, 13.0, 17.0]))

waits = [20.0] * 97 + [150.0, 40.0, 2000.0]  # milliseconds
print(f"mean {sum(waits) / len(waits):.1f}")
for percent in (0, 50, 97, 98, 99, 99.5, 100):
    print(f"p{percent:<5}{percentile(waits, percent):8,.0f}")
