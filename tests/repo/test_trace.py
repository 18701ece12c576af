"""`tiny-llm trace`: the numbers in its text are the numbers of the code."""

import mlx.core as mx
import pytest
from learner import ROOT
from typer.testing import CliRunner

from tiny_llm_course.__main__ import app
from tiny_llm_course.viz.trace import Sizes, steps
from tiny_llm_ref import attention, basics
from tiny_llm_ref.models import load_model


def trace(*arguments):
    return CliRunner().invoke(app, ["trace", *arguments])


def test_the_example_of_the_book():
    shown = trace("--batch", "32", "--seq", "100", "--hidden", "768", "--heads", "8", "--lang", "en").stdout
    assert "scores = query key^T  32 x 8 x 100 x 100                 491,520,000   10,240,000  O(L² E)\n" in shown
    assert "query = x Wq^T            32 x 100 x 768     589,824   3,774,873,600    9,830,400  O(L E²)\n" in shown
    assert "Scores are divided by sqrt(96) = 9.8." in shown
    assert "Products with weights grow with L = 100 tokens, and the steps on scores with L²" in shown


def test_shapes_are_those_of_the_layer(monkeypatch):
    """Watch week 1's layer: each product with weights, and each attention."""
    seen = []

    def linear(x, weight, bias=None):
        y = basics.linear(x, weight, bias)
        seen.append((y.shape, weight.size))
        return y

    def attend(query, key, value, mask=None):
        out = attention.softmax(query @ key.swapaxes(-2, -1))
        seen.extend([(query.shape, 0), (out.shape, 0)])
        return out @ value

    monkeypatch.setattr(attention, "linear", linear)
    monkeypatch.setattr(attention, "scaled_dot_product_attention_simple", attend)
    B, L, E, H = 2, 5, 12, 3
    x, weights = mx.ones((B, L, E)), [mx.ones((E, E))] * 4
    attention.SimpleMultiHeadAttention(E, H, *weights)(x, x, x)
    done = {step.name: (step.shape, step.parameters) for step in steps(Sizes(B, L, E, H, H, E // H))}
    assert seen == [done[name] for name in ("query", "key", "value", "split", "softmax", "output")]


def test_the_sizes_of_a_checkpoint():
    layer = load_model(ROOT / "src/tiny_llm_models/story").layers[0].self_attn
    made = [layer.q_proj, layer.k_proj, layer.v_proj, layer.o_proj]
    shown = trace("--model", "story", "--lang", "en").stdout
    total = f"{sum(projection.weight.size for projection in made):,}"
    assert f" {total} " in next(line for line in shown.splitlines() if line.startswith("together"))


def test_operations_grow_as_stated():
    small, large = (list(steps(Sizes(1, L, 64, 4, 2, 16))) for L in (10, 20))
    for one, other in zip(small, large, strict=True):
        expected = {"": 1, "L E²": 2, "L² E": 4, "L²": 4}[one.growth]
        assert other.flops == expected * one.flops
        assert bool(one.flops) == bool(one.growth)


def test_in_japanese():
    shown = trace("--lang", "ja").stdout
    assert "スコアは sqrt(96) = 9.8 で割ります。" in shown


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--heads", "7"], "--heads: expected a divisor of --hidden 768, or --head-dim as well, got 7"),
        (["--seq", "0"], "--seq: expected 1 or more, got 0"),
        (["--kv-heads", "3"], "--kv-heads: expected a divisor of 8, the number of --heads, got 3"),
        (["--dtype", "int8"], "--dtype: expected one of float32, bfloat16, float16, got 'int8'"),
        (["--model", "nowhere"], "--model: no checkpoint directory 'nowhere'"),
    ],
)
def test_bad_input(arguments, message):
    result = trace(*arguments)
    assert result.exit_code in (1, 2)
    assert message in " ".join(result.stderr.split())
