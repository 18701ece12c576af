"""Counts of a kernel and events of a threadgroup are those that you can work out by hand."""

import threading

import mlx.core as mx
import pytest

from metal_host import MetalHostError, MetalKernelError, Traffic, counting, metal_kernel, tracing, watching

INDEX = "uint i = thread_position_in_grid.x, t = thread_position_in_threadgroup.x;\n"
TILE = INDEX + "threadgroup float tile[1024];\n"
BARRIER = "threadgroup_barrier(mem_flags::mem_threadgroup);\n"


def call(source, n=64, group=64, out=64, size=64):
    kernel = metal_kernel("observed", ["x"], ["out"], source)
    sizes = {"grid": (n, 1, 1), "threadgroup": (group, 1, 1), "output_shapes": [(out,)]}
    return kernel(inputs=[mx.arange(size).astype(mx.float32)], output_dtypes=[mx.float32], **sizes)[0]


def counts_of(source, **sizes):
    with counting() as counts:
        call(source, **sizes)
    return counts


def test_each_thread_one_element():
    counts = counts_of(INDEX + "out[i] = x[i];")
    assert (counts.calls, counts.threadgroups, counts.barriers) == (1, 1, 0)
    # two simdgroups, each of which reads 128 bytes: two lines
    assert counts.buffers["x"] == Traffic(read=256, reads=64, distinct_read=256, together=2, lines=4)
    assert counts.buffers["out"] == Traffic(written=256, writes=64, distinct_written=256, together=2, lines=4)


def test_sixteen_bytes_at_once():
    counts = counts_of(INDEX + "((device float4*)out)[i] = 2.0f * ((const device float4*)x)[i];", n=16)
    assert counts.buffers["x"] == Traffic(read=256, reads=16, wide=16, distinct_read=256, together=1, lines=4)
    assert counts.buffers["out"].wide == 16


@pytest.mark.parametrize(("stride", "lines"), [(1, 2), (2, 4), (16, 32)])
def test_lines_of_a_simdgroup(stride, lines):
    counts = counts_of(INDEX + f"out[i] = x[{stride} * i];", n=32, group=32, out=32, size=32 * stride)
    assert counts.buffers["x"].together == 1
    assert counts.buffers["x"].lines == lines


def test_bytes_that_are_read_again_count_once_as_distinct():
    counts = counts_of(INDEX + "float sum = 0;\nfor (uint k = 0; k < 8; k++) sum += x[k];\nout[i] = sum;")
    x = counts.buffers["x"]
    assert (x.read, x.distinct_read, x.together, x.lines) == (64 * 32, 32, 16, 16)


@pytest.mark.parametrize(("stride", "ways"), [(1, 1), (2, 2), (8, 8), (32, 32), (33, 1)])
def test_bank_conflicts(stride, ways):
    counts = counts_of(
        INDEX + f"threadgroup float tile[1056];\ntile[{stride} * t] = x[i];\n{BARRIER}out[i] = tile[{stride} * t];",
        n=32,
        group=32,
        out=32,
    )
    tile = counts.variables["tile"]
    assert (tile.together, tile.cycles, tile.conflicts) == (2, 2 * ways, 2 * (ways - 1))


def test_copies_of_inputs_are_counted():
    """Such as MLX makes of a view, unless the kernel takes it as it lies."""
    x = mx.arange(64).reshape(4, 16).astype(mx.float32)
    for contiguous, copied in ((True, 128), (False, 0)):
        source = "uint i = thread_position_in_grid.x;\nout[i] = x[i / 8 * x_strides[0] + i % 8];"
        kernel = metal_kernel("view", ["x"], ["out"], source, "", contiguous)
        with counting() as counts:
            sizes = {"grid": (32, 1, 1), "threadgroup": (32, 1, 1), "output_shapes": [(4, 8)]}
            out = kernel(inputs=[x[:, :8]], output_dtypes=[mx.float32], **sizes)[0]
        assert mx.array_equal(out, x[:, :8])
        assert (counts.buffers["x"].read, counts.buffers["x"].copied) == (128, copied)
        assert counts.buffers["out"].copied == 0


def test_one_word_for_all_is_no_conflict():
    counts = counts_of(TILE + "if (t == 0) tile[0] = x[0];\n" + BARRIER + "out[i] = tile[0];")
    assert counts.variables["tile"].conflicts == 0
    assert counts.barriers == 1


def test_loops_and_calls_add_up():
    source = TILE + "for (uint k = 0; k < 3; k++) {\n" + BARRIER + "tile[t] = x[i];\n}\n"
    source += BARRIER + "out[i] = simd_sum(tile[t]);"
    with counting() as counts:
        call(source, n=128, out=128, size=128)
        call(source, n=64)
    assert (counts.calls, counts.threadgroups, counts.barriers, counts.simd_operations) == (2, 3, 12, 192)
    assert counts.variables["tile"].writes == 3 * 192
    assert counts.variables["tile"].together == 4 * 6


def test_only_within_and_in_this_thread(monkeypatch):
    other = threading.Thread(target=call, args=(INDEX + "out[i] = x[i];",))
    with counting() as counts:
        other.start()
        other.join()
    call(INDEX + "out[i] = x[i];")
    assert counts.calls == 0
    monkeypatch.setenv("METAL_HOST", "off")
    with counting(), pytest.raises(MetalHostError, match="only kernels that run on the CPU can be counted"):
        call(INDEX + "out[i] = x[i];")


def test_trace():
    source = INDEX + "threadgroup float tile[4];\ntile[t] = x[i];\n" + BARRIER + "out[i] = simd_sum(tile[3 - t]);"
    with tracing((1, 0, 0)) as events:
        call(source, n=8, group=4, out=8)
    of_two = [(e.kind, e.name, e.offset, e.size, e.line) for e in events if e.thread == 2]
    assert of_two == [
        ("read", "x", 24, 4, 3),
        ("write", "tile", 8, 4, 3),
        ("wait", "threadgroup_barrier", 0, 0, 4),
        ("read", "tile", 4, 4, 5),
        ("wait", "simd_sum", 0, 0, 5),
        ("write", "out", 24, 4, 5),
    ]
    assert {e.file for e in events} == {"observed.metal"}
    assert len(events) == 24


def test_trace_ends_at_a_race():
    with tracing() as events, pytest.raises(MetalKernelError) as found:
        call(INDEX + "threadgroup float tile[64];\ntile[t] = x[i];\nout[i] = tile[63 - t];")
    mine, other = found.value.parties
    assert (mine.thread, mine.line, other.thread, other.line) == (32, 3, 31, 4)
    last = events[-1]
    assert (last.thread, last.kind, last.name, last.line) == (32, "write", "tile", 3)


def test_trace_has_a_limit():
    with tracing() as events:
        call(INDEX + "float sum = 0;\nfor (uint k = 0; k < 4096; k++) sum += x[k & 63];\nout[i] = sum;")
    assert len(events) == 100_000
    assert events.is_cut


def test_elements_are_as_large_as_declared():
    source = INDEX + "threadgroup half a[4];\nthreadgroup float4 b[4];\nthreadgroup uchar c[4];\n"
    source += "a[t] = x[i];\nb[t].y = x[i];\nc[t] = 1;\nout[i] = x_shape[0];"
    with tracing() as events:
        call(source, n=4, group=4, out=4)
    assert {e.name: e.item for e in events} == {"x": 4, "a": 2, "b": 16, "c": 1, "x_shape": 4, "out": 4}
    assert not events.is_cut


def test_whoever_watches_makes_the_calls():
    calls = []

    def twice(made):
        calls.append(made)
        with tracing() as events:
            made.run()
        assert len(events) == 6
        return made.run()

    with watching(twice):
        result = call(INDEX + "out[i] = x[i] + x_shape[0];", n=4, group=2, out=4, size=8)
    assert result.tolist() == [8, 9, 10, 11]
    (made,) = calls
    assert (made.name, made.grid, made.threadgroup) == ("observed", (4, 1, 1), (2, 1, 1))
    assert made.spaces == {"x": "device", "x_shape": "constant", "out": "device"}
    assert list(made.texts) == ["observed.metal", "observed.header.metal"]
    call(INDEX + "out[i] = x[i];")
    assert len(calls) == 1
