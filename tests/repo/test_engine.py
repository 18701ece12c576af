"""--bits and --layers: the models that generate and chat build, and the messages of both commands."""

import json
import shutil
from pathlib import Path

import mlx.core as mx
import pytest
from learner import Clone
from mlx_lm.utils import load, quantize_model, save_model
from typer.testing import CliRunner

from tiny_llm_course.__main__ import app
from tiny_llm_course.model import loaded_model
from tiny_llm_course.model.loaded_model import LoadedModel, Wanted
from tiny_llm_course.ui.errors import CommandError
from tiny_llm_models import bundled
from tiny_llm_native import extension
from tiny_llm_ref.optimise import KernelLinear
from tiny_llm_ref.quantize import QuantizedEmbedding, QuantizedLinear
from tiny_llm_ref.sampler import greedy
from tiny_llm_ref.tuned import TunedBlock

QUESTION = "Mia had a red key. She hid the key in the old box. Where is the key?"
ANSWER = "The key is in the old box.\n"
GENERATE = ("main", "--model", str(bundled("story")), "--temp", "0", "--prompt", QUESTION)


device = pytest.fixture(lambda: None)  # the commands choose their own


@pytest.fixture(scope="module")
def packed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return `story`, quantised and written by mlx-lm."""
    path = tmp_path_factory.mktemp("checkpoint")
    model, _ = load(str(bundled("story")))
    config = json.loads((bundled("story") / "config.json").read_text())
    model, config = quantize_model(model, config, 64, 4)
    save_model(path, model)
    (path / "config.json").write_text(json.dumps(config))
    for file in ("tokenizer.json", "tokenizer_config.json", "chat_template.jinja"):
        if (bundled("story") / file).exists():
            shutil.copy(bundled("story") / file, path)
    return path


@pytest.mark.parametrize(
    "options",
    [
        "--layers kernels",
        "--bits 8",
        "--bits 8 --layers kernels",
        "--bits 4 --layers kernels --dtype bfloat16",
        "--layers tuned",
        "--bits 4 --layers tuned",
        "--bits 4 --layers tuned --threads 1",
    ],
)
def test_the_answer_stays(options):
    run = CliRunner().invoke(app, [*GENERATE, *options.split()])
    assert (run.exit_code, run.stdout) == (0, ANSWER), run.output


@pytest.mark.parametrize("layers", ["kernels", "tuned"])
def test_quantised_checkpoint_stays_packed(packed, layers):
    model = LoadedModel(Wanted("tiny_llm_ref", str(packed), layers=layers)).model
    if layers == "tuned":
        assert isinstance(model.layers[0], TunedBlock)
    else:
        assert isinstance(model.layers[0].self_attn.q_proj, KernelLinear)
        assert isinstance(model.embed_tokens, QuantizedEmbedding)


def test_quantised_checkpoint_becomes_dense_for_plain_layers(packed):
    engine = LoadedModel(Wanted("tiny_llm_ref", str(packed)))
    assert not isinstance(engine.model.layers[0].mlp.up_proj, QuantizedLinear)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"bits": 3}, "--bits: expected one of 2, 4, 8, got 3"),
        ({"layers": "fast"}, "--layers: expected one of auto, plain, kernels, tuned, got 'fast'"),
        ({"threads": 0}, "--threads: expected 1 to 256, got 0"),
        ({"dtype": "int8"}, "--dtype: expected one of float32, bfloat16, float16, got 'int8'"),
        (
            {"layers": "tuned", "is_fast": True},
            "--fast: expected a model of 4 bits, got weights that are not quantised; give --bits 4",
        ),
        ({"layers": "tuned", "bits": 8}, "--layers tuned: expected 4 bits in groups of 64.* got 8 bits"),
        ({"layers": "tuned", "bits": 4, "dtype": "float16"}, "--layers tuned: expected --dtype bfloat16, or none"),
    ],
)
def test_refusals(options, said):
    with pytest.raises(CommandError, match=said):
        LoadedModel(Wanted("tiny_llm_ref", "story", **options))


def test_dtype_of_a_quantised_checkpoint(packed):
    with pytest.raises(CommandError, match="--layers tuned: expected --dtype bfloat16, or none"):
        LoadedModel(Wanted("tiny_llm_ref", str(packed), dtype="float32", layers="tuned"))


def test_bits_of_a_quantised_checkpoint(packed):
    with pytest.raises(CommandError, match="--bits: this checkpoint has 4 bits already; leave --bits out"):
        LoadedModel(Wanted("tiny_llm_ref", str(packed), bits=8))


@pytest.mark.parametrize("bits", [(), ("--bits", "4")], ids=str)
def test_tuned_layers_without_an_mlx_extension(tmp_path, bits):
    clone = Clone.create(tmp_path)
    run = clone.run(*GENERATE, *bits, "--layers", "tuned", TINY_LLM_KERNELS="off")
    assert run.returncode == 1
    assert run.stderr.splitlines()[-1].startswith("error: --layers tuned: TINY_LLM_KERNELS is off")


def test_kernels_as_far_as_they_are_written(tmp_path):
    """The learner has written week 1, days 1 and 3, and SwiGLU."""
    clone = Clone.create(tmp_path)
    written = [f"w1d{day}.{task}" for day in range(1, 8) for task in range(1, 5)] + ["w2d1.1", "w2d1.2", "w2d1.3"]
    written += ["w2d3.1", "w2d3.2", "w2d3.3", "w2d3.4", "w2d5.3"]
    for file in (clone.root / "src/tiny_llm_ref").rglob("*"):
        name = file.relative_to(clone.root / "src/tiny_llm_ref").as_posix()
        if file.suffix in (".py", ".cpp") and not name.startswith(("kernels/built", "foundations")):
            clone.file(name).write_text(clone.solved(name, *written))
    run = clone.run(*GENERATE, "--impl", "mine", "--bits", "8", "--layers", "kernels", TINY_LLM_KERNELS="")
    assert (run.returncode, run.stdout) == (0, ANSWER), run.stderr
    missing = "quantized_matvec, rms_norm, rope, quantized_matmul, attention"
    assert f"note: these kernels are not written yet, so plain layers do their work: {missing}" in run.stderr


@pytest.fixture
def on_cpu():
    before = mx.default_device()
    mx.set_default_device(mx.cpu)
    yield
    mx.set_default_device(before)


@pytest.mark.parametrize("is_compiled", [True, False])
@pytest.mark.parametrize("wanted", [{}, {"dtype": "float32"}, {"threads": 1}, {"model": "packed"}], ids=str)
def test_auto_needs_compiled_kernels(monkeypatch, on_cpu, packed, is_compiled, wanted):
    monkeypatch.setattr(loaded_model, "are_compiled", lambda package, kernels: is_compiled)
    path = str(packed) if "model" in wanted else "story"
    engine = LoadedModel(Wanted("tiny_llm_ref", **{**wanted, "model": path, "layers": "auto"}))
    assert engine.layers == ("tuned" if is_compiled else "plain")
    assert isinstance(engine.model.layers[0], TunedBlock) == is_compiled
    assert (engine.lacks_kernels, engine.dtype) == (not is_compiled, mx.float32)
    plain = LoadedModel(Wanted("tiny_llm_ref", path))
    prompt = engine.tokenizer.encode(QUESTION)
    assert list(engine.tokens(prompt, greedy, 8)) == list(plain.tokens(prompt, greedy, 8))


@pytest.mark.parametrize("options", [{"bits": 4}, {"dtype": "bfloat16"}, {"package": "tiny_llm"}], ids=str)
def test_auto_leaves_other_arithmetic_and_the_learners_code(monkeypatch, on_cpu, options):
    monkeypatch.setattr(loaded_model, "are_compiled", lambda package, kernels: True)
    wanted = Wanted(**{"package": "tiny_llm_ref", "model": "story", "layers": "auto", **options})
    assert loaded_model._choose_layers(wanted) == ("plain", False)


def test_auto_leaves_a_gpu(monkeypatch):
    monkeypatch.setattr(mx, "default_device", lambda: mx.Device(mx.gpu))
    assert loaded_model._choose_layers(Wanted("tiny_llm_ref", "story", layers="auto")) == ("plain", False)


def test_auto_leaves_weights_that_bfloat16_cannot_represent(monkeypatch, on_cpu, tmp_path):
    path = tmp_path / "story"
    shutil.copytree(bundled("story"), path)
    weights = {name: 1.1 * weight.astype(mx.float32) for name, weight in mx.load(f"{path}/model.safetensors").items()}
    mx.save_safetensors(f"{path}/model.safetensors", weights)
    monkeypatch.setattr(loaded_model, "are_compiled", lambda package, kernels: True)
    engine = LoadedModel(Wanted("tiny_llm_ref", str(path), layers="auto"))
    assert (engine.layers, engine.lacks_kernels) == ("plain", False)
    assert len(list(engine.tokens([1, 2, 3], greedy, 2))) == 2


def test_auto_falls_back_if_no_kernel_runs(monkeypatch, on_cpu):
    """For example, the libraries are compiled, but cannot be loaded."""
    monkeypatch.setattr(loaded_model, "are_compiled", lambda package, kernels: True)
    monkeypatch.setattr(extension, "mode", lambda: "off")
    monkeypatch.setattr(loaded_model, "are_off", lambda: False)
    assert LoadedModel(Wanted("tiny_llm_ref", "story", layers="auto")).layers == "plain"


@pytest.mark.skipif(mx.default_device() != mx.Device(mx.cpu), reason="on a GPU, auto means plain layers")
def test_compiled_kernels_are_found(tmp_path):
    """`main` uses kernels only after `build-ext-ref`, and says so before. Wrong variables end it with an error."""
    clone = Clone.create(tmp_path)
    shutil.copy(bundled("story") / "model.safetensors", clone.root / "src/tiny_llm_models/story")
    with (clone.root / "src/tiny_llm_native/matmul/unquantised.cpp").open("a") as file:
        file.write("// not compiled yet, although clones share compiled kernels\n")
    ask = ("main", "--temp", "0", "--prompt", QUESTION)
    before = clone.run(*ask, TINY_LLM_KERNELS="")
    off = clone.run(*ask, TINY_LLM_KERNELS="off")
    clone.run("build-ext", "--impl", "ref", TINY_LLM_KERNELS="")
    after = clone.run(*ask, TINY_LLM_KERNELS="")
    assert [run.stdout for run in (before, off, after)] == [ANSWER] * 3
    assert "./course build-ext-ref compiles the reference's kernels once" in before.stderr
    assert "build-ext" not in off.stderr + after.stderr
    for variable in ("TINY_LLM_KERNELS", "TINY_LLM_THREADS"):
        run = clone.run(*ask, **{"TINY_LLM_KERNELS": "", variable: "zero"})
        assert (run.returncode, run.stderr.splitlines()[-1].startswith(f"error: {variable}: expected")) == (2, True)


def test_the_loop_of_an_engine_ends():
    engine = LoadedModel(Wanted("tiny_llm_ref", "story", bits=4, layers="tuned"))
    prompt = engine.tokenizer.encode("Once upon a time")
    tokens = list(engine.tokens(prompt, greedy, 5))
    assert len(tokens) == 5
    assert tokens == list(engine.tokens(prompt, greedy, 5))  # each time with an empty cache
    assert mx.array(tokens).dtype == mx.int32


def test_threads():
    before = extension.threads()
    try:
        LoadedModel(Wanted("tiny_llm_ref", "story", bits=4, layers="tuned", threads=3))
        assert extension.threads() == 3
    finally:
        extension.set_threads(before)
