"""Week 0 Day 2: scale, heads, masks, dropout."""

import math

import mlx.core as mx
import numpy as np
import oracles
import pytest
from helpers import Inputs, array64, assert_attends, assert_close, assert_unchanged, over_dtypes

task_1 = pytest.mark.task("w0d2.1")
task_2 = pytest.mark.task("w0d2.2")
task_3 = pytest.mark.task("w0d2.3")
task_4 = pytest.mark.task("w0d2.4")
task_5 = pytest.mark.task("w0d2.5")


def attention_oracle(q, k, v, mask=None):
    """Return output and weights."""
    weights = oracles.attention(q, k, np.broadcast_to(np.eye(k.shape[-2]), (*k.shape[:-1], k.shape[-2])), mask=mask)
    return weights @ v, weights


def qkv(inputs, *batch, L=5, S=7, d_k=6, d_v=4):
    return inputs.normal(*batch, L, d_k), inputs.normal(*batch, S, d_k), inputs.normal(*batch, S, d_v)


@task_1
@over_dtypes
@pytest.mark.parametrize("batch", [(), (3,), (2, 3)], ids=str)
def test_task_1_scaled(impl, batch, dtype):
    arrays = qkv(Inputs(31, dtype), *batch)
    got = impl.foundations.scaled_dot_product_attention(*arrays)
    assert_attends(got, attention_oracle(*map(array64, arrays)), dtype=dtype)


@task_1
@pytest.mark.parametrize(
    ("L", "S", "d_k", "d_v"), [(1, 1, 1, 1), (1, 9, 4, 2), (9, 1, 4, 2), (4, 4, 4, 4), (3, 3, 1, 5)]
)
def test_task_1_sizes(impl, L, S, d_k, d_v):
    arrays = qkv(Inputs(32), 2, L=L, S=S, d_k=d_k, d_v=d_v)
    got = impl.foundations.scaled_dot_product_attention(*arrays)
    assert_attends(got, attention_oracle(*map(array64, arrays)))


@task_1
@over_dtypes
@pytest.mark.parametrize("shape", [(5, 7), (7,), (5, 1), (3, 5, 7), (2, 3, 5, 7), (2, 1, 1, 7)], ids=str)
def test_task_1_mask_is_added(impl, shape, dtype):
    inputs = Inputs(33, dtype)
    arrays, mask = qkv(inputs, 2, 3), inputs.normal(*shape, scale=2)
    got = impl.foundations.scaled_dot_product_attention(*arrays, mask)
    assert_attends(got, attention_oracle(*map(array64, arrays), array64(mask)), dtype=dtype)


@task_1
def test_task_1_minus_infinity_hides_a_large_score(impl):
    q, k, v = qkv(Inputs(34), 2)
    hidden = mx.where(mx.arange(7) < 4, 0.0, -mx.inf)
    output, weights = impl.foundations.scaled_dot_product_attention(q * 20, k * 20, v, hidden)
    expected, _ = attention_oracle(array64(q) * 20, array64(k)[:, :4] * 20, array64(v)[:, :4])
    assert_close(output, expected, tolerance=1e-3)
    assert_close(weights[..., 4:], np.zeros((2, 5, 3)))


@task_1
def test_task_1_weights_show_the_mask(impl):
    """The mask hides later words from each of three words, and their weights are 0."""
    q, k, v = qkv(Inputs(36), L=3, S=3)
    mask = mx.array([[0.0, -mx.inf, -mx.inf], [0.0, 0.0, -mx.inf], [0.0, 0.0, 0.0]])
    _, weights = impl.foundations.scaled_dot_product_attention(q, k, v, mask)
    assert_close(weights, attention_oracle(*map(array64, (q, k, v, mask)))[1])


@task_1
def test_task_1_a_query_that_sees_nothing(impl):
    """A query whose mask hides every key has no softmax, so its weights are NaN. Other queries keep their weights."""
    q, k, v = qkv(Inputs(37), 2, L=3)
    mask = mx.where(mx.arange(3)[:, None] == 1, -mx.inf, mx.zeros((3, 7)))
    output, weights = attention_oracle(*map(array64, (q, k, v)))
    output[:, 1] = weights[:, 1] = np.nan
    assert_attends(impl.foundations.scaled_dot_product_attention(q, k, v, mask), (output, weights))


@task_1
def test_task_1_leaves_its_inputs_alone(impl):
    inputs = Inputs(35)
    arrays = [*qkv(inputs, 2), inputs.normal(5, 7)]
    before = [array64(array) for array in arrays]
    mx.eval(impl.foundations.scaled_dot_product_attention(*arrays))
    assert_unchanged(before, *arrays)


def head_weights(inputs, E, d_k, d_v):
    """Return weights that keep the size of activations."""
    return (
        inputs.normal(d_k, E, scale=E**-0.5),
        inputs.normal(d_k, E, scale=E**-0.5),
        inputs.normal(d_v, E, scale=E**-0.5),
    )


def head_oracle(query, key, value, w_query, w_key, w_value, mask=None):
    return attention_oracle(query @ w_query.T, key @ w_key.T, value @ w_value.T, mask)


@task_2
@over_dtypes
@pytest.mark.parametrize(("E", "d_k", "d_v"), [(8, 3, 5), (8, 8, 8), (6, 9, 1), (4, 1, 12)])
def test_task_2_head(impl, E, d_k, d_v, dtype):
    inputs = Inputs(41, dtype)
    arrays = [*qkv(inputs, 2, d_k=E, d_v=E), *head_weights(inputs, E, d_k, d_v)]
    got = impl.foundations.attention_head(*arrays)
    assert_attends(got, head_oracle(*map(array64, arrays)), dtype=dtype)


@task_2
@pytest.mark.parametrize(
    ("L", "shape"), [(5, (2, 5, 7)), (5, (5, 7)), (5, (7,)), (5, (2, 1, 7)), (1, (2, 1, 7)), (1, (7,))], ids=str
)
def test_task_2_head_mask(impl, L, shape):
    inputs = Inputs(42)
    arrays = [*qkv(inputs, 2, L=L, d_k=8, d_v=8), *head_weights(inputs, 8, 3, 5), inputs.normal(*shape, scale=2)]
    assert_attends(impl.foundations.attention_head(*arrays), head_oracle(*map(array64, arrays)))


@task_2
def test_task_2_the_identity_of_the_book(impl):
    """The tokens are one-hot, and the weights are 2 and 1 times the identity. So a token's score is 1 for itself and 0
    for the other tokens."""
    x, identity = mx.eye(3, 4), mx.eye(4)
    w_value = identity + 0.5 * mx.eye(4, k=1) + 0.5 * mx.eye(4, k=-1)
    output, weights = impl.foundations.attention_head(x, x, x, 2 * identity, identity, w_value)
    assert_close(weights[0], [0.5761, 0.2119, 0.2119], tolerance=5e-5)
    assert_close(output[0], [0.6821, 0.6060, 0.3179, 0.1060], tolerance=5e-5)


@task_2
def test_task_2_without_batch(impl):
    inputs = Inputs(43)
    arrays = [*qkv(inputs, d_k=8, d_v=8), *head_weights(inputs, 8, 3, 5)]
    assert_attends(impl.foundations.attention_head(*arrays), head_oracle(*map(array64, arrays)))


@task_2
def test_task_2_two_batch_axes(impl):
    inputs = Inputs(45)
    arrays = [*qkv(inputs, 3, 2, d_k=8, d_v=8), *head_weights(inputs, 8, 3, 5), inputs.normal(2, 1, 7, scale=2)]
    assert_attends(impl.foundations.attention_head(*arrays), head_oracle(*map(array64, arrays)))


@task_2
def test_task_2_head_leaves_its_inputs_alone(impl):
    inputs = Inputs(44)
    arrays = [*qkv(inputs, 2, d_k=8, d_v=8), *head_weights(inputs, 8, 3, 5)]
    before = [array64(array) for array in arrays]
    mx.eval(impl.foundations.attention_head(*arrays))
    assert_unchanged(before, *arrays)


def heads_of(inputs, E, sizes):
    """Return the weights of one head for each pair of d_k and d_v, and the weights of the output."""
    heads = [head_weights(inputs, E, d_k, d_v) for d_k, d_v in sizes]
    joined = sum(d_v for _, d_v in sizes)
    return heads, inputs.normal(E, joined, scale=joined**-0.5)


def multi_head_oracle(q, k, v, heads, w_output, mask=None):
    q, k, v, w_output = map(array64, (q, k, v, w_output))
    full = None if mask is None else np.broadcast_to(array64(mask), (len(q), len(heads), q.shape[1], k.shape[1]))
    outputs = [
        head_oracle(q, k, v, *map(array64, matrices), None if full is None else full[:, h])[0]
        for h, matrices in enumerate(heads)
    ]
    return np.concatenate(outputs, axis=-1) @ w_output.T


@task_3
@over_dtypes
@pytest.mark.parametrize(
    "sizes",
    [[(4, 4)] * 4, [(3, 5)], [(2, 6), (5, 3), (1, 7)], [(1, 1)] * 16],
    ids=["4 heads", "1 head", "heads of different sizes", "16 heads"],
)
def test_task_3_multi_head(impl, sizes, dtype):
    inputs = Inputs(51, dtype)
    q, k, v = qkv(inputs, 2, L=3, S=4, d_k=16, d_v=16)
    heads, w_output = heads_of(inputs, 16, sizes)
    got = impl.foundations.multi_head_attention(q, k, v, heads, w_output)
    assert_close(got, multi_head_oracle(q, k, v, heads, w_output), dtype=dtype)


@task_3
@pytest.mark.parametrize("shape", [(3, 4), (4,), (2, 1, 1, 4), (3, 3, 4), (2, 3, 3, 4), (1, 3, 1, 4)], ids=str)
def test_task_3_multi_head_mask(impl, shape):
    """There are two sequences, three heads and three queries, so shapes do not tell the axes apart. Only the values
    do."""
    inputs = Inputs(52)
    q, k, v = qkv(inputs, 2, L=3, S=4, d_k=8, d_v=8)
    heads, w_output = heads_of(inputs, 8, [(4, 4)] * 3)
    mask = inputs.normal(*shape, scale=2)
    got = impl.foundations.multi_head_attention(q, k, v, heads, w_output, mask)
    assert_close(got, multi_head_oracle(q, k, v, heads, w_output, mask))


@task_3
@pytest.mark.parametrize(("B", "L", "S"), [(1, 1, 1), (1, 3, 4), (2, 1, 4), (2, 3, 1)])
def test_task_3_sizes(impl, B, L, S):
    """An axis of size 1 stays in the result's shape."""
    inputs = Inputs(56)
    q, k, v = qkv(inputs, B, L=L, S=S, d_k=8, d_v=8)
    heads, w_output = heads_of(inputs, 8, [(4, 4)] * 3)
    got = impl.foundations.multi_head_attention(q, k, v, heads, w_output)
    assert_close(got, multi_head_oracle(q, k, v, heads, w_output))


@task_3
def test_task_3_equals_one_large_matrix(impl):
    """The heads' stacked matrices are those of week 1's layer: head h has rows h*D to (h+1)*D."""
    inputs = Inputs(53)
    q, k, v = qkv(inputs, 2, L=3, S=4, d_k=16, d_v=16)
    heads, w_output = heads_of(inputs, 16, [(4, 4)] * 4)
    wq, wk, wv = (np.concatenate([array64(head[i]) for head in heads]) for i in range(3))
    split = [oracles.split_heads(array64(x) @ w.T, 4) for x, w in zip((q, k, v), (wq, wk, wv), strict=True)]
    joined = np.concatenate(list(oracles.attention(*split).swapaxes(0, 1)), axis=-1)
    got = impl.foundations.multi_head_attention(q, k, v, heads, w_output)
    assert got.shape == (2, 3, 16), f"expected shape (2, 3, 16), got {got.shape}"
    assert_close(got, joined @ array64(w_output).T)


@task_3
def test_task_3_batch_2_length_10_model_512(impl):
    inputs = Inputs(54)
    x = inputs.normal(2, 10, 512)
    heads, w_output = heads_of(inputs, 512, [(64, 64)] * 8)
    got = impl.foundations.multi_head_attention(x, x, x, heads, w_output)
    assert_close(got, multi_head_oracle(x, x, x, heads, w_output), tolerance=1e-4)


@task_3
def test_task_3_leaves_its_inputs_alone(impl):
    inputs = Inputs(55)
    arrays = qkv(inputs, 2, d_k=8, d_v=8)
    heads, w_output = heads_of(inputs, 8, [(4, 4)] * 2)
    held = [*arrays, *(weight for head in heads for weight in head), w_output]
    before = [array64(array) for array in held]
    mx.eval(impl.foundations.multi_head_attention(*arrays, heads, w_output))
    assert_unchanged(before, *held)


@task_4
@pytest.mark.parametrize(
    ("lengths", "S"), [([3, 5, 1], 5), ([4], 7), ([0, 2], 2), ([1, 1, 1, 1], 1), ([300, 257], 300)], ids=str
)
def test_task_4_padding_mask(impl, lengths, S):
    expected = [[[[1.0 if j < length else 0.0 for j in range(S)]]] for length in lengths]
    assert_close(impl.foundations.padding_mask(lengths, S), expected)


@task_4
@pytest.mark.parametrize("L", [1, 2, 5, 8, 300])
def test_task_4_look_ahead_mask(impl, L):
    expected = [[1.0 if j <= i else 0.0 for j in range(L)] for i in range(L)]
    assert_close(impl.foundations.look_ahead_mask(L), expected)


@task_4
@over_dtypes
@pytest.mark.parametrize("hidden", [None, -1e4, -7.0, -1e9])
def test_task_4_additive_mask(impl, hidden, dtype):
    """The mask is right even if a row keeps nothing. In float16, -1e9 becomes -inf."""
    keep = mx.array([[1.0, 0.0, 1.0], [0.0, 0.0, 1.0], [0.0, 0.0, 0.0]])
    options = {} if hidden is None else {"hidden": hidden}
    got = impl.foundations.additive_mask(keep, dtype=dtype, **options)
    number = -np.inf if hidden is None or (dtype == mx.float16 and hidden == -1e9) else hidden
    assert_close(got, np.where(np.array(keep) > 0, 0.0, number), dtype=dtype)


@task_4
@pytest.mark.parametrize("hidden", [-1e9, -math.inf])
def test_task_4_masks_at_work(impl, hidden):
    """A batch has sentences of three and five words. The product of padding mask and look-ahead mask keeps only what
    both keep."""
    made = impl.foundations
    inputs = Inputs(61)
    q, k, _ = qkv(inputs, 2, 3, L=5, S=5)
    keep = made.padding_mask([3, 5], 5) * made.look_ahead_mask(5)
    assert_close(keep, np.tril(np.ones((5, 5))) * (np.arange(5) < np.array([3, 5])[:, None, None, None]))
    mask = made.additive_mask(keep, hidden)
    scores = array64(q) @ array64(k).swapaxes(-2, -1) / math.sqrt(6)
    allowed = np.exp(scores) * np.array(keep)
    expected = allowed / allowed.sum(axis=-1, keepdims=True)
    weights = mx.softmax(q @ k.swapaxes(-2, -1) / math.sqrt(6) + mask, axis=-1)
    assert_close(weights, expected)


@task_5
@over_dtypes
@pytest.mark.parametrize("rate", [0.0, 0.3, 0.9])
def test_task_5_at_inference_nothing_happens(impl, rate, dtype):
    mx.random.seed(6)  # makes code that drops values anyway fail each time
    x = Inputs(71, dtype).normal(4, 5)
    assert_close(impl.foundations.dropout(x, rate), array64(x), dtype=dtype, tolerance=0)
    assert_close(impl.foundations.dropout(x, rate, False), array64(x), dtype=dtype, tolerance=0)


@task_5
@over_dtypes
@pytest.mark.parametrize("rate", [0.0, 0.25, 0.5])
def test_task_5_in_training(impl, rate, dtype):
    """Values that stay are divided by 1 - rate, and the share of zeros is the rate."""
    mx.random.seed(7)
    x = Inputs(72, dtype).normal(200, 100, shift=5)
    got = impl.foundations.dropout(x, rate, training=True)
    gone = mx.equal(got, 0)
    assert_close(got, np.where(np.array(gone), 0, array64(x) / (1 - rate)), dtype=dtype)
    share = gone.astype(mx.float32).mean().item()
    assert abs(share - rate) < 0.02, f"expected a share of zeros of {rate}, got {share:.3f}"


@task_5
def test_task_5_each_number_has_a_draw_of_its_own(impl):
    mx.random.seed(8)
    gone = np.array(mx.equal(impl.foundations.dropout(mx.ones((100, 100)), 0.5, training=True), 0))
    again = np.array(mx.equal(impl.foundations.dropout(mx.ones((100, 100)), 0.5, training=True), 0))
    for name, share in (("rows", gone.mean(axis=1)), ("columns", gone.mean(axis=0))):
        assert share.min() > 0.2, f"expected about half of each of the {name} to be 0, got {share.min():.2f}"
        assert share.max() < 0.8, f"expected about half of each of the {name} to be 0, got {share.max():.2f}"
    assert 0.4 < (gone == again).mean() < 0.6, "expected other draws at each call"


@task_5
@pytest.mark.parametrize("shape", [(2000,), (20, 10, 30), (2, 3, 30, 30)], ids=str)
def test_task_5_any_shape(impl, shape):
    """Along every axis, each value has its own draw, independent of its neighbour's."""
    mx.random.seed(9)
    x = Inputs(74).normal(*shape, shift=5)
    got = impl.foundations.dropout(x, 0.5, training=True)
    gone = np.array(mx.equal(got, 0))
    assert_close(got, np.where(gone, 0, array64(x) * 2))
    for axis in range(len(shape)):
        same = (gone == np.roll(gone, 1, axis)).mean()
        assert 0.4 < same < 0.6, f"expected draws of their own along axis {axis}, got {same:.0%} alike"


@task_5
@pytest.mark.parametrize("rate", [1.0, -0.1, 2.0])
@pytest.mark.parametrize("training", [False, True])
def test_task_5_rate_out_of_range(impl, rate, training):
    """A rate out of range raises a ValueError. The stub's call of `_check_rate` raises it, so keep that line where it
    is."""
    impl.foundations.dropout(mx.ones((3,)), 0.5, training)  # a stub ends here
    with pytest.raises(ValueError, match=f"rate: expected 0 or more and less than 1, got {rate}"):
        impl.foundations.dropout(mx.ones((3,)), rate, training)


@task_5
def test_task_5_leaves_its_input_alone(impl):
    x = Inputs(73).normal(4, 5)
    before = [array64(x)]
    mx.eval(impl.foundations.dropout(x, 0.5, training=True))
    assert_unchanged(before, x)
