"""The pipeline that makes the bundled models, run on a small scale. Needs PyTorch: scripts/check train."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path
from random import Random

import mlx.core as mx
import numpy as np
import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file
from tokenizers import Tokenizer
from transformers import AutoModelForCausalLM, AutoTokenizer

from tiny_llm_given.config import ModelConfig
from tiny_llm_given.weights import load_weights
from tiny_llm_models import BUNDLED
from tiny_llm_models.evaluation import Exam, chat_prompt, exams
from tiny_llm_models.hf_format import END
from tiny_llm_models.storyteller import LANGUAGES, Wish, lexicon, tell
from tiny_llm_models.storyteller.reading import read
from tiny_llm_models.training import freedom
from tiny_llm_models.training.answers import answers
from tiny_llm_models.training.checkpoint import mix_in, weights_of, write_checkpoint, write_defaults
from tiny_llm_models.training.corpus import Corpus, shards
from tiny_llm_models.training.draft_heads import HeadNetworks, HeadTrainer
from tiny_llm_models.training.freedom import Told
from tiny_llm_models.training.improving import best_settings, write_own_stories, write_rare_stories
from tiny_llm_models.training.measure import Effort, measure, settings_of
from tiny_llm_models.training.muon import orthogonal
from tiny_llm_models.training.origin import origin_row, read_origin
from tiny_llm_models.training.recipes import RECIPES, SMOKE, SMOKE_STAGES
from tiny_llm_models.training.sampling import GREEDY, Sampler, Settings, load_model
from tiny_llm_models.training.trainer import Part, Trainer
from tiny_llm_ref.serving.draft_heads import DraftHeads

PIPELINE = [sys.executable, "-m", "tiny_llm_models.training"]
KILLED = """
import os, signal, sys
from tiny_llm_models.training import trainer
from tiny_llm_models.training.__main__ import app
trainer._SAVE_SECONDS = 0
run = trainer.Trainer.run
def die_at_step_4(one, report):
    def watched(step):
        report(step)
        if step["step"] == 4:  # which is not saved yet
            os.kill(os.getpid(), signal.SIGKILL)
    run(one, watched)
trainer.Trainer.run = die_at_step_4
app(["train", "story", "--smoke", "--work", sys.argv[1]])
"""


@pytest.fixture
def device() -> None:
    """PyTorch's is its own choice."""


@pytest.fixture(scope="module")
def work(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where everything was made, in two runs, the first of which was killed."""
    work = tmp_path_factory.mktemp("work")
    killed = subprocess.run([sys.executable, "-c", KILLED, str(work)], timeout=3600)
    assert killed.returncode == -signal.SIGKILL
    assert torch.load(work / "smoke" / "story" / "checkpoint.pt")["step"] == 3
    subprocess.run([*PIPELINE, "all", "--smoke", "--work", str(work)], check=True, timeout=3600)
    return work / "smoke"


@pytest.fixture(scope="module")
def checkpoint(work: Path) -> Path:
    return work / "checkpoints" / "story"


def new_trainer(work: Path, folder: Path, name: str = "story", **more: Path) -> Trainer:
    """The training before the model tells its own stories."""
    stages = SMOKE_STAGES[: -len(SMOKE["story"].more_stories)]
    parts = [Part(stage, [shards(work, SMOKE_STAGES, number)]) for number, stage in enumerate(stages)]
    return Trainer(SMOKE[name], parts, folder, **more)


@pytest.mark.parametrize("name", BUNDLED)
def test_everything_is_made(work: Path, name: str):
    folder = work / "checkpoints" / name
    assert {path.name for path in folder.iterdir()} == {
        *("config.json", "generation_config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json"),
        *("README.md", "README.ja.md", "loss.svg", "evaluation.json", "training.jsonl", "origin.toml"),
    }
    for card in ("README.md", "README.ja.md"):
        text = (folder / card).read_text(encoding="utf-8")
        assert f"# {name}\n" in text
        assert "{" not in text
        assert origin_row(read_origin(folder), int(card.endswith(".ja.md"))) in text.splitlines()
    figures = json.loads((folder / "evaluation.json").read_text(encoding="utf-8"))
    assert ("agreement" in figures) == (name == "story-draft")
    assert {"temperature", "min_p"} <= json.loads(
        (folder / "generation_config.json").read_text(encoding="utf-8")
    ).keys()
    steps = [json.loads(line)["step"] for line in (folder / "training.jsonl").read_text(encoding="utf-8").splitlines()]
    assert steps == sorted(set(steps))


def test_what_is_made_is_not_made_again(work: Path):
    files = sorted((work / "checkpoints").glob("*/evaluation.json"))
    before = [file.stat().st_mtime_ns for file in files]
    subprocess.run([*PIPELINE, "all", "--smoke", "--work", str(work.parent)], check=True, timeout=3600)
    assert [file.stat().st_mtime_ns for file in files] == before


# Draft heads


def test_draft_heads_learn(work: Path, tmp_path: Path):
    """They learn to guess better, and training that was stopped goes on."""
    stage = SMOKE_STAGES[-1]
    corpus = Corpus(shards(work, SMOKE_STAGES, len(SMOKE_STAGES) - 1), stage)
    reports: list[tuple[float, list[float]]] = []
    trainer = HeadTrainer(work / "checkpoints" / "story", corpus, tmp_path)
    trainer.run(lambda done, right: reports.append((done, right)))
    assert reports[-1][0] == 1
    again = HeadTrainer(work / "checkpoints" / "story", corpus, tmp_path)
    assert again.step == trainer.step > 0
    for _ in range(30):
        losses = again.learn(corpus.plan(1, "more")[0], 4e-3)
    assert losses[0] > max(right[0] for _, right in reports if right)


def test_draft_heads_are_what_the_engine_loads(work: Path):
    subprocess.run([*PIPELINE, "heads", "story", "--smoke", "--work", str(work.parent)], check=True, timeout=3600)
    path = work / "checkpoints" / "draft_heads" / "story.safetensors"
    with safe_open(path, "numpy") as file:
        assert file.metadata()["weights"] == weights_of(work / "checkpoints" / "story")
    config = ModelConfig.from_pretrained(work / "checkpoints" / "story")
    hidden, embedded = np.random.default_rng(0).standard_normal((2, 5, config.hidden_size)).astype(np.float32)
    heads = HeadNetworks(config.hidden_size)
    heads.load_state_dict({name: weight.float() for name, weight in load_file(path).items()})
    with torch.no_grad():
        expected = heads(torch.from_numpy(hidden), torch.from_numpy(embedded)).numpy()
    found = DraftHeads(mx.load(str(path)))(hidden, embedded)
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-4)


# Training


def test_a_killed_training_goes_on_as_if_nothing_had_happened(work: Path, tmp_path: Path):
    trainer = new_trainer(work, tmp_path)
    trainer.run(lambda step: None)
    saved = torch.load(work / "story" / "checkpoint.pt")
    assert saved["step"] == trainer.step > 4
    for key, weight in trainer.model.state_dict().items():
        torch.testing.assert_close(saved["model"][key].to(weight.device), weight, rtol=1e-4, atol=1e-6)


def test_the_log_forgets_steps_that_were_lost(work: Path, tmp_path: Path):
    new_trainer(work, tmp_path).run(lambda step: None)
    log = tmp_path / "log.jsonl"
    log.write_text('{"step": 1}\n{"step": 2, "loss": 1}\n{"step": 999}\n{"st', encoding="utf-8")
    new_trainer(work, tmp_path)
    assert log.read_text(encoding="utf-8") == '{"step": 1}\n{"step": 2, "loss": 1}\n'


def test_training_learns(work: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("tiny_llm_models.training.trainer._LOG_STEPS", 1)
    losses: list[float | None] = []
    new_trainer(work, tmp_path).run(lambda step: losses.append(step["loss"]))
    known = [loss for loss in losses if loss is not None]  # a batch may have no story to learn
    assert known[-1] < known[0] - 0.5


def test_another_training_is_not_mixed_up_with_this_one(work: Path, tmp_path: Path):
    new_trainer(work, tmp_path).run(lambda step: None)
    parts = [Part(SMOKE_STAGES[0], [shards(work, SMOKE_STAGES, 0)])]
    with pytest.raises(ValueError, match=r"expected a run of 80 documents, got 104"):
        Trainer(SMOKE["story"], parts, tmp_path)


def test_a_draft_learns_from_its_teacher(work: Path, checkpoint: Path, tmp_path: Path):
    trainer = new_trainer(work, tmp_path, "story-draft", teacher=checkpoint)
    trainer.run(lambda step: None)
    assert trainer.done == 1
    assert trainer.step > 1


def test_training_starts_from_a_checkpoint(work: Path, checkpoint: Path, tmp_path: Path):
    loaded = AutoModelForCausalLM.from_pretrained(checkpoint, dtype=torch.float32).state_dict()
    for key, weight in new_trainer(work, tmp_path, start=checkpoint).model.state_dict().items():
        assert torch.equal(loaded[key], weight.cpu())


def test_the_checkpoint_has_the_trained_weights(work: Path, checkpoint: Path):
    """A tenth of each weight is from before the last stage."""
    trained = torch.load(work / "story-rare" / "checkpoint.pt", map_location="cpu")["model"]
    before = AutoModelForCausalLM.from_pretrained(work / "story" / "before-rare", dtype=torch.float32).state_dict()
    loaded = AutoModelForCausalLM.from_pretrained(checkpoint, dtype=torch.float32).state_dict()
    assert set(loaded) == set(trained)
    for key, weight in loaded.items():
        assert torch.equal(weight, trained[key].lerp(before[key], 0.1).bfloat16().float())
    assert load_weights(checkpoint, ModelConfig.from_pretrained(checkpoint)).keys() == set(loaded) - {"lm_head.weight"}


def test_transformers_load_the_tokenizer(checkpoint: Path):
    theirs, ours = AutoTokenizer.from_pretrained(checkpoint), Tokenizer.from_file(str(checkpoint / "tokenizer.json"))
    text = "Once upon a time… むかしむかし、あるところに 🐢 1,234\n"
    assert theirs.encode(text) == ours.encode(text).ids
    assert theirs.decode(theirs.encode(text)) == text
    chat = theirs.apply_chat_template([{"role": "user", "content": text}], add_generation_prompt=True, tokenize=False)
    assert chat == chat_prompt(text)


@pytest.mark.parametrize("shape", [(5, 9), (9, 5), (7, 7)])
def test_muon_updates_are_nearly_orthogonal(shape: tuple[int, int]):
    torch.manual_seed(0)
    singular = torch.linalg.svdvals(orthogonal(torch.randn(shape)))
    assert singular.min() > 0.5
    assert singular.max() < 1.3


@pytest.mark.parametrize("name", RECIPES)
def test_sizes_can_be_quantised_in_every_group_size(name: str):
    recipe = RECIPES[name]
    for size in (recipe.hidden_size, recipe.intermediate_size, recipe.heads * 64):
        assert size % 128 == 0


def test_an_unknown_model_is_named():
    result = subprocess.run([*PIPELINE, "train", "storm"], capture_output=True, text=True)
    assert result.returncode == 2
    assert "expected one of story, story-draft, story-qwen2, got 'storm'" in " ".join(result.stderr.split())


# Sampling and evaluation


def test_a_batch_is_continued_as_each_text_alone(checkpoint: Path):
    sampler = Sampler(checkpoint)
    prompts = ["Once upon a time", "むかしむかし", "Tom", "The story of Anna and the red ball begins here. It"]
    together = sampler.continued(prompts, GREEDY, 12)
    model = AutoModelForCausalLM.from_pretrained(checkpoint, dtype=torch.float32)
    for prompt, (text, ended) in zip(prompts, together, strict=True):
        ids = sampler.tokenizer.encode(prompt).ids
        [told] = model.generate(torch.tensor([ids]), max_new_tokens=12, do_sample=False).tolist()
        told = told[len(ids) : -1] if ended else told[len(ids) :]
        assert sampler.tokenizer.decode(told, skip_special_tokens=False) == text


def test_texts_that_have_ended_leave_the_others_alone(checkpoint: Path, monkeypatch: pytest.MonkeyPatch):
    sampler, random = Sampler(checkpoint), torch.Generator().manual_seed(0)
    for weight in sampler.model.parameters():  # so that the texts differ
        weight.data = torch.randn(weight.shape, generator=random).to(weight.device) / weight.shape[-1] ** 0.5
    starts = ["Once", "There lived a cat", "むかし", "ハナは", '"Thank you," said Tom. ', "The red ball"]
    prompts = [sampler.tokenizer.encode(start).ids for start in starts]

    def written() -> list[list[int]]:
        return sampler._batch(prompts, GREEDY, 30, torch.Generator(sampler.model.device))

    expected = written()
    stops = {expected[0][5], expected[1][8], expected[2][11], expected[3][14]}
    monkeypatch.setattr(sampler, "_stops", torch.tensor(list(stops), device=sampler.model.device))
    for row, whole in zip(written(), expected, strict=True):
        length = next((i for i, token in enumerate(whole, 1) if token in stops), len(whole))
        assert row == whole[:length]
    assert len(set(map(len, written()))) > 2


def test_seeds_decide_and_min_p_1_is_greedy(checkpoint: Path):
    sampler, prompts = Sampler(checkpoint), ["Once"] * 3
    drawn = [sampler.continued(prompts, Settings(1.0), 10, seed) for seed in (1, 1, 2)]
    assert drawn[0] == drawn[1] != drawn[2]
    assert sampler.continued(prompts, Settings(1.0, min_p=1.0), 10) == sampler.continued(prompts, GREEDY, 10)


def test_answers_are_counted(checkpoint: Path, monkeypatch: pytest.MonkeyPatch):
    sampler = Sampler(checkpoint)
    made: list[Exam] = exams(sampler.tokenizer, "english", "short", 4)
    written = [(made[0].question.answer, True), (made[1].question.answer, False), ("The story does not say.", True)]
    monkeypatch.setattr(sampler, "continued", lambda *_: [*written, ("", False)])
    figures = answers(sampler, made)
    assert figures["right"] == 0.25
    assert figures["does not say"] == 0.25


def test_stories_are_judged():
    words = lexicon("english")
    assert len(set(freedom.openings(words, 30))) == 30
    assert not set(freedom.openings(words, 30)) & set(freedom.openings(words, 30, "train"))


def test_copies_are_found(work: Path):
    [shard] = shards(work, SMOKE_STAGES, 0)
    with np.load(shard) as arrays:
        ids, told = arrays["ids"].tolist(), arrays["weights"] > 0
    start = next(i for i in range(len(ids)) if told[i : i + 80].all())
    read = next(i for i in range(len(ids)) if not told[i : i + 80].any())
    stories = [ids[start + 10 : start + 80], ids[start + 10 : start + 70], [1] * 80, ids[read : read + 80]]
    assert freedom.copies(stories, [shard], 61) == [True, False, False, False]


def test_everything_is_measured(work: Path, checkpoint: Path):
    write_defaults(checkpoint, {"temperature": 0.6, "min_p": 0.1})
    assert settings_of(checkpoint) == Settings(0.6, 0.1)
    figures = measure(checkpoint, checkpoint, shards(work, SMOKE_STAGES, 0), Effort(*[2] * 7), lambda text: None)
    assert json.loads(json.dumps(figures)) == figures
    assert figures["agreement"] == dict.fromkeys(LANGUAGES, 1)
    assert figures["settings"] == {"temperature": 0.6, "min_p": 0.1}
    for language in LANGUAGES:
        assert figures["free stories"][language]["in 4 bit"]["stories"] == 2
        assert 100 < figures["perplexity"][language]["bfloat16"] < 10_000  # nothing was learnt yet


def test_a_model_learns_only_from_those_of_its_stories_that_are_right(
    checkpoint: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    words, shard = lexicon("english"), tmp_path / "own.npz"
    right = tell(words, Random(0)).text
    told = [Told(text, True, read(words, text)) for text in (right, right.replace(".", " or not."))]
    monkeypatch.setattr(freedom, "tell_stories", lambda *_: told)
    write_own_stories(checkpoint, [shard], 2, lambda text: None)
    tokenizer = Tokenizer.from_file(str(checkpoint / "tokenizer.json"))
    with np.load(shard) as arrays:
        assert arrays["ids"].tolist() == 2 * tokenizer.encode(right + END).ids  # one of each language


def test_a_model_that_tells_nothing_right_learns_nothing_from_itself(work: Path):
    with np.load(work / "own-story-0.npz") as arrays:
        assert arrays["lengths"].tolist() == []


def test_a_model_that_tells_one_plot_only_learns_the_others(
    checkpoint: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    texts = {language: tell(lexicon(language), Random(0), Wish(plot="race")).text for language in LANGUAGES}
    monkeypatch.setattr(
        freedom, "tell_stories", lambda _, words, *rest: [Told(text := texts[words.language], True, read(words, text))]
    )
    paths = [tmp_path / "rare-0.npz", tmp_path / "rare-1.npz"]
    write_rare_stories(checkpoint, paths, 60, lambda text: None)
    tokenizer, plots = Tokenizer.from_file(str(checkpoint / "tokenizer.json")), Counter[str]()
    for path in paths:
        with np.load(path) as arrays:
            assert len(arrays["lengths"]) == 60
            for ids in np.split(arrays["ids"], np.cumsum(arrays["lengths"])[:-1]):
                text = tokenizer.decode(ids.tolist()).removesuffix(END)
                readings = [read(lexicon(language), text) for language in LANGUAGES]
                [story] = [reading.story for reading in readings if reading.right]
                plots[story.plot.name] += 1
    assert plots["race"] < 5
    assert len(plots) > 20  # of 32, in two languages that share some names


def test_weights_are_averaged_with_earlier_ones(checkpoint: Path):
    model = load_model(checkpoint)
    earlier = {name: weight.clone() for name, weight in model.named_parameters()}
    with torch.no_grad():
        for weight in model.parameters():
            weight += 1
    mix_in(model, checkpoint, 0.25)
    for name, weight in model.named_parameters():
        torch.testing.assert_close(weight, earlier[name] + 0.75)


def test_settings_with_few_faults_and_much_variety_are_chosen():
    tried = [
        {"temperature": 0.5, "min_p": 0.0, "without faults": 0.99, "bigrams": 0.7, "most plot": 0.2},
        {"temperature": 0.7, "min_p": 0.0, "without faults": 0.985, "bigrams": 0.8, "most plot": 0.2},
        {"temperature": 1.0, "min_p": 0.0, "without faults": 0.9, "bigrams": 0.9, "most plot": 0.2},
    ]
    assert best_settings(tried) == {"temperature": 0.7, "min_p": 0.0}


def test_settings_with_which_one_plot_is_told_again_and_again_are_the_last_resort():
    often = {"temperature": 0.5, "min_p": 0.2, "without faults": 0.99, "bigrams": 0.8, "most plot": 0.4}
    varied = {"temperature": 1.0, "min_p": 0.1, "without faults": 0.95, "bigrams": 0.8, "most plot": 0.15}
    assert best_settings([often, varied]) == {"temperature": 1.0, "min_p": 0.1}
    assert best_settings([often]) == {"temperature": 0.5, "min_p": 0.2}


def test_a_checkpoint_without_settings_uses_the_usual_ones(work: Path, tmp_path: Path):
    trainer = new_trainer(work, tmp_path / "new")
    write_checkpoint(tmp_path / "out", SMOKE["story"], trainer.model, Tokenizer.from_file(str(work / "tokenizer.json")))
    assert settings_of(tmp_path / "out") == Settings()
