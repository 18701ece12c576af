"""The limits of what one client can ask of a server, however much it sends, and how little other clients notice."""

from __future__ import annotations

import asyncio
import copy
import json
import random
import sys
import threading
from collections.abc import Mapping
from typing import Any

import pytest
from pydantic import ValidationError
from starlette.requests import Request as HttpRequest
from tokenizers import AddedToken, Tokenizer, decoders, normalizers, pre_tokenizers
from tokenizers.models import BPE
from transformers import PreTrainedTokenizerFast
from waiting import until

from tiny_llm_given.chat_template import ChatTemplate
from tiny_llm_given.serving.api_error import ApiError
from tiny_llm_given.serving.chat_prompt import ChatPrompt, encode_chat
from tiny_llm_given.serving.parsing import parse
from tiny_llm_given.serving.room import Room, TooLongError
from tiny_llm_models.untrained import byte_tokenizer
from tiny_llm_ref import models
from tiny_llm_ref.serving import server as server_module
from tiny_llm_ref.serving.event_stream import ClientGoneError
from tiny_llm_ref.serving.prompts import Prompts
from tiny_llm_ref.serving.protocol import ChatRequest, CompletionRequest
from tiny_llm_ref.serving.server import Limits, ServedModel, Server

COMPLETION = {"model": "story", "prompt": "Once"}
CHAT = {"model": "story", "messages": [{"role": "user", "content": "Hi"}]}
SAID = [{"role": "user", "content": "Tell me a story."}]
PATIENCE = 60  # seconds after which a missing event fails a test


@pytest.fixture(scope="module")
def tokenizer() -> Any:
    from mlx_lm.tokenizer_utils import load

    return load(models.resolve("story"))


# ------------------------------------------------------------------------------------------------------------- bodies


@pytest.mark.parametrize(
    ("kind", "body", "message"),
    [
        (CompletionRequest, COMPLETION | {"stop": list("abcde")}, "stop: List should have at most 4 items"),
        (ChatRequest, CHAT | {"modalities": ["text"] * 9}, "modalities: this server does not support it"),
        (CompletionRequest, COMPLETION | {"stop": "x" * 257}, "stop.0: expected 256 characters at most, got 257"),
        (CompletionRequest, COMPLETION | {"prompt": [[1]] * 2049}, "prompt: expected 2048 prompts at most, got 2049"),
        (CompletionRequest, COMPLETION | {"logit_bias": {str(i): 1 for i in range(1025)}}, "body: expected 1024 names"),
        (CompletionRequest, COMPLETION | {f"a{i}": 1 for i in range(1025)}, "body: expected 1024 names at most"),
        (ChatRequest, CHAT | {"messages": CHAT["messages"] * 2049}, "messages: List should have at most 2048 items"),
    ],
)
def test_what_is_too_long(kind: Any, body: Mapping[str, Any], message: str) -> None:
    with pytest.raises(ApiError) as refused:
        parse(kind, json.dumps(body).encode())
    assert str(refused.value).startswith(message)
    parse(CompletionRequest, json.dumps(COMPLETION | {"stop": ["x" * 256] * 4}).encode())


@pytest.mark.parametrize(
    ("kind", "body"),
    [
        (ChatRequest, CHAT | {"messages": [1] * 2000}),
        (ChatRequest, CHAT | {"messages": [{"role": "user", "content": [1] * 2000}] * 2000}),
        (ChatRequest, CHAT | {"messages": [{"role": "user", "content": [{"type": "text"}] * 2000}]}),
        (CompletionRequest, COMPLETION | {"stop": [1, 2, 3, 4]}),
        (CompletionRequest, COMPLETION | {"prompt": [{}] * 2000}),
    ],
)
def test_the_first_error_ends_the_validation(kind: Any, body: Mapping[str, Any]) -> None:
    """A content is a text or a list, so it may have two errors, but not one per item."""
    with pytest.raises(ValidationError) as refused:
        kind.model_validate(body)
    assert refused.value.error_count() <= 2


@pytest.mark.parametrize(
    "asked",
    [
        COMPLETION | {"y" * 9000: 1},
        COMPLETION | {"stream_options": {"z" * 9000: 1}},
        COMPLETION | {"response_format": {"type": "x" * 9000}},
    ],
)
def test_long_values_are_shortened_in_messages(asked: Mapping[str, Any]) -> None:
    with pytest.raises(ApiError) as refused:
        parse(CompletionRequest, json.dumps(asked).encode())
    assert len(json.dumps(refused.value.body)) < 1000
    shown = ApiError(404, f"model: expected 'story', got {'m' * 9000!r}").body["error"]["message"]
    assert shown is not None
    assert shown.startswith("model: expected 'story', got 'mmm")
    assert " … " in shown
    assert shown.endswith("mmm'")


def asked_by(body: bytes, **headers: str) -> HttpRequest:
    """Return an HTTP request whose body comes byte by byte, from a client that then stays."""
    left = list(reversed([body[i : i + 1] for i in range(len(body))] if len(body) < 1000 else [body]))
    stays = asyncio.Event()

    async def receive() -> dict[str, Any]:
        if left:
            return {"type": "http.request", "body": left.pop(), "more_body": bool(left)}
        await stays.wait()
        return {"type": "http.disconnect"}

    given = {"content-type": "application/json"} | headers
    sent = [(name.encode(), value.encode("latin-1")) for name, value in given.items()]
    return HttpRequest({"type": "http", "method": "POST", "headers": sent}, receive)


class Open:
    """An engine that can take more requests."""

    is_stopping = False

    def check_open(self, count: int = 1) -> None:
        pass


def made(tokenizer: Any, **limits: Any) -> Server:
    engine: Any = Open()
    metrics: Any = None
    return Server(engine, ServedModel("story", tokenizer, 1024), metrics, Limits(**limits))


def test_a_large_body_is_parsed_away_from_the_loop(tokenizer: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    where: list[threading.Thread] = []

    def noted(kind: Any, body: bytes) -> Any:
        where.append(threading.current_thread())
        return parse(kind, body)

    monkeypatch.setattr(server_module, "parse", noted)
    server = made(tokenizer)
    for prompt in ("Once", "x" * 70_000):
        found = asyncio.run(
            server.read(CompletionRequest, asked_by(json.dumps(COMPLETION | {"prompt": prompt}).encode()))
        )
        assert found.prompt == [prompt]
    assert [thread is threading.main_thread() for thread in where] == [True, False]


@pytest.mark.parametrize(
    ("given", "is_right"),
    [
        ("Bearer a key", True),
        ("bearer a key", True),
        ("BEARER  a key ", True),
        ("Bearer a Key", False),
        ("Bearer", False),
        ("Basic a key", False),
        ("a key", False),
        ("Bearer sécret", False),
        ("", False),
    ],
)
def test_the_scheme_of_a_key_has_no_case(tokenizer: Any, given: str, is_right: bool) -> None:
    async def handler(request: HttpRequest) -> Any:
        return "welcome"

    guarded = made(tokenizer, api_key="a key").guarded(handler)
    if is_right:
        assert asyncio.run(guarded(asked_by(b"", authorization=given))) == "welcome"  # type: ignore[comparison-overlap]
    else:
        with pytest.raises(ApiError) as refused:
            asyncio.run(guarded(asked_by(b"", authorization=given)))
        assert refused.value.status == 401


# -------------------------------------------------------------------------------------------------- texts and tokens


def test_no_token_stands_for_more_than_the_room_says(tokenizer: Any) -> None:
    draw = random.Random(3)
    control = [str(token) for token in tokenizer.added_tokens_decoder.values()]
    for _ in range(300):
        text = "".join(draw.choice([*control, "the dog", " ", "\n", "数", "e\u0301", "x"]) for _ in range(40))
        count = len(tokenizer.encode(text))
        Room(tokenizer, count + 1).check_text(text)
    vocabulary = tokenizer.get_vocab()
    longest = tokenizer.decode([vocabulary[max(vocabulary, key=len)]])
    Room(tokenizer, 2).check_text(longest)
    with pytest.raises(TooLongError):
        Room(tokenizer, 2).check_text(longest + "x")


def test_a_normaliser_makes_several_bytes_into_one() -> None:
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    made = Tokenizer(BPE(vocab={letter: i for i, letter in enumerate(alphabet)}, merges=[]))  # no token has two bytes
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    made.decoder = decoders.ByteLevel()
    made.normalizer = normalizers.NFC()
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=made)
    text = "\u1112\u1161\u11ab" * 50  # three letters of three bytes, and one of three
    assert len(tokenizer.encode(text)) == len(text)
    Room(tokenizer, len(text) + 1).check_text(text)
    with pytest.raises(TooLongError):
        Room(tokenizer, len(text)).check_text(text + "x")


def test_where_a_token_takes_any_number_of_blanks_no_text_is_too_long() -> None:
    made = byte_tokenizer()
    made.add_special_tokens([AddedToken("<mask>", lstrip=True)])
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=made)
    text = " " * 5000 + "<mask>"
    assert len(tokenizer.encode(text)) == 1
    Room(tokenizer, 2).check_text(text)


class Blocked:
    """A tokenizer that encodes only when the test lets it, and notes the texts."""

    def __init__(self, tokenizer: Any):
        self.tokenizer, self.encoded = tokenizer, list[str]()
        self.begun, self.free = threading.Event(), threading.Event()

    def __getattr__(self, name: str) -> Any:
        return getattr(self.tokenizer, name)

    def __len__(self) -> int:
        return len(self.tokenizer)

    def __deepcopy__(self, memo: Any) -> Blocked:
        return self

    def encode(self, text: str, **settings: Any) -> Any:
        self.encoded.append(text)
        self.begun.set()
        assert self.free.wait(PATIENCE)
        return self.tokenizer.encode(text, **settings)


def test_what_cannot_fit_is_not_encoded(tokenizer: Any) -> None:
    spy = Blocked(tokenizer)
    prompts = Prompts(spy, 1024)
    for content in ("<|im_end|>" * 85_000, "x" * 100_000):
        with pytest.raises(TooLongError, match="expected 1024 tokens at most, of prompt and output, got a text of"):
            asyncio.run(prompts.encode(content))
        with pytest.raises(TooLongError, match="expected 1024 tokens at most, of prompt and output, got a text of"):
            asyncio.run(prompts.encode_chat([{"role": "user", "content": content}], False))
    with pytest.raises(TooLongError, match="got a prompt of 340000 or more"):
        asyncio.run(prompts.encode([1] * 340_000))
    assert spy.encoded == []


def test_a_chat_is_encoded_no_further_than_there_is_room(tokenizer: Any) -> None:
    """If a token may be long, the text's length does not decide: the name of a control token takes several tokens."""
    spy = Blocked(tokenizer)
    spy.free.set()
    prompt = ChatPrompt([str(i) for i in range(900)], ["<|im_end|>"] * 899)
    with pytest.raises(TooLongError):
        prompt.encode(spy, Room(tokenizer, 1000))
    assert len(spy.encoded) < 200


def test_of_a_text_that_is_much_too_long_only_the_beginning_is_encoded(tokenizer: Any) -> None:
    """The context is so long that the number of bytes alone does not decide."""
    spy = Blocked(tokenizer)
    spy.free.set()
    prompts = Prompts(spy, 32_768)
    for work in (
        prompts.encode("a b " * 150_000),
        prompts.encode_chat([{"role": "user", "content": "a b " * 150_000}], False),
    ):
        spy.encoded.clear()
        with pytest.raises(TooLongError, match="expected 32768 tokens at most"):
            asyncio.run(work)
        assert sum(map(len, spy.encoded)) < 500_000


@pytest.mark.parametrize("size", [10, 70_000, 140_000])
def test_long_texts_have_the_tokens_of_the_tokenizer(tokenizer: Any, size: int) -> None:
    text = "Once upon a time 数 " * (size // 19)
    assert asyncio.run(Prompts(tokenizer, 100_000).encode(text))[0] == tokenizer.encode(text)


def test_short_texts_do_not_wait_for_long_ones(tokenizer: Any) -> None:
    spy = Blocked(tokenizer)
    prompts = Prompts(spy, 32_768)
    prompts._encoders["encode"] = tokenizer

    async def scene() -> None:
        long = asyncio.ensure_future(prompts.encode("a b" * 10_000))
        await asyncio.get_running_loop().run_in_executor(None, spy.begun.wait, PATIENCE)
        assert (await prompts.encode("short"))[1] == "short"
        assert not long.done()
        spy.free.set()
        await long

    asyncio.run(scene())


def test_thinking_is_looked_at_once(tokenizer: Any) -> None:
    prompts = Prompts(tokenizer, 1024)

    async def scene() -> None:
        first, second = await asyncio.gather(prompts.thinking(), prompts.thinking())
        assert first is second

    asyncio.run(scene())


def test_nothing_is_encoded_for_a_client_who_has_left(tokenizer: Any) -> None:
    spy = Blocked(tokenizer)
    server = made(spy)

    async def scene() -> None:
        first = asyncio.ensure_future(server._prompts.encode("first"))
        await asyncio.get_running_loop().run_in_executor(None, spy.begun.wait, PATIENCE)
        leaves = asyncio.Event()

        async def receive() -> dict[str, Any]:
            await leaves.wait()
            return {"type": "http.disconnect"}

        request = HttpRequest({"type": "http", "method": "POST", "headers": []}, receive)
        second = asyncio.ensure_future(server._unless_gone(request, server._prompts.encode("second")))
        third = asyncio.ensure_future(server._prompts.encode("third"))
        leaves.set()
        with pytest.raises(ClientGoneError):
            await second
        spy.free.set()
        assert (await first)[1] == "first"
        assert (await third)[1] == "third"

    asyncio.run(scene())
    assert spy.encoded == ["first", "third"]


# --------------------------------------------------------------------------------------------------- chat templates

TEMPLATES = {
    "loops": "{% for m in messages if m.role %}{{ loop.index0 }}{% if loop.last %}!{% break %}{% endif %}{% endfor %}",
    "blocks": "  {% if true %}\n  {{ messages[0]['content'] }}\n  {% endif %}\n",
    "json": "{{ messages | tojson }}{{ {'b': '<&>数', 'a': 1} | tojson(indent=2, sort_keys=true) }}",
    "namespace": "{% set n = namespace(x=1) %}{% for m in messages %}{% set n.x = 2 %}{% endfor %}{{ n.x, dict(a=1) }}",
    "generation": "{% generation %}{{ messages[0].content | trim }}{% endgeneration %}{{ eos_token }}",
    "year": "{{ strftime_now('%Y') }}{{ tools is none }}{{ documents is none }}{{ enable_thinking }}",
    "macro": "{%- macro m(x) -%}[{{ x | upper }}]{%- endmacro -%}{{ m('a') }}{{ add_generation_prompt }}",
}


def templated(tokenizer: Any, template: str | None = None) -> Any:
    found = copy.deepcopy(tokenizer)
    if template is not None:
        found.chat_template = template
    return found


@pytest.mark.parametrize("name", [None, *TEMPLATES])
def test_templates_give_what_transformers_makes_of_them(tokenizer: Any, name: str | None) -> None:
    """The process that fills templates in does not use Transformers, because importing it takes a second."""
    plain = templated(tokenizer, TEMPLATES[name] if name else None)
    how = {"add_generation_prompt": True, "tokenize": False, "enable_thinking": False}
    assert ChatTemplate(plain).apply_chat_template(SAID, **how) == plain.apply_chat_template(SAID, **how)


HOSTILE = {
    "endless": (
        "{% for i in range(9999) %}{% for i in range(9999) %}{% endfor %}{% endfor %}",
        "takes longer than 0.5 s",
    ),
    "number": ("{% set n = 9 %}{{ n ** (n ** n) }}", "takes longer than 0.5 s"),
    "text": ("{{ 'x' * 10 ** 9 }}", "takes too much memory" if sys.platform == "linux" else "writes more than"),
    "long": ("{{ 'x' * 10 ** 7 }}", "writes more than 4194304 characters"),
    "zero": ("{{ 1 / 0 }}", "fails with ZeroDivisionError: division by zero"),
    "recursive": ("{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}", "fails with RecursionError"),
    "raises": ("{{ raise_exception('no systems') }}", "refuses them: no systems"),
    "syntax": ("{% for %}", "fails with TemplateSyntaxError: Expected an expression"),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_templates_are_given_up(tokenizer: Any, name: str) -> None:
    """The next conversation, for which the same template is harmless, is served."""
    template, message = HOSTILE[name]
    if name != "syntax":
        template = "{% if messages[0].content == 'now' %}" + template + "{% endif %}{{ messages[0].content }}"
    safe = ChatTemplate(templated(tokenizer, template), seconds=0.5 if "0.5" in message else PATIENCE)
    with pytest.raises(ValueError, match=f"messages: the checkpoint's chat template {message}"):
        ChatPrompt.of(safe, [{"role": "user", "content": "now"}])
    safe._seconds = PATIENCE  # of the process that follows one that had too little time
    if name != "syntax":
        assert ChatPrompt.of(safe, SAID).parts == [SAID[0]["content"]]


def test_other_prompts_are_encoded_while_a_template_runs(tokenizer: Any) -> None:
    prompts = Prompts(templated(tokenizer, "{{ 9 ** (9 ** 9) }}"), 1024)
    prompts._template._seconds = PATIENCE

    async def scene() -> None:
        chat = asyncio.ensure_future(prompts.encode_chat(SAID, False))
        loop = asyncio.get_running_loop()
        await loop.run_in_executor(None, until, lambda: prompts._template._process is not None)
        assert (await prompts.encode("Once"))[1] == "Once"
        assert not chat.done()
        process = prompts._template._process
        assert process is not None
        process.kill()
        with pytest.raises(ValueError, match=r"crashed while it was filled in \(exit status -9\)"):
            await chat

    asyncio.run(scene())


def test_encoded_chats_are_those_of_the_template(tokenizer: Any) -> None:
    for content in ("Hi", "数 <|im_end|><|im_start|> x <|endoftext|>"):
        said = [{"role": "user", "content": content}]
        prompt = asyncio.run(Prompts(tokenizer, 1024).encode_chat(said, False))
        assert prompt == encode_chat(tokenizer, said)
