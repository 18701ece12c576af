"""Print the loads per product and the share of the peak for several tiles, on a processor with 32 registers."""

REGISTERS, WIDTH = 32, 16
IN_A_CYCLE, LATENCY = 2, 4  # vector loads, and also vector products; cycles until a sum can take the next product

print("  tile   sums   registers   loads   loads / product   bytes / product   of the peak")
for rows, vectors in ((1, 1), (1, 2), (4, 1), (8, 1), (4, 2), (6, 2), (8, 2), (12, 2), (6, 4), (16, 2)):
    sums, loads = rows * vectors, rows + vectors
    registers = sums + vectors + 1  # the sums, all vectors of w in a step, and one number of x at a time
    cycles = max(sums / IN_A_CYCLE, loads / IN_A_CYCLE, LATENCY)
    size = 4 * (rows + vectors * WIDTH)
    fast = f"{sums / IN_A_CYCLE / cycles:.0%}" if registers <= REGISTERS else "no room"
    print(
        f"{rows:3} x {vectors}{sums:7}{registers:12}{loads:8}{loads / sums:18.2f}{size / sums:18.1f}{fast:>14}",
    )
