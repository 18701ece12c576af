"""Week 1 Day 6: generating text."""

from types import SimpleNamespace

import mlx.core as mx
import numpy as np
import pytest
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

from tiny_llm_models.hf_format import SPECIAL_TOKENS
from tiny_llm_models.untrained import byte_tokenizer

task_1 = pytest.mark.task("w1d6.1")
task_2 = pytest.mark.task("w1d6.2")
task_3 = pytest.mark.task("w1d6.3")

# ------------------------------------------------------------------------------------------ task 1: the generation loop

VOCAB = 23


class CountingModel:
    """A model that gives the highest logit to one more than the sum of all tokens so far, modulo VOCAB."""

    def __init__(self, context=64):
        every = tuple(range(VOCAB))  # only the argument eos_token_ids ends a text
        self.config = SimpleNamespace(max_position_embeddings=context, vocab_size=VOCAB, eos_token_ids=every)
        self.layers = []
        self.inputs = []

    def __call__(self, tokens, cache=None):
        self.inputs.append(np.array(tokens).tolist())
        best = (np.cumsum(np.array(tokens), axis=1) + 1) % VOCAB  # 1, L
        return mx.array(np.eye(VOCAB)[best])  # 1, L, V

    def hidden(self, tokens, cache=None):
        return self(tokens)

    def logits(self, hidden):
        return hidden


def continuation(prompt, count):
    tokens = list(prompt)
    for _ in range(count):
        tokens.append((sum(tokens) + 1) % VOCAB)
    return tokens[len(prompt) :]


def greedy(logits, tokens):
    return mx.argmax(logits, axis=-1)


@task_1
@pytest.mark.parametrize("prompt", [[7], [3, 1, 4], [0, 0, 0, 0, 22], [*range(1, 23)] * 2], ids=len)
def test_task_1_tokens(impl, prompt):
    got = list(impl.generate.generate_simple(CountingModel(), list(prompt), greedy, max_tokens=9))
    assert got == continuation(prompt, 9)
    assert all(isinstance(token, int) for token in got), "tokens are Python ints, as a tokenizer expects them"


@task_1
def test_task_1_feeds_the_whole_sequence(impl):
    model = CountingModel()
    new = list(impl.generate.generate_simple(model, [3, 1, 4], greedy, max_tokens=4))
    assert model.inputs[:4] == [[[3, 1, 4, *new[:count]]] for count in range(4)]
    assert len(model.inputs) == 4, "one step of the model for each token"


@task_1
def test_task_1_yields_each_token_before_the_next_step(impl):
    model = CountingModel()
    tokens = impl.generate.generate_simple(model, [3, 1, 4], greedy, max_tokens=4)
    next(tokens)
    assert len(model.inputs) == 1, "the first token is to be yielded before the model's second step"


@task_1
@pytest.mark.parametrize("max_tokens", [0, 1, 5])
def test_task_1_max_tokens(impl, max_tokens):
    got = list(impl.generate.generate_simple(CountingModel(), [5], greedy, max_tokens=max_tokens))
    assert got == continuation([5], max_tokens)


@task_1
@pytest.mark.parametrize("position", [0, 2, 7])
@pytest.mark.parametrize("several", [False, True], ids=["one", "several"])
def test_task_1_end_of_sequence(impl, position, several):
    """Each of the end-of-sequence tokens ends the text, and is not part of it."""
    tokens = continuation([3, 1], 8)
    eos = tokens[position]
    others = sorted(set(range(VOCAB)) - set(tokens)) if several else []
    for eos_token_ids in ((*others, eos), [eos, *others]):
        model = CountingModel()
        got = list(impl.generate.generate_simple(model, [3, 1], greedy, 20, eos_token_ids))
        assert got == tokens[: tokens.index(eos)]
        assert len(model.inputs) == len(got) + 1, "there is no step after the end of the text"


@task_1
def test_task_1_end_of_sequence_zero(impl):
    """Token 0 can be an end-of-sequence token like any other."""
    assert list(impl.generate.generate_simple(CountingModel(), [22], greedy, 3)) == [0, 0, 0]
    assert list(impl.generate.generate_simple(CountingModel(), [22], greedy, 3, {0})) == []


@task_1
def test_task_1_end_of_sequence_of_a_large_vocabulary(impl):
    """Compare ids with `==` or `in`, not with `is`: Python reuses the same object only for small numbers."""
    model = CountingModel()
    model.config.vocab_size = 5000

    def sampler(logits, tokens):
        return mx.array([1000 + tokens.shape[1]])

    assert list(impl.generate.generate_simple(model, [3, 1], sampler, 9, [int("1005")])) == [1002, 1003, 1004]


@task_1
def test_task_1_end_of_sequence_in_the_prompt(impl):
    """A chat template puts end tokens after every turn of the prompt. Only a newly generated one ends the text."""
    tokens = continuation([3, 1, 4], 5)
    got = list(impl.generate.generate_simple(CountingModel(), [3, 1, 4], greedy, 5, {1} - set(tokens)))
    assert got == tokens


@task_1
def test_task_1_stops_at_the_end_of_the_context(impl):
    tokens = continuation([3, 1, 4], 5)
    assert list(impl.generate.generate_simple(CountingModel(context=8), [3, 1, 4], greedy, 100)) == tokens
    got = list(impl.generate.generate_simple(CountingModel(context=8), [3, 1, 4], greedy, 100, {tokens[-1]}))
    assert got == tokens[:-1], "the last token that fits may end the text, too"


@task_1
def test_task_1_what_the_sampler_gets(impl):
    """The sampler gets the logits after the last token (1 x V) and all tokens so far (1 x L)."""
    seen = []

    def sampler(logits, tokens):
        seen.append((np.array(logits).tolist(), np.array(tokens).tolist()))
        return mx.array([2])

    assert list(impl.generate.generate_simple(CountingModel(), [3, 1], sampler, 3)) == [2, 2, 2]
    scores = np.eye(VOCAB)
    assert seen == [
        ([scores[5].tolist()], [[3, 1]]),
        ([scores[7].tolist()], [[3, 1, 2]]),
        ([scores[9].tolist()], [[3, 1, 2, 2]]),
    ]


@task_1
def test_task_1_leaves_the_prompt_alone(impl):
    prompt = [3, 1, 4]
    list(impl.generate.generate_simple(CountingModel(), prompt, greedy, 4))
    assert prompt == [3, 1, 4]
    got = list(impl.generate.generate_simple(CountingModel(), tuple(prompt), greedy, 4))
    assert got == continuation(prompt, 4), "a tuple is a sequence too"


@task_1
@pytest.mark.parametrize(
    ("prompt", "max_tokens"),
    [([1] * 8, 4), ([1] * 9, 4), ([3, VOCAB], 4), ([3, -1], 4), ([3, 1], -1), ([], 4), ([], 0)],
    ids=["context full", "longer", "id too large", "negative id", "negative max_tokens", "empty", "empty, no tokens"],
)
def test_task_1_wrong_arguments(impl, prompt, max_tokens):
    """Wrong arguments raise a ValueError when the first token is requested. Keep the stub's call of `_check_prompt`."""

    def generate(prompt, max_tokens):
        return impl.generate.generate_simple(CountingModel(context=8), list(prompt), greedy, max_tokens)

    next(generate([3, 1], 4))  # a stub ends here
    tokens = generate(prompt, max_tokens)  # no error yet
    with pytest.raises((ValueError, AssertionError)):
        next(tokens, None)


# ------------------------------------------------------------------------------------------------- task 2: streaming

TEXTS = [
    "Once upon a time",
    "むかしむかし、あるところに",
    "鍵は🗝️にあります。👨‍👩‍👧‍👦 é",
    "a\n\tb  c ",
    "𠮷野家 – naïve €5",
    "",
]


class CountingTokenizer:
    """A tokenizer that counts how many tokens it was asked to decode. By default, it keeps special tokens, as Hugging
    Face's tokenizers do."""

    def __init__(self, tokenizer):
        self.tokenizer = tokenizer
        self.most = 0

    def decode(self, tokens, skip_special_tokens=False):
        self.most = max(self.most, len(tokens))
        return self.tokenizer.decode(list(tokens), skip_special_tokens=skip_special_tokens)


def pair_tokenizer():
    """Return a tokenizer with tokens for bytes and for pairs of bytes, so a token may end one character and begin the
    next."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    letters = {b: a for a, b in zip(alphabet, alphabet, strict=True)}
    level = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    merges = set()
    for text in TEXTS:
        mapped = level.pre_tokenize_str(text)
        joined = "".join(piece for piece, _ in mapped)
        merges |= {(joined[i], joined[i + 1]) for i in range(1, len(joined) - 1, 2)}
    vocab = {letter: i for i, letter in enumerate(letters)}
    for a, b in sorted(merges):
        vocab.setdefault(a + b, len(vocab))
    tokenizer = Tokenizer(models.BPE(vocab=vocab, merges=sorted(merges)))
    tokenizer.pre_tokenizer, tokenizer.decoder = level, decoders.ByteLevel()
    return tokenizer


WORDS = ["▁Once", "▁upon", "▁a", "▁time", "s", "▁"]
END = len(WORDS)


def word_tokenizer():
    """Return a tokenizer that decodes like Llama's: "▁word" becomes " word", but without the space at the very
    beginning. If consecutive bytes are not all whole characters, each becomes U+FFFD."""
    vocab = WORDS + ["<end>"] + [f"<0x{byte:02X}>" for byte in range(256)]
    tokenizer = Tokenizer(models.WordLevel({word: i for i, word in enumerate(vocab)}, unk_token="▁"))
    tokenizer.add_special_tokens([AddedToken("<end>", special=True, normalized=False)])
    steps = [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    tokenizer.decoder = decoders.Sequence(steps)
    return tokenizer


def stream(impl, tokenizer, tokens):
    detokenizer = impl.generate.StreamingDetokenizer(tokenizer)
    return [*(detokenizer.add(token) for token in tokens), detokenizer.finish()]


@task_2
@pytest.mark.parametrize("text", TEXTS)
@pytest.mark.parametrize("make", [byte_tokenizer, pair_tokenizer], ids=["bytes", "pairs"])
def test_task_2_nothing_broken_nothing_lost(impl, make, text):
    tokenizer = make()
    tokens = tokenizer.encode(text).ids
    pieces = stream(impl, tokenizer, tokens)
    assert "".join(pieces) == text
    assert not any("\ufffd" in piece for piece in pieces), "a character was shown before it was whole"


@task_2
def test_task_2_shows_text_as_soon_as_it_is_whole(impl):
    """Each token is one byte. An ASCII character appears at once, あ with its third byte, and 😀 with its fourth."""
    tokenizer = byte_tokenizer()
    pieces = stream(impl, tokenizer, tokenizer.encode("a あb😀").ids)
    assert pieces == ["a", " ", "", "", "あ", "b", "", "", "", "😀", ""]


@task_2
@pytest.mark.parametrize("make", [byte_tokenizer, pair_tokenizer], ids=["bytes", "pairs"])
def test_task_2_wherever_the_text_ends(impl, make):
    """Generation may stop in the middle of a character. Complete characters come out at once, and the remaining bytes
    at the end. One of the pairs ends と and begins こ."""
    tokenizer = make()
    tokens = tokenizer.encode("a ところ").ids
    for count in range(len(tokens) + 1):
        text = tokenizer.decode(tokens[:count])
        *pieces, rest = stream(impl, tokenizer, tokens[:count])
        assert "".join(pieces) == text.rstrip("\ufffd")
        assert "".join(pieces) + rest == text


@task_2
def test_task_2_broken_bytes_in_the_middle(impl):
    """A model may write bytes that form no character. They must not hold back the text after them, and must not
    vanish."""
    tokenizer = byte_tokenizer()
    broken = tokenizer.encode("鍵").ids[:1]
    tokens = [*tokenizer.encode("ab").ids, *broken, *tokenizer.encode("cd鍵").ids]
    pieces = stream(impl, tokenizer, tokens)
    assert "".join(pieces) == tokenizer.decode(tokens) == "ab\ufffdcd鍵"
    assert "".join(pieces[:5]) == "ab\ufffdcd"


@task_2
def test_task_2_a_real_replacement_character(impl):
    """The text itself may contain U+FFFD."""
    tokenizer = byte_tokenizer()
    text = "a\ufffdb\ufffd"
    assert "".join(stream(impl, tokenizer, tokenizer.encode(text).ids)) == text


@task_2
def test_task_2_random_bytes(impl):
    tokenizer = byte_tokenizer()
    for seed in range(20):
        tokens = np.random.RandomState(seed).randint(0, 256, 40).tolist()
        assert "".join(stream(impl, tokenizer, tokens)) == tokenizer.decode(tokens)


@task_2
def test_task_2_special_tokens_are_left_out(impl):
    tokenizer = byte_tokenizer()
    special = [tokenizer.token_to_id(token) for token in SPECIAL_TOKENS]
    a, b = tokenizer.encode("ab").ids
    pieces = stream(impl, CountingTokenizer(tokenizer), [special[1], a, special[2], b, special[0]])
    assert "".join(pieces) == "ab"


@task_2
@pytest.mark.parametrize(
    "tokens", [[0, 1, 2, 3, 4], [END, 0, END, 1, 2, END, END, 3, 4, END]], ids=["words", "words and special tokens"]
)
def test_task_2_spaces_that_decoding_drops_at_the_beginning(impl, tokens):
    """After a special token, the next word still follows other words, so it keeps its space."""
    tokenizer = word_tokenizer()
    assert tokenizer.decode(tokens) == "Once upon a times"
    assert "".join(stream(impl, tokenizer, tokens)) == "Once upon a times"


@task_2
def test_task_2_a_new_byte_that_breaks_what_was_whole(impl):
    """The first byte of 鍵 turns the 🗝 before it back into U+FFFD, until the last byte of 鍵 arrives."""
    tokenizer = word_tokenizer()
    tokens = [0, *(END + 1 + byte for byte in "🗝鍵".encode()), 1]
    assert tokenizer.decode(tokens) == "Once🗝鍵 upon"
    assert "".join(stream(impl, tokenizer, tokens)) == "Once🗝鍵 upon"


@task_2
def test_task_2_cost_of_a_step_does_not_grow(impl):
    tokenizer = CountingTokenizer(byte_tokenizer())
    tokens = tokenizer.tokenizer.encode("むかしむかし" * 40).ids
    assert len(tokens) == 720
    stream(impl, tokenizer, tokens)
    assert tokenizer.most < 100, f"up to {tokenizer.most} tokens were decoded in one step"


@task_2
def test_task_2_two_streams_do_not_mix(impl):
    tokenizer = byte_tokenizer()
    one, two = impl.generate.StreamingDetokenizer(tokenizer), impl.generate.StreamingDetokenizer(tokenizer)
    pairs = zip(tokenizer.encode("あい").ids, tokenizer.encode("鍵🗝").ids, strict=False)
    texts = [(one.add(a), two.add(b)) for a, b in pairs]
    assert ["".join(text) for text in zip(*texts, strict=True)] == ["あい", "鍵"]


# --------------------------------------------------------------------------------------------- task 3: stop strings


def cut(impl, pieces, stops):
    """Return the output for each piece, the output at the end, and whether a stop string was found."""
    stop_strings = impl.generate.StopStrings(stops)
    out = [stop_strings.add(piece) for piece in pieces]
    return [*out, stop_strings.finish()], stop_strings.found


@task_3
@pytest.mark.parametrize(
    ("pieces", "stops", "text", "found"),
    [
        (["one two three"], ["two"], "one ", True),
        (["one t", "w", "o three"], ["two"], "one ", True),
        (list("one two three"), ["two"], "one ", True),
        (["one ", "two ", "three"], ["four"], "one two three", False),
        (["one ", "two"], [], "one two", False),
        (["one tw"], ["two"], "one tw", False),
        (["one tw", "ist two"], ["two"], "one twist ", True),
        (["two"], ["two"], "", True),
        (["a\n", "\nb"], ["\n\n"], "a", True),
        (["one two three two"], ["two"], "one ", True),
        (["a,b a.b"], ["a.b"], "a,b ", True),
        (["one two"], ["TWO", "Two"], "one two", False),
        (["aaab"], ["aab"], "a", True),
        (list("aaab"), ["aab"], "a", True),
        (list("ababac"), ["abac"], "ab", True),
        (["x<|im", "_end|>y"], ["<|im_end|>"], "x", True),
        (["むかし", "むかし"], ["しむ"], "むか", True),
        (["to User: hi", "\nUser:"], ["\nUser:"], "to User: hi", True),
        (["one,", " two"], [", "], "one", True),
    ],
)
def test_task_3_cuts_before_the_stop_string(impl, pieces, stops, text, found):
    out, was_found = cut(impl, pieces, stops)
    assert ("".join(out), was_found) == (text, found)


@task_3
@pytest.mark.parametrize("pieces", [["one two three"], list("one two three")], ids=["at once", "by characters"])
@pytest.mark.parametrize(
    "stops",
    [["three", "two"], ["two", "three"], ["two", "wo"], ["wo", "two"], ["two three", "two"], ["zzz", "two"]],
    ids=str,
)
def test_task_3_the_first_of_several_in_the_text(impl, pieces, stops):
    """Of several stop strings, the one that the text completes first counts, not the first one in the list."""
    out, found = cut(impl, pieces, stops)
    assert ("".join(out), found) == ("one ", True)


@task_3
def test_task_3_holds_back_no_more_than_it_must(impl):
    out, _ = cut(impl, ["one ", "tw", "ist", " t", "ab"], ["two"])
    assert out == ["one ", "", "twis", "t ", "tab", ""]


@task_3
def test_task_3_says_nothing_after_the_stop(impl):
    out, found = cut(impl, ["one two", " three", " four"], ["two"])
    assert (out, found) == (["one ", "", "", ""], True)


@task_3
def test_task_3_found_turns_true_at_once(impl):
    stop_strings = impl.generate.StopStrings(["two"])
    assert stop_strings.found is False
    stop_strings.add("one t")
    assert stop_strings.found is False
    stop_strings.add("wo")
    assert stop_strings.found is True


@task_3
@pytest.mark.parametrize("pieces", [["abcd"], ["abc", "d"], list("abcd")], ids=str)
def test_task_3_a_stop_string_inside_of_another(impl, pieces):
    """ "bc" is inside of "abcd" and complete before it, so "bc" ends the text, however the text is cut into pieces."""
    out, found = cut(impl, pieces, ["abcd", "bc"])
    assert ("".join(out), found) == ("a", True)


@task_3
def test_task_3_two_do_not_mix(impl):
    one, two = impl.generate.StopStrings(["a"]), impl.generate.StopStrings(["b"])
    assert (one.add("xa"), two.add("ya")) == ("x", "ya")
    assert (one.found, two.found) == (True, False)


@task_3
def test_task_3_any_way_of_cutting_into_pieces_gives_the_same(impl):
    text, stops = "abcabdabcabcabe", ["abcabe", "bdx"]
    for seed in range(30):
        random = np.random.RandomState(seed)
        ends = sorted({*random.randint(0, len(text), 6), len(text)})
        pieces = [text[a:b] for a, b in zip([0, *ends], ends, strict=False)]
        out, found = cut(impl, pieces, stops)
        assert ("".join(out), found) == ("abcabdabc", True), pieces


@task_3
@pytest.mark.parametrize("stops", ["two", [""], ["two", ""]], ids=str)
def test_task_3_wrong_stops(impl, stops):
    """An empty stop string, or a string instead of a list, raises a ValueError. Keep the stub's call of
    `_check_stops`."""
    impl.generate.StopStrings(["two"])  # a stub ends here
    with pytest.raises((ValueError, AssertionError)):
        impl.generate.StopStrings(stops)


@task_3
def test_task_3_together(impl):
    """The given `stream_text` joins the three: tokens in, text out, and it requests no token after a stop string."""
    tokenizer = byte_tokenizer()
    asked = []

    def tokens():
        for token in tokenizer.encode("鍵は箱の中。おわり。そして").ids:
            asked.append(token)
            yield token

    pieces = list(impl.generate.stream_text(tokens(), tokenizer, ["おわり"]))
    assert "".join(pieces) == "鍵は箱の中。"
    assert len(asked) == len(tokenizer.encode("鍵は箱の中。おわり").ids)


@task_3
@pytest.mark.parametrize(("missing", "text"), [(0, "鍵は🗝"), (1, "鍵は"), (3, "鍵は"), (5, "鍵")])
def test_task_3_together_without_stop(impl, missing, text):
    """The first bytes of a character that never becomes complete are not text."""
    tokenizer = byte_tokenizer()
    tokens = tokenizer.encode("鍵は🗝").ids
    assert "".join(impl.generate.stream_text(iter(tokens[: len(tokens) - missing]), tokenizer)) == text
