"""The training data of the bundled models: tokenizer, encoded documents, batches. Training itself: tests/train."""

from __future__ import annotations

import re
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from random import Random

import numpy as np
import pytest
from mlx_lm.tokenizer_utils import load as load_tokenizer
from tokenizers import Regex, Tokenizer, pre_tokenizers

from tiny_llm_models.storyteller import LANGUAGES, lexicon
from tiny_llm_models.storyteller.documents import Document, Mix, document
from tiny_llm_models.training.corpus import Corpus, chunks, shards, training_document, write_shards
from tiny_llm_models.training.encoding import Encoder, _made_up
from tiny_llm_models.training.recipes import SMOKE_STAGES, STAGES, VOCAB_SIZE
from tiny_llm_models.training.tokenizer import save_tokenizer, train_tokenizer
from tiny_llm_models.training.vocabulary import GAP, single_tokens, told_with_gaps, word_pattern

DOCUMENTS = 240
STAGE = replace(SMOKE_STAGES[0], documents=60, stories=0.3, respelled=1)


device = pytest.fixture(lambda: None)  # nothing here computes on one


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    mix = Mix(strange=0, stopped=0)
    return train_tokenizer([re.sub(r"<\|\w+\|>", "\n", document("train", i, mix).text) for i in range(DOCUMENTS)])


@pytest.fixture(scope="module")
def folder(tokenizer: Tokenizer, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder into which one stage has been written."""
    folder = tmp_path_factory.mktemp("work")
    tokenizer.save(str(folder / "tokenizer.json"))
    write_shards(folder, [STAGE], 0, lambda count: None)
    return folder


def words_of(text: str) -> list[str]:
    """Return the words within which BPE merges tokens."""
    split = pre_tokenizers.Split(Regex(word_pattern()), behavior="isolated")
    return [word for word, _ in split.pre_tokenize_str(text)]


# Tokenizer


def test_names_are_not_glued_to_particles():
    assert words_of("ハナは") == ["ハナ", "は"]
    assert words_of("ハナちゃんとケンくん") == ["ハナ", "ちゃんと", "ケン", "くん"]
    assert words_of("大きなりんごを") == ["大きな", "りんご", "を"]
    assert words_of("Tom's ball.\n") == ["Tom", "'s", " ball", ".", "\n"]


def test_words_of_the_lexicon_are_not_found_within_others():
    assert words_of("どうして") == ["どうして"]
    assert words_of("もちろん") == ["もちろん"]


def test_every_word_of_the_lexicons_is_one_token(tokenizer: Tokenizer):
    words = single_tokens()
    assert {" Tom", "Tom", " ball", " red", "ハナ", "りんご", "積み木", "赤い"} <= set(words)
    assert [word for word in words if len(tokenizer.encode(word).ids) != 1] == []


def test_a_vocabulary_that_is_too_small_is_refused():
    with pytest.raises(ValueError, match=r"expected room for \d+ words in 600 tokens, but these are cut: \["):
        train_tokenizer(["a"] * 30, 600)


@pytest.mark.parametrize("language", LANGUAGES)
def test_kinds_and_nouns_are_one_token_wherever_they_are_told(tokenizer: Tokenizer, language: str):
    words = lexicon(language)
    kinds_and_nouns = {lexeme.key for lexeme in words.lexemes}
    for seed in range(50):
        text, gaps = told_with_gaps(words, seed)
        spans = re.fullmatch("(.*)".join(re.escape(part) for part in gaps.split(GAP)), text, re.DOTALL)
        tokens = set(tokenizer.encode(text).offsets)
        for number in range(1, spans.re.groups + 1) if spans else ():
            start, end = spans.span(number)
            if spans[number] in kinds_and_nouns and " " not in spans[number]:
                assert {(start, end), (start - 1, end)} & tokens, (spans[number], text)


def test_special_tokens_come_last(tokenizer: Tokenizer):
    assert tokenizer.get_vocab_size() == VOCAB_SIZE
    assert tokenizer.token_to_id("<|im_end|>") == VOCAB_SIZE - 1


def test_other_libraries_load_the_tokenizer(tokenizer: Tokenizer, tmp_path: Path):
    save_tokenizer(tokenizer, tmp_path)
    loaded = load_tokenizer(tmp_path)
    text = "Once upon a time… むかしむかし、あるところに 🐢 1,234\n"
    assert loaded.encode(text) == tokenizer.encode(text).ids
    assert loaded.decode(loaded.encode(text)) == text
    chat = [{"role": "user", "content": text}, {"role": "assistant", "content": "?"}]
    written = f"<|im_start|>user\n{text}<|im_end|>\n<|im_start|>assistant\n?<|im_end|>\n"
    assert list(loaded.apply_chat_template(chat)) == tokenizer.encode(written).ids


# Documents


def test_pieces_are_encoded_as_in_the_whole_text(tokenizer: Tokenizer):
    encoder = Encoder(tokenizer, respelled=0, named=6)
    for index in range(40):
        each = document("train", index, Mix(long=0.3))
        ids, weights = encoder.encode(each, Random(index))
        assert ids == tokenizer.encode(each.text).ids
        assert set(weights) - {6} == {weight for _, weight in each.pieces} - {6}


@pytest.mark.parametrize("kind", ["story", "request"])
def test_a_story_weighs_more_where_it_names_somebody_or_something(
    tokenizer: Tokenizer, kind: str, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("tiny_llm_models.storyteller.documents._AMID", 0)  # whole stories
    encoder = Encoder(tokenizer, respelled=0, named=6)
    for index in range(50):
        each = document("train", index, Mix(shares={kind: 1}))
        ids, weights = encoder.encode(each, Random(index))
        heavy = {tokenizer.decode([token]).strip() for token, weight in zip(ids, weights, strict=True) if weight == 6}
        assert heavy <= set(each.named)
        assert len(heavy) > 3, each.text


def test_made_up_words_are_of_their_language(tokenizer: Tokenizer):
    words = {word: {_made_up(word, Random(seed)) for seed in range(50)} for word in ("ball", "Tom", "花", "タオル")}
    assert all(len(made_up) > 40 for made_up in words.values())
    assert all(word.isalpha() and word.islower() for word in words["ball"])
    assert all(word.istitle() for word in words["Tom"])
    assert not any(word.isascii() for word in words["花"] | words["タオル"])


def test_only_documents_with_questions_are_respelled(tokenizer: Tokenizer):
    encoder, respelled = Encoder(tokenizer, respelled=1, named=6), 0
    for index in range(80):
        each = training_document(STAGE, index)
        ids, weights = encoder.encode(each, Random(index))
        changed = ids != tokenizer.encode(each.text).ids
        respelled += changed
        if changed:
            assert each.subjects
            assert set(weights) == {0, 6}  # the story itself is not learned
    assert respelled > 15


def test_a_respelled_word_is_the_same_in_the_answer(tokenizer: Tokenizer):
    pieces = [("Tom has a ball.", 0.0), ("\n\nWho has it?", 0.0), ("Tom has it.", 8.0)]
    encoder = Encoder(tokenizer, respelled=1, named=6)
    for seed in range(20):
        ids, _ = encoder.encode(Document(pieces, ["Tom"]), Random(seed))
        ending = tokenizer.encode(" has it.").ids
        spelled = ids[: ids.index(ending[0])]
        assert ids[-len(ending) - len(spelled) :] == spelled + ending


def test_stages_say_what_has_weight():
    for stage in STAGES:
        for index in range(60):
            each = training_document(stage, index)
            if each.subjects:
                assert {weight for _, weight in each.pieces} == {0, 6}


def test_shards_are_the_documents_in_their_order(folder: Path, tokenizer: Tokenizer):
    [path] = shards(folder, [STAGE], 0)
    encoder, first = Encoder(tokenizer, STAGE.respelled, STAGE.named), 10_000_000
    documents = [training_document(STAGE, first + i) for i in range(60)]
    encoded = [encoder.encode(each, Random(f"spelling {first} {i}"))[0] for i, each in enumerate(documents)]
    with np.load(path) as arrays:
        assert arrays["lengths"].tolist() == [len(ids) for ids in encoded]
        assert arrays["ids"].tolist() == [token for ids in encoded for token in ids]


def test_shards_that_are_there_are_not_written_again(folder: Path):
    [path] = shards(folder, [STAGE], 0)
    before, told = path.stat().st_mtime_ns, list[int]()
    write_shards(folder, [STAGE], 0, told.append)
    assert path.stat().st_mtime_ns == before
    assert told == [60]


def test_a_pass_meets_each_document_once(folder: Path):
    corpus = Corpus(shards(folder, [STAGE], 0), STAGE)
    plan = corpus.plan(every=1, seed="0")
    assert sorted(i for batch in plan for i in batch) == list(range(60))
    assert len({i for batch in corpus.plan(every=3, seed="0") for i in batch}) == 20
    for documents in plan:
        batch = corpus.batch(documents)
        assert batch.ids.shape == batch.weights.shape
        assert batch.ids.size <= STAGE.batch_tokens
        assert batch.ids.shape[1] % 32 == 0


def test_chunks_have_all_shards_and_their_share_of_more():
    paths, more = [Path(f"{i}") for i in range(25)], [Path(f"own {i}") for i in range(3)]
    assert chunks(paths) == [paths[:10], paths[10:20], paths[20:]]
    assert chunks(paths, more) == [[*paths[:10], more[0]], [*paths[10:20], more[1]], [*paths[20:], more[2]]]
    assert [len(chunk) for chunk in chunks(paths, more[:1])] == [11, 10, 5]


def test_in_the_last_stage_all_words_of_a_story_weigh_the_same(tokenizer: Tokenizer):
    encoder = Encoder(tokenizer, STAGES[-1].respelled, STAGES[-1].named)
    for index in range(50):
        _, weights = encoder.encode(document("train", index, Mix(shares={"story": 1})), Random(index))
        assert set(weights) == {1}


def test_documents_of_a_stage_do_not_overlap_with_the_next():
    stages = [replace(STAGE, documents=3000), replace(STAGE, documents=100)]
    assert [path.name for path in shards(Path(), stages, 0)] == [
        "corpus-1-10000000-10002000.npz",
        "corpus-1-10002000-10003000.npz",
    ]
    assert [path.name for path in shards(Path(), stages, 1)] == ["corpus-2-20000000-20000100.npz"]
    texts = [training_document(STAGE, index).text for index in range(40)]
    assert all(one != other for one, other in pairwise(texts))
