"""The function that metal_host writes around a body is exactly the one that MLX writes."""

import mlx.core as mx
import pytest

from metal_host import metal_kernel
from metal_host.arrays import array_of
from metal_host.signature import ATTRIBUTES, write_signature

F = mx.zeros
# Bodies that name a shape name an attribute too: for two outputs and no attribute, MLX 0.32 closes the list too soon.
CASES = {
    "plain": ([F((16,))], [], "out[0] = a[0];", {}),
    "template": ([F((16,)), mx.array(2.0)], [("T", mx.float32), ("N", 3), ("FLAG", True)], "out[0] = T(N);", {}),
    "negative": ([F((8,), mx.uint8), F((7,), mx.int8)], [("N", -3), ("T", mx.bfloat16), ("B", False)], "1;", {}),
    "about": (
        [F((16,), mx.bfloat16), F((2, 3), mx.bool_), mx.array(3)],
        [],
        "out[thread_position_in_grid.x] = a_shape[0] + a_strides[0] + a_ndim + b_shape[1] + c_shape; // b_ndim",
        {"header": "#define Q 1\n"},
    ),
    "few": ([F((8,)), F((7,)), F((2, 4)), F((7, 1)), F((1,)), F((0,))], [], "f_shape e_strides d_ndim grid_size", {}),
    "types": (
        [F((9,), t) for t in (mx.int8, mx.int16, mx.int32, mx.int64, mx.uint16, mx.uint32, mx.uint64, mx.float16)],
        [("T", mx.bool_), ("U", mx.float16)],
        "",
        {},
    ),
    "atomic": ([], [], "atomic_fetch_add_explicit(&out[0], 1u, memory_order_relaxed);", {"atomic_outputs": True}),
    "atomic_template": ([], [("N", 1)], "out", {"atomic_outputs": True}),
    "scalars": ([1, 2.5, True], [], "out[0] = a + b;", {}),
    "attributes": ([F((8,), mx.uint8)], [], " ".join(ATTRIBUTES), {}),
    "one_attribute_in_another": ([F((8,))], [], "dispatch_threads_per_threadgroup", {}),
    "in_comment": ([F((8,))], [], "// thread_position_in_grid, a_shapes", {}),
}


@pytest.mark.parametrize("name", CASES)
def test_signature_is_that_of_mlx(name, capfd, tmp_path):
    inputs, template, source, options = CASES[name]
    names = list("abcdefgh")[: len(inputs)]
    kernel = mx.fast.metal_kernel(name, names, ["out", "other"], source, **options)
    sizes = {"output_shapes": [(16,), (1,)], "output_dtypes": [mx.float32, mx.uint8], "stream": mx.gpu}
    more = {"template": template, "grid": (1, 1, 1), "threadgroup": (1, 1, 1), "verbose": True}
    capfd.readouterr()
    mx.export_function(str(tmp_path / "f"), lambda: kernel(inputs=inputs, **sizes, **more))  # needs no Metal
    arrays = [(n, array_of(x).dtype, array_of(x).shape) for n, x in zip(names, inputs, strict=True)]
    outputs = [("out", mx.float32), ("other", mx.uint8)]
    ours = write_signature(name, source, arrays, outputs, template, options.get("atomic_outputs", False))
    text = ours.metal(options.get("header", ""), source)
    assert capfd.readouterr().out == f"Generated source code for `{name}`:\n```\n{text}\n```\n"


def test_counts_and_sizes_are_checked(monkeypatch):
    monkeypatch.setenv("METAL_HOST", "plain")
    with pytest.raises(ValueError, match="at least one output"):
        metal_kernel("k", ["a"], [], "")
    kernel = metal_kernel("k", ["a"], ["out"], "out[0] = 1;")
    right = {"inputs": [1.0], "grid": (1, 1, 1), "threadgroup": (1, 1, 1), "output_shapes": [(1,)]}
    right |= {"output_dtypes": [mx.float32]}
    assert kernel(**right)[0].tolist() == [1.0]
    for wrong, error, message in (
        ({"inputs": []}, ValueError, "Expected `inputs` to have size 1 but got size 0"),
        ({"output_shapes": []}, ValueError, "Expected `output_shapes` to have size 1 but got size 0"),
        ({"output_dtypes": []}, ValueError, "Expected `output_dtypes` to have size 1 but got size 0"),
        ({"threadgroup": (64, 32, 1)}, ValueError, r"Thread group size \(2048\) is greater than"),
        ({"grid": (1, 1)}, TypeError, "expected three sizes"),
        ({"template": [("T", 1.5)]}, ValueError, "Invalid template argument"),
    ):
        with pytest.raises(error, match=message):
            kernel(**(right | wrong))
