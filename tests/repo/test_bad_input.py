"""Wrong arguments of the reference's public functions: a ValueError says what was expected, and what was given."""

import os
import re
import subprocess
import sys

import mlx.core as mx
import pytest
from oracle_cases import Case

from tiny_llm_given.config import ModelConfig
from tiny_llm_models.untrained import untrained_config
from tiny_llm_native import extension
from tiny_llm_ref.attention import SimpleMultiHeadAttention, causal_mask, scaled_dot_product_attention_grouped
from tiny_llm_ref.costs import model_cost
from tiny_llm_ref.embedding import Embedding
from tiny_llm_ref.generate import StopStrings, generate_simple
from tiny_llm_ref.kernels.attention import attention_online, flash_attention
from tiny_llm_ref.kernels.quantized_matmul import matmul_tile, quantized_matmul, tile_shape
from tiny_llm_ref.kernels.quantized_matvec import quantized_matvec, quantized_matvec_scalar, quantized_matvec_vector
from tiny_llm_ref.kernels.rms_norm import add_rms_norm, rms_norm
from tiny_llm_ref.kernels.rope import rope
from tiny_llm_ref.kernels.softmax import softmax, softmax_scalar, softmax_vector
from tiny_llm_ref.kernels.swiglu import swiglu
from tiny_llm_ref.kv_cache import KVCache, KVCacheLayer
from tiny_llm_ref.layer_norm import RMSNorm
from tiny_llm_ref.models import load_model
from tiny_llm_ref.positional_encoding import RoPE
from tiny_llm_ref.quantize import dequantize, quantize
from tiny_llm_ref.sampler import greedy, make_sampler

E4 = mx.zeros((4, 4))
ROPE = RoPE(4, seq_len=10)
X = mx.zeros((2, 3, 1, 4))


def grouped(H_q, H_kv, mask=None):
    q, kv = mx.zeros((H_q, 2, 4)), mx.zeros((H_kv, 2, 4))
    return scaled_dot_product_attention_grouped(q, kv, kv, mask=mask)


WEEK_1 = [
    (lambda: SimpleMultiHeadAttention(4, 3, E4, E4, E4, E4), "divisor of 4, got 3"),
    (lambda: SimpleMultiHeadAttention(4, 0, E4, E4, E4, E4), "divisor of 4, got 0"),
    (lambda: SimpleMultiHeadAttention(4, 2, E4, E4[:2], E4, E4), "wk: expected shape (4, 4), got (2, 4)"),
    (lambda: SimpleMultiHeadAttention(4, 2, E4, E4, E4, E4[:, :2]), "wo: expected shape (4, 4), got (4, 2)"),
    (lambda: causal_mask(3, 2), "expected no more queries than keys, got L = 3, S = 2"),
    (lambda: grouped(4, 3), "expected a multiple of 3, got 4"),
    (lambda: grouped(2, 2, mask="diagonal"), "expected an array, \"causal\" or None, got 'diagonal'"),
    (lambda: RoPE(5, 10), "expected an even number, got 5"),
    (lambda: RoPE(0, 10), "expected an even number, got 0"),
    (lambda: ROPE(mx.zeros((2, 3, 4))), "expected shape B x L x H x 4, got (2, 3, 4)"),
    (lambda: ROPE(mx.zeros((2, 3, 1, 6))), "expected shape B x L x H x 4, got (2, 3, 1, 6)"),
    (lambda: ROPE(X, 8), "expected positions from 0 to 9, got 8 to 10"),
    (lambda: ROPE(X, -1), "expected positions from 0 to 9, got -1 to 1"),
    (lambda: ROPE(X, slice(0, 4)), "expected a slice of 3 positions, got slice(0, 4, None)"),
    (lambda: ROPE(X, slice(0, 6, 2)), "expected a slice of 3 positions, got slice(0, 6, 2)"),
    (lambda: ROPE(X, slice(2, None)), "expected a slice of 3 positions, got slice(2, None, None)"),
    (lambda: ROPE(X, [slice(0, 3)]), "expected one slice for each of 2 rows, got 1"),
    (lambda: ROPE(X, [slice(0, 3), slice(8, 11)]), "expected positions from 0 to 9, got 8 to 10"),
    (lambda: ROPE(X, mx.array([1, 2, 3])), "expected one for each of 2 rows, got shape (3,)"),
    (lambda: RMSNorm(4, mx.ones(5)), "expected shape (4,), got (5,)"),
    (lambda: Embedding(7, 4, E4), "expected shape (7, 4), got (4, 4)"),
    (lambda: StopStrings("stop"), "expected a sequence of non-empty strings, got 'stop'"),
    (lambda: StopStrings(["a", ""]), "expected a sequence of non-empty strings, got ['a', '']"),
    (lambda: make_sampler(temperature=-1), "temperature: expected 0 or more, got -1"),
    (lambda: make_sampler(temperature=float("nan")), "temperature: expected 0 or more, got nan"),
    (lambda: make_sampler(temperature=float("inf")), "temperature: expected 0 or more, got inf"),
    (lambda: make_sampler(top_k=-1), "top_k: expected 0 or more, got -1"),
    (lambda: make_sampler(top_p=1.5), "top_p: expected more than 0 and at most 1, got 1.5"),
    (lambda: make_sampler(top_p=0), "top_p: expected more than 0 and at most 1, got 0"),
    (lambda: make_sampler(min_p=1.1), "min_p: expected from 0 to 1, got 1.1"),
    (lambda: make_sampler(repetition_penalty=0), "repetition_penalty: expected more than 0, got 0"),
]


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    case = Case(untrained_config(max_position_embeddings=16), seed=0)
    return load_model(case.write(tmp_path_factory.mktemp("checkpoint")))


@pytest.mark.parametrize(
    ("prompt", "max_tokens", "message"),
    [
        ([], 5, "prompt: expected at least one token, got none"),
        ([1] * 16, 5, "prompt: expected fewer tokens than the context of 16, got 16"),
        ([1, 259], 5, "prompt: expected token ids from 0 to 258, got 1 to 259"),
        ([1, -1], 5, "prompt: expected token ids from 0 to 258, got -1 to 1"),
        ([1], -1, "max_tokens: expected 0 or more, got -1"),
    ],
)
def test_prompts(model, prompt, max_tokens, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        list(generate_simple(model, prompt, greedy, max_tokens))


def test_the_context_can_be_filled_to_the_last_token(model):
    assert len(list(generate_simple(model, [1] * 15, greedy, 5))) == 1
    assert len(list(generate_simple(model, [1], greedy, 50))) == 15


# ------------------------------------------------------------------------------------------------------------ week 2

CONFIG = ModelConfig.from_hf(untrained_config(max_position_embeddings=16))
W, SCALES, BIASES = mx.quantize(mx.ones((16, 64)))  # packed: 16 x 8
ROW, HEADS = mx.ones((2, 64)), mx.ones((2, 4, 3, 8))  # B, H, L, D
INT, BF16, F32 = mx.int32, mx.bfloat16, mx.float32


def stored(key, value):
    layer = KVCacheLayer()
    layer.store(HEADS, HEADS)
    return layer.store(key, value)


WEEK_2 = [
    (lambda: model_cost(CONFIG, 0, 5), "expected 1 new token or more, and no more than positions, got L = 0, S ="),
    (lambda: model_cost(CONFIG, 6, 5), "expected 1 new token or more, and no more than positions, got L = 6, S ="),
    (lambda: quantize(ROW, 64, 3), "bits: expected 2, 4 or 8, got 3"),
    (lambda: quantize(ROW, 16), "group_size: expected 32, 64 or 128 and a divisor of 64, got 16"),
    (lambda: quantize(ROW, 128), "group_size: expected 32, 64 or 128 and a divisor of 64, got 128"),
    (lambda: dequantize(W, SCALES, BIASES, 64, 0), "bits: expected 2, 4 or 8, got 0"),
    (lambda: dequantize(W, SCALES, BIASES, 64, 8), "and a divisor of 32, got 64"),
    (lambda: dequantize(W, SCALES, BIASES, 32), "scales and biases: expected shape (16, 2), got (16, 1) and (16,"),
    (lambda: dequantize(W, SCALES, BIASES[:3]), "expected shape (16, 1), got (16, 1) and (3, 1)"),
    (lambda: stored(HEADS[:1], HEADS[:1]), "key: expected shape (2, 4, 3, 8) in mlx.core.float32, got (1, 4, 3, 8"),
    (lambda: stored(HEADS, HEADS[:, :, :2]), "value: expected shape (2, 4, 3, 8) in mlx.core.float32, got (2, 4,"),
    (lambda: stored(HEADS, HEADS.astype(BF16)), "value: expected shape (2, 4, 3, 8) in mlx.core.float32, got"),
    (lambda: stored(HEADS[..., :4], HEADS[..., :4]), "key: expected shape (2, 4, 3, 8) in mlx.core.float32, got"),
    (lambda: KVCache(2).trim(1), "trim: expected 0 to 0 tokens, got 1"),
    (lambda: KVCache(2).trim(-1), "trim: expected 0 to 0 tokens, got -1"),
]


@pytest.mark.parametrize("op", [softmax, softmax_vector, softmax_scalar])
@pytest.mark.parametrize("x", [mx.array(1.0), mx.ones((2, 3), INT), mx.ones(3, mx.complex64)], ids=str)
def test_rows_of_softmax(op, x):
    with pytest.raises(
        ValueError, match=re.escape(f"x: expected rows of a float dtype, got shape {x.shape} of {x.dtype}")
    ):
        op(x)


PRODUCTS = [
    ((ROW, W, SCALES, BIASES, 64, 3), "bits: expected 2, 4 or 8, got 3"),
    ((ROW, W, SCALES, BIASES, 16, 4), "group_size: expected 32, 64 or 128, got 16"),
    ((ROW, W, SCALES, BIASES, 32, 4), "scales and biases: expected (16, 2) of one dtype, got (16, 1) of mlx.core.floa"),
    ((ROW, W, SCALES, BIASES, 128, 4), "x: expected rows of 64 numbers, a multiple of 128, got shape (2, 64)"),
    ((ROW, W, SCALES, BIASES, 64, 8), "x: expected rows of 32 numbers, a multiple of 64, got shape (2, 64)"),
    ((ROW[:, :32], W, SCALES, BIASES), "x: expected rows of 64 numbers, a multiple of 64, got shape (2, 32)"),
    ((ROW.astype(INT), W, SCALES, BIASES), "x: expected an array of a float dtype, got shape (2, 64) of mlx.core.int3"),
    ((mx.array(1.0), W, SCALES, BIASES), "x: expected an array of a float dtype, got shape () of mlx.core.float32"),
    ((ROW, W[None], SCALES, BIASES), "packed: expected O x (I / 8) of uint32, got (1, 16, 8) of mlx.core.uint32"),
    ((ROW, W.astype(INT), SCALES, BIASES), "packed: expected O x (I / 8) of uint32, got (16, 8) of mlx.core.int32"),
    ((ROW, W, SCALES.astype(INT), BIASES), "scales: expected an array of a float dtype, got shape (16, 1) of mlx.core"),
    ((ROW, W, SCALES, BIASES.astype(BF16)), "got (16, 1) of mlx.core.float32 and (16, 1) of mlx.core.bfloat16"),
    ((ROW, W, SCALES, BIASES[:4]), "scales and biases: expected (16, 1) of one dtype, got (16, 1) of mlx.core.float32"),
]


@pytest.mark.parametrize("op", [quantized_matvec, quantized_matvec_vector, quantized_matvec_scalar, quantized_matmul])
@pytest.mark.parametrize(("arguments", "message"), PRODUCTS)
def test_quantised_products(op, arguments, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        op(*arguments)


def tile(rows, dtype=F32):
    M_TILE, N_TILE = tile_shape()
    return matmul_tile(mx.ones((3, M_TILE), dtype), mx.ones((rows, N_TILE)))


@pytest.mark.parametrize("attend", [attention_online, flash_attention])
@pytest.mark.parametrize(
    ("shapes", "dtypes", "mask", "message"),
    [
        (((3, 8),) * 3, (F32,) * 3, None, "query: expected shape N.. x H_q x L x D, got (3, 8)"),
        (((4, 3, 0),) * 3, (F32,) * 3, None, "query: expected shape N.. x H_q x L x D, got (4, 3, 0)"),
        (((4, 3, 8), (2, 5, 6), (2, 5, 6)), (F32,) * 3, None, "key: expected shape H_kv x S x 8, got (2, 5, 6)"),
        (((2, 4, 3, 8), (3, 2, 5, 8), (3, 2, 5, 8)), (F32,) * 3, None, "key: expected shape 2 x H_kv x S x 8, got (3,"),
        (
            ((4, 3, 8), (2, 5, 8), (2, 6, 8)),
            (F32,) * 3,
            None,
            "value: expected shape (2, 5, 8), as key has, got (2, 6, 8)",
        ),
        (((4, 3, 8), (3, 5, 8), (3, 5, 8)), (F32,) * 3, None, "expected a multiple of the 3 key/value heads, got 4"),
        (((4, 3, 8), (0, 5, 8), (0, 5, 8)), (F32,) * 3, None, "expected a multiple of the 0 key/value heads, got 4"),
        (
            ((4, 3, 8),) * 3,
            (F32, F32, BF16),
            None,
            "expected one float dtype, got mlx.core.float32, mlx.core.float32, mlx",
        ),
        (
            ((4, 3, 8),) * 3,
            (INT,) * 3,
            None,
            "expected one float dtype, got mlx.core.int32, mlx.core.int32, mlx.core.int32",
        ),
        (((4, 3, 8),) * 3, (F32,) * 3, "diagonal", "mask: expected an array, \"causal\" or None, got 'diagonal'"),
        (
            ((4, 3, 8), (2, 2, 8), (2, 2, 8)),
            (F32,) * 3,
            "causal",
            "expected no more queries than keys, got L = 3, S = 2",
        ),
        (((4, 3, 8), (2, 0, 8), (2, 0, 8)), (F32,) * 3, None, "expected one key or more, got none"),
    ],
)
def test_attention_by_kernels(attend, shapes, dtypes, mask, message):
    arrays = [mx.ones(shape, dtype) for shape, dtype in zip(shapes, dtypes, strict=True)]
    with pytest.raises(ValueError, match=re.escape(message)):
        attend(*arrays, mask=mask)


KERNELS = [
    (lambda: tile(4), "w: expected K x "),
    (lambda: tile(3, BF16), " of float32, got (3, "),
    (lambda: matmul_tile(mx.ones((3, 5)), ROW), " of float32, got (3, 5) of mlx.core.float32"),
    (lambda: rms_norm(mx.array(1.0), ROW, 1e-5), "x: expected rows of a float dtype, got shape () of mlx.core.flo"),
    (lambda: rms_norm(ROW.astype(INT), ROW, 1e-5), "x: expected rows of a float dtype, got shape (2, 64) of mlx.c"),
    (lambda: rms_norm(ROW, mx.ones(63), 1e-5), "weight: expected shape (64,) of mlx.core.float32, got shape (63,)"),
    (lambda: rms_norm(ROW, mx.ones(64, BF16), 1e-5), "got shape (64,) of mlx.core.bfloat16"),
    (lambda: add_rms_norm(ROW, ROW[:1], mx.ones(64), 1e-5), "residual: expected shape (2, 64) of mlx.core.float32"),
    (lambda: add_rms_norm(ROW, ROW.astype(BF16), mx.ones(64), 1e-5), "got shape (2, 64) of mlx.core.bfloat16"),
    (lambda: add_rms_norm(ROW, ROW, mx.ones(1), 1e-5), "weight: expected shape (64,) of mlx.core.float32, got sha"),
    (lambda: rope(HEADS[0], 0, 1e4), "x: expected shape B x L x H x D, D even, of a float dtype, got (4, 3, 8) of"),
    (lambda: rope(HEADS[..., :7], 0, 1e4), "D even, of a float dtype, got (2, 4, 3, 7) of mlx.core.float32"),
    (lambda: rope(HEADS.astype(INT), 0, 1e4), "of a float dtype, got (2, 4, 3, 8) of mlx.core.int32"),
    (lambda: rope(HEADS, 1.5, 1e4), "offset: expected an integer, or 2 of them, got () of mlx.core.float32"),
    (lambda: rope(HEADS, mx.array([1, 2, 3]), 1e4), "offset: expected an integer, or 2 of them, got (3,) of mlx.c"),
    (lambda: swiglu(mx.array(1.0), ROW), "gate: expected rows of a float dtype, got shape () of mlx.core.float32"),
    (lambda: swiglu(ROW.astype(INT), ROW), "gate: expected rows of a float dtype, got shape (2, 64) of mlx.core.i"),
    (lambda: swiglu(ROW, ROW[:, :32]), "up: expected shape (2, 64) of mlx.core.float32, as gate has, got shape (2"),
    (lambda: swiglu(ROW, ROW.astype(BF16)), "as gate has, got shape (2, 64) of mlx.core.bfloat16"),
    (lambda: extension.set_threads(0), "expected 1 to 256 threads"),
    (lambda: extension.set_threads(257), "expected 1 to 256 threads"),
]


@pytest.mark.parametrize(("call", "message"), [*WEEK_1, *WEEK_2, *KERNELS])
def test_says_what_was_expected_and_got(call, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        call()


def test_the_roofline_has_no_fallback():
    """Its figures come from kernels; without kernels, there are no figures."""
    code = "from tiny_llm_native import roofline; roofline.measure()"
    environment = os.environ | {"TINY_LLM_KERNELS": "off"}
    run = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True)
    assert "KernelError: " in run.stderr.splitlines()[-1]
