"""`tiny-llm viz`: the data of its pictures, the files, and the commands as a user calls them."""

from __future__ import annotations

import base64
import json
import re
import shutil
import subprocess
import sys
import warnings
from pathlib import Path
from typing import Any

import mlx.core as mx
import numpy as np
import pytest
from matplotlib.image import imread
from oracle_cases import Case
from typer.main import get_command
from typer.testing import CliRunner

import tiny_llm_ref
from tiny_llm_course.base.arguments import OUT
from tiny_llm_course.base.extras import install_command
from tiny_llm_course.commands import app as course
from tiny_llm_course.ui.language import LANGUAGES, Messages
from tiny_llm_course.ui.terminal import signs
from tiny_llm_course.viz.arrays import masks_of
from tiny_llm_course.viz.collecting import CollectingCache
from tiny_llm_course.viz.drawing import FONT, drawable
from tiny_llm_course.viz.labels import padded, shortened, token_bytes, token_labels
from tiny_llm_course.viz.page import NOT_A_NUMBER, STEPS, attention_page
from tiny_llm_course.viz.probe import Attention, Probe
from tiny_llm_course.viz.viz_commands import app
from tiny_llm_models.untrained import untrained_config
from tiny_llm_ref import models
from tiny_llm_ref.foundations import scaled_dot_product_attention
from tiny_llm_ref.kv_cache import NoCache
from tiny_llm_ref.sampler import apply_min_p, apply_top_k, apply_top_p

ROOT = Path(__file__).parents[2]
NASTY = "\"</script><!--'<b>{{data}}$x$ 鰯と🦜。\n"


device = pytest.fixture(lambda: None)  # the commands choose their own: nothing to repeat on each


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Write a checkpoint with one token per byte, 3 layers of 6 heads, and a context of 512 tokens."""
    return Case(untrained_config(), seed=0).write(tmp_path_factory.mktemp("checkpoint"))


def call(*arguments: object) -> str:
    """Run a command that must succeed. Return its stdout. Warnings, such as one about a missing glyph, are errors."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        result = CliRunner().invoke(app, [*map(str, arguments)])
    assert result.exit_code == 0, (result.output, result.exception)
    return result.stdout


def assert_drawn(file: Path) -> None:
    pixels = imread(file)[..., :3]
    assert min(pixels.shape[:2]) > 200
    assert len(np.unique(pixels.reshape(-1, 3), axis=0)) > 20
    assert pixels[0, 0].tolist() == [1, 1, 1]


def data_of(page: str) -> dict[str, Any]:
    found = re.search(r'<script type="application/json" id="data">(.*?)</script>', page, re.DOTALL)
    assert found
    data: dict[str, Any] = json.loads(found[1])
    return data


def assert_asks_for_nothing(page: str) -> None:
    assert page.count("</script>") == page.count("<script") == 2
    assert not re.search(r"https?:|//\w|url\(|@import|\bsrc=|\bhref=", page)
    assert "default-src 'none'" in page
    assert "innerHTML" not in page
    assert not re.search(r"\{\{(?!data\}\})", page)  # all is filled in, and nothing in what was filled in


def weights_in(page: str) -> Any:
    data = data_of(page)
    tokens = len(data["labels"])
    steps = np.frombuffer(base64.b64decode(data["weights"]), np.uint8)
    return steps.reshape(data["layers"], data["heads"], tokens, tokens)


def test_labels_of_spread_characters_signs_and_loose_bytes() -> None:
    fish = "鰯".encode()
    pieces = [
        b"a <b><i>",
        fish[:1],
        fish[1:2],
        fish[2:] + "と\n".encode(),
        "\u3000\t\u202e".encode(),
        b"\xf0\x9f",
        b"\xa6z",
    ]
    assert token_labels(pieces) == [
        "a␣<b><i>",
        "鰯[1/3]",
        "鰯[2/3]",
        "鰯[3/3]と⏎",
        "␣\\t<U+202E>",
        "<F0 9F>",
        "<A6>z",
    ]
    assert token_labels([]) == []


def test_bytes_of_vocabulary_entries() -> None:
    tokenizer = models.load("story")[1]
    tokens = tokenizer.encode(NASTY)
    entries = tokenizer.convert_ids_to_tokens(tokens)
    assert b"".join(map(token_bytes, entries, tokens)).decode() == NASTY
    assert (token_bytes("<｜終｜>", 7), token_bytes(None, 7)) == ("<｜終｜>".encode(), b"#7")


def test_labels_in_columns() -> None:
    assert [shortened("むかしむかし", width) for width in (12, 11, 4)] == ["むかしむかし", "むかしむか…", "む…"]
    assert padded("犬", 4) == "犬  "


@pytest.mark.parametrize("scale", [None, 0.3])
def test_collected_weights_are_those_of_the_formula(scale: float | None) -> None:
    """Heads are grouped, and there are more keys than a vector has numbers."""
    mx.random.seed(1)
    B, H_q, H_kv, L, D = 2, 4, 2, 11, 4
    query, key, value = (mx.random.normal((B, H, L, D)) for H in (H_q, H_kv, H_kv))
    cache = CollectingCache(NoCache(1))
    output = cache.layers[0].attend(query, key, value, scale)
    hidden = mx.where(mx.arange(L) <= mx.arange(L)[:, None], 0.0, -mx.inf)
    factor = 1 if scale is None else scale * D**0.5
    keys, values = (mx.repeat(x, H_q // H_kv, axis=1) for x in (key, value))
    expected, weights = scaled_dot_product_attention(query * factor, keys, values, hidden)
    assert cache.layers[0].weights.shape == (B, H_q, L, L)
    np.testing.assert_allclose(cache.layers[0].weights, weights, atol=1e-6)
    np.testing.assert_allclose(output, expected, atol=1e-5)


@pytest.mark.parametrize("dtype", [mx.float32, mx.bfloat16])
def test_a_model_does_not_notice_that_weights_are_collected(dtype: mx.Dtype) -> None:
    model, tokenizer = models.load("story", dtype)
    tokens = mx.array([tokenizer.encode("むかしむかし、 there was a king.")])
    cache = CollectingCache(NoCache(len(model.layers)))
    assert mx.array_equal(model(tokens, cache), model(tokens))
    for layer in cache.layers:
        np.testing.assert_allclose(layer.weights.sum(axis=-1), 1, atol=1e-5)
        assert not np.triu(np.array(layer.weights), 1).any()


@pytest.mark.parametrize("language", LANGUAGES)
def test_attention(language: str, tmp_path: Path) -> None:
    options = ["--layer", 1, "--head", 2, "--out", tmp_path / "made", "--lang", language]
    text = call("attention", *options).splitlines()
    assert "story" in text[0]
    assert [line.count(str(tmp_path)) for line in text[-3:]] == [0, 1, 1]
    assert_drawn(tmp_path / "made" / "attention.png")
    page = (tmp_path / "made" / "attention.html").read_text()
    assert f'<html lang="{language}">' in page
    data = data_of(page)
    assert (data["layer"], data["head"]) == (1, 2)
    probe = Probe("story", "ref")
    tokens = probe.prompt(Messages(language)("viz_prompt"))
    expected = probe.weights(tokens)
    np.testing.assert_allclose(weights_in(page) / STEPS, expected, atol=0.5 / STEPS + 1e-6)
    assert data["labels"] == token_labels(probe.pieces(tokens))
    last = expected[1, 2, -1]
    rows = [line for line in text if "%" in line and "≥" not in line]
    assert f"{last.max():4.0%} {shortened(data['labels'][last.argmax()], 12)}" in rows[-1]


def test_attention_of_all_heads(checkpoint: Path, tmp_path: Path) -> None:
    text = call("attention", "--model", checkpoint, "--all", "--prompt", "abc", "--out", tmp_path)
    assert_drawn(tmp_path / "attention-all.png")
    assert not (tmp_path / "attention.png").exists()
    assert weights_in((tmp_path / "attention.html").read_text()).shape == (3, 6, 3, 3)
    assert re.match(r"a +█ +100% a$", text.splitlines()[1])


def test_page_survives_any_prompt_and_asks_for_nothing(checkpoint: Path, tmp_path: Path) -> None:
    call("attention", "--model", checkpoint, "--prompt", NASTY, "--out", tmp_path)
    page = (tmp_path / "attention.html").read_text()
    data = data_of(page)
    assert (
        "".join(bytes.fromhex(piece).decode("latin-1") for piece in data["bytes"]).encode("latin-1").decode() == NASTY
    )
    assert_asks_for_nothing(page)


def test_weights_that_are_no_numbers() -> None:
    weights = np.array([[[[1, 0], [np.nan, 1.7]]]], np.float32)
    page = attention_page(Attention("m", "ab", ["a", "b"], [b"a", b"b"], weights, 0, 0), Messages("en"))
    assert weights_in(page).ravel().tolist() == [STEPS, 0, NOT_A_NUMBER, STEPS]


def test_japanese_is_drawn_with_glyphs() -> None:
    files = (ROOT / "src/tiny_llm_models/storyteller/japanese").glob("*.toml")
    stories = "".join(file.read_text(encoding="utf-8") for file in files)
    messages = (ROOT / "src/tiny_llm_course/ui/messages.toml").read_text(encoding="utf-8")
    shown = "".join(sorted({*stories, *messages.partition("[viz_prompt]")[2]} - {"\n"}))
    assert drawable(shown) == shown
    assert drawable("鰯␣⏎ 🦜") == "鰯␣⏎ <U+1F99C>"
    assert FONT.stat().st_size < 1e6
    assert "SIL OPEN FONT LICENSE" in (FONT.parent / "OFL.txt").read_text()


def test_rope(tmp_path: Path) -> None:
    text = call("rope", "--dims", 8, "--base", 100, "--positions", 20, "--out", tmp_path)
    assert_drawn(tmp_path / "rope.png")
    frequencies = 100.0 ** (-np.arange(4) / 4)
    for pair, frequency in enumerate(frequencies):
        assert re.search(rf" {pair} .* {2 * np.pi / frequency:,.1f} ", text)
    for distance in (0, 1, 2, 4, 8, 19):
        score = np.cos(distance * frequencies).mean()
        assert re.search(
            rf"^ +{distance} +{score:.2f} ?{signs().full * round(max(score, 0) * 18)}$", text, re.MULTILINE
        )


def test_mask(tmp_path: Path) -> None:
    text = call("mask", "--queries", 2, "--keys", 4, "--lengths", "1,3", "--out", tmp_path, "--lang", "en")
    assert text.splitlines()[:9] == [
        "2 queries at positions 2 to 3, 4 keys",
        "",
        "length 1, filled up to 4:",
        "     causal               padding              both",
        "   2 █ █ █ ░            2 █ ░ ░ ░            2 █ ░ ░ ░",
        "   3 █ █ █ █            3 █ ░ ░ ░            3 █ ░ ░ ░",
        "",
        "length 3, filled up to 4:",
        "     causal               padding              both",
    ]
    assert_drawn(tmp_path / "mask.png")
    causal = np.tri(3, 3, dtype=bool)
    assert [mask.sum() for mask in masks_of(causal, 2)] == [6, 6, 5]


def test_files_for_which_no_place_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """They are in a folder that git ignores, and the command names it."""
    monkeypatch.chdir(tmp_path)
    assert call("mask", "--lang", "en").endswith(f"wrote {OUT / 'mask.png'}\n")
    assert [path.relative_to(tmp_path) for path in tmp_path.rglob("*.*")] == [OUT / "mask.png"]
    commands = get_command(app).commands | {"roofline": get_command(course).get_command(None, "roofline")}
    for name, command in commands.items():
        assert next(each for each in command.params if each.name == "out").default == OUT, name
    for name in (OUT / "mask.png", Path("book") / OUT / "mask.png", "requests.out.jsonl"):
        subprocess.run(["git", "check-ignore", "--quiet", "--no-index", name], cwd=ROOT, check=True)


def test_sampling(tmp_path: Path) -> None:
    settings = ["--temp", 0.5, "--top-k", 6, "--top-p", 0.9, "--min-p", 0.2]
    text = call("sampling", "--prompt", "Once", *settings, "--tokens", 4, "--out", tmp_path, "--lang", "en")
    assert_drawn(tmp_path / "sampling.png")
    probe = Probe("story", "ref")
    logits = [probe.logits(probe.prompt("Once"))]
    logits.append(logits[-1] / 0.5)
    for step, value in ((apply_top_k, 6), (apply_top_p, 0.9), (apply_min_p, 0.2)):
        logits.append(step(logits[-1], value))
    probs = [np.array(mx.softmax(step, axis=-1))[0] for step in logits]
    _, header, *rows, rest, left = text.split("\n\n")[0].splitlines()
    assert header.split("  ")[-1].strip() == "min-p 0.2"
    for row, token in zip(rows, np.argsort(-probs[0]), strict=False):
        shown = [f"{p[token]:.1%}" if p[token] else "-" for p in probs]
        assert row.split()[1:6] == [share if share != "0.0%" else "<0.1%" for share in shown]
    assert left.split()[2:] == [f"{(p > 0).sum():,}" for p in probs]
    assert rest.startswith("all others")


def test_sampling_shows_only_steps_that_do_something(tmp_path: Path) -> None:
    off = ["--top-k", 0, "--top-p", 1, "--min-p", 0, "--out", tmp_path, "--lang", "en"]
    assert call("sampling", "--temp", 1, *off).splitlines()[1].split() == ["model"]
    greedy = call("sampling", "--temp", 0, *off).splitlines()
    assert greedy[1].split() == ["model", "temp", "0"]
    assert "  100.0%  " in greedy[2]
    assert {row.split()[2] for row in greedy[3:11]} == {"-"}


@pytest.mark.parametrize("command", ["attention", "rope", "mask", "sampling"])
def test_without_matplotlib(command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with_it = call(command, "--out", tmp_path / "with").splitlines()
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    lines = call(command, "--out", tmp_path, "--lang", "en").splitlines()
    line = f"No picture: matplotlib is not installed. To install it: {install_command('viz')}"
    assert lines.count(line) == 1
    assert len(lines) == len(with_it)
    assert [file.name for file in tmp_path.glob("*.*")] == (["attention.html"] if command == "attention" else [])


BAD = {
    "attention --layer 3": "--layer: expected 0 to 2, since the model has 3, got 3",
    "attention --layer -1": "--layer: expected 0 to 2, since the model has 3, got -1",
    "attention --head 6": "--head: expected 0 to 5, since the model has 6, got 6",
    "attention --prompt=": "the prompt: expected some text, got none",
    f"attention --prompt {'x' * 513}": "--prompt: expected at most 512 tokens, this model's context, got 513",
    f"attention --prompt {'x' * 129}": "--prompt: expected at most 128 tokens, the most that a page shows, got 129",
    "attention --prompt \udcff": "the text: expected UTF-8, got other bytes",
    "attention --model nowhere": "--model: no checkpoint directory 'nowhere'",
    "attention --impl theirs": "--impl: expected one of ref, mine, got 'theirs'",
    "attention --lang de": "--lang: expected one of en, ja, got 'de'",
    "attention --prompt x --out {file}": "--out: expected a folder that can be written to, got {file}: exists already",
    "rope --out {file}/x": "--out: expected a folder that can be written to, got {file}/x: a part of the",
    "rope --dims 7": "--dims: expected an even number from 2 to 512, got 7",
    "rope --dims 0": "--dims: expected an even number from 2 to 512, got 0",
    "rope --base 1": "--base: expected more than 1, got 1.0",
    "rope --base nan": "--base: expected more than 1, got nan",
    "rope --positions 1": "--positions: expected 2 to 4096, got 1",
    "rope --impl theirs": "--impl: expected one of ref, mine, got 'theirs'",
    "mask --queries 9": "--queries: expected 1 to 8, the number of keys, got 9",
    "mask --keys 33": "--keys: expected 1 to 32, got 33",
    "mask --lengths 3,x": "--lengths: expected up to 8 numbers from 0 to 8, the number of keys, with commas between",
    "mask --lengths 9": "--lengths: expected up to 8 numbers from 0 to 8, the number of keys, with commas between",
    "sampling --temp -1": "--temp: expected a number, 0 or more, got -1.0",
    "sampling --top-k -1": "--top-k: expected a whole number, 0 or more, got -1",
    "sampling --tokens 0": "--tokens: expected 1 to 40, got 0",
    "sampling --prompt=": "the prompt: expected some text, got none",
}


@pytest.mark.parametrize("arguments", BAD)
def test_bad_input(arguments: str, checkpoint: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    file = tmp_path / "file"
    file.touch()
    command, *options = arguments.format(file=file).split(" ")
    model = ["--model", str(checkpoint)] if command in ("attention", "sampling") else []
    result = CliRunner().invoke(app, [command, *model, *options])
    assert result.exit_code == (1 if "nowhere" in arguments else 2)
    assert result.stderr.startswith(f"error: {BAD[arguments].format(file=file)}")
    assert result.stderr.count("\n") == 1
    assert list(tmp_path.iterdir()) == [file]


def test_a_learners_attention_is_shown_as_it_is(checkpoint: Path, tmp_path: Path) -> None:
    """Attention that looks ahead shows weights above the diagonal."""
    package = tmp_path / "tiny_llm"
    shutil.copytree(Path(tiny_llm_ref.__file__).parent, package, ignore=shutil.ignore_patterns("__pycache__"))
    attention = (package / "attention.py").read_text()
    (package / "attention.py").write_text(attention.replace("mx.arange(S) <= query_positions", "query_positions >= 0"))
    code = "from tiny_llm_course.viz.viz_commands import app; app()"
    options = ["--impl", "mine", "--model", str(checkpoint), "--prompt", "abc", "--out", str(tmp_path)]
    run = subprocess.run([sys.executable, "-c", code, "attention", *options], env={"PYTHONPATH": str(tmp_path)})
    assert run.returncode == 0
    assert (weights_in((tmp_path / "attention.html").read_text())[0, :, 0, 1:].sum(axis=-1) > 0).all()


def test_other_commands_do_not_wait_for_it() -> None:
    code = (
        "import sys, tiny_llm_course.viz.viz_commands; print(sorted({'matplotlib', 'mlx', 'numpy'} & set(sys.modules)))"
    )
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout == "[]\n"
