"""`tiny-llm serve` with damaged weights: each request that meets them gets an error in the API's form, and no NaN."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from typing import Any

import mlx.core as mx
import openai
import pytest
from checkpoint_edits import WEIGHTS, edit, edit_weights
from test_serve import Running, running

from tiny_llm_models import bundled
from tiny_llm_ref import models

DAMAGED = "<|im_start|>"  # the token that each turn of a chat begins with
TEXT = {"prompt": "Once upon a time", "max_tokens": 3}
CHAT = {"messages": [{"role": "user", "content": "Hello"}], "max_tokens": 3}
NOT_FINITE = (
    "the request failed: the model's logits are not finite: its weights are damaged (fetch the checkpoint again)"
)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """Start a server whose model has one token with the embedding NaN, and an intact output layer."""
    folder = shutil.copytree(bundled("story-draft"), tmp_path_factory.mktemp("damaged") / "model")
    whole = mx.load(str(folder / WEIGHTS))["model.embed_tokens.weight"]
    damaged = mx.array(whole)
    damaged[models.load(folder)[1].convert_tokens_to_ids(DAMAGED)] = float("nan")
    edit_weights(model__embed_tokens__weight=damaged, lm_head__weight=whole)(folder)
    edit(tie_word_embeddings=False)(folder)
    with running("--model", folder) as found:
        yield found
        assert "Traceback" not in found.end()


def ask(server: Running, path: str, body: dict[str, Any]) -> tuple[int, str]:
    status, _, answer = server.ask(
        "POST", path, json.dumps({"model": "model", **body}).encode(), **{"Content-Type": "application/json"}
    )
    return status, answer.decode()


@pytest.mark.parametrize("more", [{}, {"temperature": 0}, {"stream": True}, {"logprobs": True}, {"n": 3}], ids=str)
def test_a_request_that_meets_damage(server: Running, more: dict[str, Any]) -> None:
    status, answer = ask(server, "/v1/chat/completions", CHAT | more)
    assert status == 500
    error = json.loads(answer)["error"]
    assert error["message"].startswith(NOT_FINITE)
    assert error["type"] == "server_error"
    assert "NaN" not in answer
    assert ask(server, "/v1/completions", TEXT)[0] == 200


@pytest.mark.parametrize("more", [{"logprobs": 5}, {"logprobs": 5, "stream": True}], ids=str)
def test_a_request_beside_it(server: Running, more: dict[str, Any]) -> None:
    """A request that does not meet the damage gets an answer, even in the same batch."""
    stream = server.client().completions.create(model="model", **TEXT | {"max_tokens": 500}, stream=True)
    next(stream)
    assert ask(server, "/v1/chat/completions", CHAT)[0] == 500
    status, answer = ask(server, "/v1/completions", TEXT | more)
    assert status == 200
    assert "NaN" not in answer
    assert "Infinity" not in answer
    assert [choice.finish_reason for chunk in stream for choice in chunk.choices][-1] in ("length", "stop")


def test_openai_says_what_is_wrong(server: Running) -> None:
    with pytest.raises(openai.InternalServerError, match="logits are not finite"):
        server.client().chat.completions.create(model="model", **CHAT)
