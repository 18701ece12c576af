"""`tiny-llm serve` with OpenAI's client: models that think, and a checkpoint's own settings of the sampler."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import openai
import pytest
from test_serve import Running, running
from thinking_checkpoint import ALWAYS, ANSWER, COUNT, THINKING, write_thinking

from tiny_llm_given.config import ModelConfig
from tiny_llm_given.weights import expected_shapes
from tiny_llm_models.hf_format import write_json
from tiny_llm_models.untrained import untrained_config, write_untrained

QUESTION = [{"role": "user", "content": "2+2?"}]
ON: dict[str, Any] = {"extra_body": {"chat_template_kwargs": {"enable_thinking": True}}}
OFF: dict[str, Any] = {"extra_body": {"chat_template_kwargs": {"enable_thinking": False}}}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    with running("--model", write_thinking(tmp_path_factory.mktemp("model") / "switched")) as found:
        yield found
        assert "Traceback" not in found.end()


@pytest.fixture(scope="module")
def always(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    with running("--model", write_thinking(tmp_path_factory.mktemp("model") / "always", ALWAYS)) as found:
        yield found
        assert "Traceback" not in found.end()


def ask(server: Running, messages: list[Any] = QUESTION, **options: Any) -> Any:
    client = server.client()
    return client.chat.completions.create(model=client.models.list().data[0].id, messages=messages, **options)


@pytest.mark.parametrize("how", [{}, OFF, {"reasoning_effort": "none"}], ids=["default", "switch", "effort"])
def test_without_thinking(server: Running, how: dict[str, Any]) -> None:
    answer = ask(server, **how)
    message = answer.choices[0].message
    assert message.content == ANSWER
    assert not {"reasoning_content", "reasoning"} & message.model_dump().keys()
    assert answer.usage.completion_tokens_details.reasoning_tokens == 0


@pytest.mark.parametrize("how", [ON, {"reasoning_effort": "low"}, ON | {"reasoning_effort": "high"}])
def test_thinking_is_apart(server: Running, how: dict[str, Any]) -> None:
    answer = ask(server, **how, n=2)
    for choice in answer.choices:
        message = choice.message
        assert (message.content, message.reasoning_content, message.reasoning) == (ANSWER, THINKING, THINKING)
        assert choice.finish_reason == "stop"
    assert answer.usage.completion_tokens_details.reasoning_tokens == 2 * COUNT
    assert answer.usage.completion_tokens == 2 * (COUNT + 3)


def test_a_stream_with_thinking(server: Running) -> None:
    chunks = [chunk.choices[0] for chunk in ask(server, **ON, stream=True)]
    deltas = [chunk.delta.model_dump(exclude_unset=True) for chunk in chunks]
    assert "".join(delta.get("reasoning_content", "") for delta in deltas) == THINKING
    assert "".join(delta.get("reasoning", "") for delta in deltas) == THINKING
    assert "".join(delta.get("content", "") for delta in deltas) == ANSWER
    said = [name for delta in deltas for name in delta if delta[name] and name in ("reasoning", "content")]
    assert said == ["reasoning"] * (len(said) - 3) + ["content"] * 3
    assert len(said) > 6
    assert chunks[-1].finish_reason == "stop"


def test_a_conversation_goes_on(server: Running) -> None:
    """A client may send back a message as it got it. The prompt does not contain the thinking of earlier answers."""
    first = ask(server, **ON)
    message = first.choices[0].message
    plain = [*QUESTION, {"role": "assistant", "content": message.content}, *QUESTION]
    again = ask(server, [*QUESTION, message, *QUESTION], **ON)
    assert again.usage.prompt_tokens == ask(server, plain, **ON).usage.prompt_tokens
    assert again.choices[0].message.reasoning_content == THINKING


def test_ends_within_the_thinking(server: Running) -> None:
    choice = ask(server, **ON, max_tokens=4).choices[0]
    assert (choice.message.content, choice.message.reasoning_content) == ("", "Two and\ntwo")
    assert choice.finish_reason == "length"
    stopped = ask(server, **ON, stop=["two", " four"]).choices[0]  # stop strings are the answer's
    assert (stopped.message.content, stopped.message.reasoning_content) == ("It is", THINKING)


def test_scores_are_the_answers(server: Running) -> None:
    content = ask(server, **ON, logprobs=True).choices[0].logprobs.content
    assert "".join(entry.token for entry in content) == ANSWER


def test_a_completion_is_the_text_as_it_is(server: Running) -> None:
    text = server.client().completions.create(model="switched", prompt="2+2?\n", max_tokens=40).choices[0].text
    assert text == f"<think>\n{THINKING} \n</think>\n\n{ANSWER}"


def test_a_model_that_always_thinks(always: Running) -> None:
    for how in ({}, ON, {"reasoning_effort": "minimal"}):
        message = ask(always, **how).choices[0].message
        assert (message.content, message.reasoning_content) == (ANSWER, THINKING)


def test_thinking_that_cannot_be_turned_off(always: Running) -> None:
    with pytest.raises(openai.BadRequestError, match="chat_template_kwargs: expected a checkpoint whose th") as refused:
        ask(always, **OFF)
    assert refused.value.param == "chat_template_kwargs"
    with pytest.raises(openai.BadRequestError, match=r"reasoning_effort: .*got one that always thinks"):
        ask(always, reasoning_effort="none")


def test_what_says_two_things(server: Running) -> None:
    with pytest.raises(openai.BadRequestError, match="expected what enable_thinking says, which is False, got 'low'"):
        ask(server, **OFF, reasoning_effort="low")
    with pytest.raises(openai.BadRequestError, match="reasoning_effort"):
        ask(server, reasoning_effort="immense")
    with pytest.raises(openai.BadRequestError, match="chat_template_kwargs"):
        ask(server, extra_body={"chat_template_kwargs": {"think": True}})


def test_a_model_without_thinking() -> None:
    with running() as server:
        assert ask(server, **OFF, max_tokens=2, reasoning_effort="none").choices[0].message.content
        with pytest.raises(openai.BadRequestError, match="expected a checkpoint whose chat template can turn thinking"):
            ask(server, **ON)


def test_the_checkpoints_sampling(tmp_path: Path) -> None:
    """They apply to a request that leaves a setting out. Here they are greedy, so all seeds give one text."""
    config = untrained_config()
    write_untrained(tmp_path / "model", config, expected_shapes(ModelConfig.from_hf(config)))
    advice = {"eos_token_id": [], "do_sample": False, "temperature": 0.6, "repetition_penalty": 1.3}
    write_json(tmp_path / "model" / "generation_config.json", advice)
    with running("--model", tmp_path / "model") as server:
        told = "".join(server.said)
        assert "temperature 0.0, repetition_penalty 1.3." in told
        create = server.client().completions.create
        asked: dict[str, Any] = {"model": "model", "prompt": "Once", "max_tokens": 30}

        def texts(**options: Any) -> set[str]:
            return {create(**asked, seed=seed, **options).choices[0].text for seed in range(3)}

        advised = texts()
        assert len(advised) == 1
        assert advised == texts(temperature=0, extra_body={"repetition_penalty": 1.3})
        assert advised != texts(extra_body={"repetition_penalty": 1.0})
        assert len(texts(temperature=1.0)) == 3
        described = json.loads(server.ask("GET", "/openapi.json")[2])["components"]["schemas"]["ChatRequest"]
        defaults = {name: field.get("default") for name, field in described["properties"].items()}
        assert (defaults["temperature"], defaults["repetition_penalty"], defaults["top_p"]) == (0.0, 1.3, 1.0)


def test_thinking_that_is_guessed(tmp_path: Path) -> None:
    """With --draft, one step may give tokens of the thinking and tokens of the answer."""
    with running("--model", write_thinking(tmp_path / "model"), "--draft", "ngram") as server:
        asked = [*QUESTION, {"role": "assistant", "content": f"\n{THINKING} \n</think>\n\n{ANSWER}"}, *QUESTION]
        answer = ask(server, asked, **ON, temperature=0)
        message = answer.choices[0].message
        assert (message.content, message.reasoning_content) == (ANSWER, THINKING)
        assert answer.usage.completion_tokens_details.reasoning_tokens == COUNT
        chunks = list(ask(server, asked, **ON, temperature=0, stream=True))
        assert "".join(getattr(chunk.choices[0].delta, "reasoning", "") for chunk in chunks) == THINKING
        assert "".join(chunk.choices[0].delta.content or "" for chunk in chunks) == ANSWER
        assert answer.usage.completion_tokens_details.accepted_prediction_tokens > 5
        assert len(chunks) < COUNT
