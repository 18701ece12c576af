"""Print how long requests that arrive at random wait for a server that runs 16 at a time and finishes 8 per second."""

import heapq

import numpy as np

PLACES, SECONDS, COUNT = 16, 2.0, 20_000  # requests at the same time; per request; number of requests


def waits(load, most=None):
    """Return each request's wait in seconds, or None if it was refused because `most` requests were waiting."""
    arrivals = np.random.default_rng(1).exponential(SECONDS / PLACES / load, COUNT).cumsum()
    free, starts, found = [0.0] * PLACES, [], []  # when each place is free; when the waiting requests begin
    for arrival in arrivals:
        starts = [start for start in starts if start > arrival]
        if most is not None and len(starts) >= most:
            found.append(None)
            continue
        start = max(arrival, free[0])
        heapq.heapreplace(free, start + SECONDS)
        if start > arrival:
            starts.append(start)
        found.append(start - arrival)
    return found


if __name__ == "__main__":
    print("          everybody waits       64 may wait")
    print("load      median     99 %       median     99 %     refused")
    for load in (0.5, 0.8, 0.95, 1.0, 1.1, 1.5):
        whole, bounded = waits(load), waits(load, 64)
        served = [wait for wait in bounded if wait is not None]
        shown = [f"{value:8.1f} s" for each in (whole, served) for value in np.percentile(each, [50, 99])]
        print(f"{load:4.0%} {shown[0]} {shown[1]}   {shown[2]} {shown[3]} {1 - len(served) / COUNT:9.1%}")
