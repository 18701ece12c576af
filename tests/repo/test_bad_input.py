"""Wrong arguments at the reference's public edges: a ValueError that says what was expected and what came."""

import re

import mlx.core as mx
import pytest

from tiny_llm_models.untrained import untrained_config, write_untrained
from tiny_llm_ref.attention import SimpleMultiHeadAttention, causal_mask, scaled_dot_product_attention_grouped
from tiny_llm_ref.config import ModelConfig
from tiny_llm_ref.embedding import Embedding
from tiny_llm_ref.generate import StopStrings, generate_simple
from tiny_llm_ref.layer_norm import RMSNorm
from tiny_llm_ref.models import load_model
from tiny_llm_ref.positional_encoding import RoPE
from tiny_llm_ref.sampler import greedy, make_sampler
from tiny_llm_ref.weights import expected_shapes

E4 = mx.zeros((4, 4))
ROPE = RoPE(4, seq_len=10)
X = mx.zeros((2, 3, 1, 4))


def grouped(H_q, H_kv, mask=None):
    q, kv = mx.zeros((H_q, 2, 4)), mx.zeros((H_kv, 2, 4))
    return scaled_dot_product_attention_grouped(q, kv, kv, mask=mask)


@pytest.mark.parametrize(
    ("call", "message"),
    [
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
    ],
)
def test_says_what_was_expected_and_got(call, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        call()


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    folder = tmp_path_factory.mktemp("checkpoint")
    config = untrained_config(max_position_embeddings=16)
    write_untrained(folder, config, expected_shapes(ModelConfig.from_hf(config)))
    return load_model(folder)


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
