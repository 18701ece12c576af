"""The training of one model in PyTorch, with the classes of Transformers, so that Transformers can load the result."""

from __future__ import annotations

import json
import platform
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import partial
from itertools import cycle, islice
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import torch
from torch.nn.functional import cross_entropy, rms_norm
from transformers import AutoConfig, AutoModelForCausalLM

from .corpus import Batch, Corpus
from .induction import write_induction_heads
from .muon import Muon
from .recipes import CONTEXT, Recipe, Stage

__all__ = ["Figures", "Part", "Trainer", "joined_logs"]

# A line of the log: steps and tokens so far, mean losses since the last line (None if no token counted), tokens per
# second, and the machine.
Figures: TypeAlias = dict[str, Any]

_TOLD = 2  # the greatest weight of a story's tokens, except the tokens of words for persons and things
_SAVE_SECONDS = 120
_LOG_STEPS = 20
_WORTH_COMPILING = 5000  # documents; compiling takes half a minute, so shorter runs are faster without it


@dataclass(frozen=True)
class Part:
    """A stage of the training, with the files of its training text in chunks that are read one after the other."""

    stage: Stage
    chunks: Sequence[Sequence[Path]]

    @property
    def documents(self) -> int:
        """Return the number of documents, repetitions included."""
        return round(self.stage.documents * self.stage.passes)


@dataclass(frozen=True)
class _Step:
    corpus: Corpus
    documents: list[int]
    learning_rate: float
    done: float  # the share of the training that is done after this step


class Trainer:
    """The training of one model. Training continues from its last checkpoint, if there is one.

    folder: the folder of checkpoint.pt and log.jsonl.
    start: a checkpoint folder with the weights from which the training starts. None: new weights.
    teacher: a checkpoint folder of another model, whose predictions give half of the loss. The text gives the other
    half.

    Raises:
        ValueError: the folder belongs to a training run with another number of documents.
    """

    def __init__(
        self,
        recipe: Recipe,
        parts: Sequence[Part],
        folder: Path,
        start: Path | None = None,
        teacher: Path | None = None,
    ):
        torch.manual_seed(recipe.seed)
        self._folder = folder
        self._device = "cuda" if torch.cuda.is_available() else "cpu"
        self.model = _with_fused_norms(_loaded(start) if start else _new(recipe)).to(self._device)
        self._teacher: Any = _with_fused_norms(_loaded(teacher)).to(self._device).eval() if teacher else None
        self._optimizers = _optimizers(self.model, recipe.learning_rate)
        self._recipe, self._parts = recipe, parts
        self._documents = sum(part.documents for part in parts) // recipe.every
        self._body = self.model.model
        if self._device == "cpu" and self._documents > _WORTH_COMPILING:
            self._body = torch.compile(self._body, dynamic=True)  # makes training faster by a quarter
        torch.set_float32_matmul_precision("high")  # lets a GPU compute the optimiser's products in TF32
        self.step = self._tokens = 0
        self.done = 0.0
        folder.mkdir(parents=True, exist_ok=True)
        if self._checkpoint.exists():
            self._resume()

    def run(self, report: Callable[[Figures], Any]) -> None:
        """Train to the end. report: a function that is called with the figures after each step."""
        saved = time.monotonic()
        losses: list[torch.Tensor] = []
        known: Figures = {}
        tokens, start = 0, time.monotonic()
        for step in islice(self._plan(), self.step, None):
            batch = step.corpus.batch(step.documents)
            losses.append(self._train(batch, step.learning_rate))
            self.step += 1
            self.done = step.done
            tokens += batch.ids.size
            self._tokens += batch.ids.size
            if self.step % _LOG_STEPS == 0 or step.done == 1:
                known = self._log(losses, tokens, start)
                losses.clear()
                tokens, start = 0, time.monotonic()
            report({**known, "step": self.step})
            if time.monotonic() - saved > _SAVE_SECONDS:
                self._save()
                saved = time.monotonic()
        self._save()

    def _plan(self) -> Iterator[_Step]:
        """Plan the steps, each with its documents and learning rate.

        In each stage, the learning rate rises during the first 1 % of the text, and then falls linearly to zero
        (Bergsma et al. 2025, arXiv:2502.15938).
        """
        recipe, before, total = self._recipe, 0, sum(part.documents for part in self._parts)
        for part in self._parts:
            count = round(len(part.chunks) * part.stage.passes)
            for number, paths in enumerate(islice(cycle(part.chunks), count)):
                corpus = Corpus(paths, part.stage)
                batches = corpus.plan(recipe.every, f"{recipe.seed} {number}")
                for i, documents in enumerate(batches, 1):
                    done = (number * len(batches) + i) / (count * len(batches))  # of this stage
                    rate = recipe.learning_rate * part.stage.rate * min(100 * done, 1 - done)
                    yield _Step(corpus, documents, rate, (before + done * part.documents) / total)
            before += part.documents

    def _train(self, batch: Batch, learning_rate: float) -> torch.Tensor:
        """Train one step. Return two mean losses: one over the tokens of stories, and one over the tokens of answers.

        A mean over no tokens is NaN. The losses stay on the device, because reading a number from a GPU at each step
        would make the GPU wait for the CPU.
        """
        for optimizer in self._optimizers:
            for group in optimizer.param_groups:
                group["lr"] = learning_rate
        counts = batch.weights[:, 1:] > 0
        counted = self._moved(np.flatnonzero(counts))
        weights = self._moved(batch.weights[:, 1:][counts])
        ids = self._moved(batch.ids)
        with self._precision():
            hidden = self._hidden(self._body, ids)
            # Compute logits only for the tokens that count, because computing logits is half of the work.
            logits = self.model.lm_head(hidden.index_select(0, counted))
        losses = cross_entropy(logits.float(), ids[:, 1:].flatten()[counted], reduction="none")
        taught = self._taught(ids, counted, logits) if self._teacher else losses
        ((losses + taught) @ weights / (2 * weights.sum())).backward()
        torch.nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        for optimizer in self._optimizers:
            optimizer.step()
            optimizer.zero_grad()
        answers = weights > _TOLD
        return torch.stack([losses.detach() @ part.float() / part.sum() for part in (~answers, answers)])

    def _taught(self, ids: torch.Tensor, counted: torch.Tensor, logits: torch.Tensor) -> torch.Tensor:
        """Return the cross-entropy with the teacher's predictions (Hinton et al. 2015, arXiv:1503.02531)."""
        with torch.no_grad(), self._precision():
            hidden = self._hidden(self._teacher.model, ids)
            expected = self._teacher.lm_head(hidden.index_select(0, counted))
        return cross_entropy(logits.float(), expected.float().softmax(-1), reduction="none")

    def _hidden(self, body: Any, ids: torch.Tensor) -> torch.Tensor:
        """Return the hidden states from which the next tokens are predicted, as (B × (L - 1)) x E.

        Without a mask, attention is causal, and padding at the end does no harm. Transformers would make a mask here,
        and with a mask, PyTorch cannot use its fastest attention.
        """
        output = body(ids, attention_mask={"full_attention": None}, use_cache=False)
        hidden: torch.Tensor = output.last_hidden_state[:, :-1].flatten(0, 1)
        return hidden

    def _moved(self, array: np.ndarray[Any, Any]) -> torch.Tensor:
        """Move an array to the device. A copy from pinned memory runs in parallel with earlier work."""
        tensor = torch.from_numpy(array)
        return tensor.pin_memory().to(self._device, non_blocking=True) if self._device == "cuda" else tensor

    def _precision(self) -> AbstractContextManager[Any]:
        """Return a context manager under which PyTorch computes in bfloat16 if the hardware has matrix units
        for bfloat16, and in float32 otherwise.

        With AVX-512 alone, bfloat16 is slower than float32.
        """
        fast = self._device == "cuda" or torch.cpu._is_amx_tile_supported()
        return torch.autocast(self._device, torch.bfloat16) if fast else nullcontext()

    @property
    def _checkpoint(self) -> Path:
        return self._folder / "checkpoint.pt"

    @property
    def log_file(self) -> Path:
        return self._folder / "log.jsonl"

    def _save(self) -> None:
        """Save a checkpoint atomically, so that a killed process cannot leave an incomplete checkpoint."""
        state = {
            "model": self.model.state_dict(),
            "optimizers": [optimizer.state_dict() for optimizer in self._optimizers],
            "step": self.step,
            "done": self.done,
            "documents": self._documents,
            "tokens": self._tokens,
        }
        unfinished = self._checkpoint.with_suffix(".unfinished")
        torch.save(state, unfinished)
        unfinished.replace(self._checkpoint)

    def _resume(self) -> None:
        state = torch.load(self._checkpoint, map_location=self._device)
        if (found := state.get("documents")) != self._documents:
            raise ValueError(f"{self._checkpoint}: expected a run of {self._documents} documents, got {found}")
        self.model.load_state_dict(state["model"])
        for optimizer, saved in zip(self._optimizers, state["optimizers"], strict=True):
            optimizer.load_state_dict(saved)
        self.step, self.done, self._tokens = state["step"], state["done"], state["tokens"]
        # The log may have lines for steps after the checkpoint. These steps will be repeated.
        if self.log_file.exists():
            lines = self.log_file.read_text(encoding="utf-8").splitlines(keepends=True)
            kept = [line for line in lines if line.endswith("\n") and json.loads(line)["step"] <= self.step]
            self.log_file.write_text("".join(kept), encoding="utf-8")

    def _machine(self) -> str:
        if self._device == "cuda":
            return str(torch.cuda.get_device_name())
        return f"{torch.get_num_threads()} threads, {platform.machine()}"

    def _log(self, losses: list[torch.Tensor], tokens: int, start: float) -> Figures:
        stories, answers = torch.stack(losses).cpu().T  # this waits for the device
        line: Figures = {"step": self.step, "tokens": self._tokens, "loss": _mean(stories), "answers": _mean(answers)}
        line |= {"speed": round(tokens / (time.monotonic() - start)), "machine": self._machine()}
        with self.log_file.open("a", encoding="utf-8") as log:
            log.write(json.dumps(line) + "\n")
        return line


def joined_logs(trainers: Sequence[Trainer]) -> str:
    """Join the logs of successive training runs into one. The counts of steps and tokens continue from one log to
    the next."""
    lines: list[dict[str, Any]] = []
    for trainer in trainers:
        before = lines[-1] if lines else {"step": 0, "tokens": 0}
        for text in trainer.log_file.read_text(encoding="utf-8").splitlines():
            line = json.loads(text)
            lines.append({**line, **{key: before[key] + line[key] for key in ("step", "tokens")}})
    return "".join(json.dumps(line) + "\n" for line in lines)


def _new(recipe: Recipe) -> Any:
    model = AutoModelForCausalLM.from_config(AutoConfig.for_model(recipe.model_type, **recipe.config()))
    write_induction_heads(model, CONTEXT)
    return model


def _loaded(folder: Path) -> Any:
    return AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)


def _with_fused_norms(model: Any) -> Any:
    """Let PyTorch's fused kernel compute each RMSNorm, since the RMSNorms of Transformers take half of the training
    time on a GPU."""
    for norm in model.modules():
        if type(norm).__name__.endswith("RMSNorm"):
            norm.forward = partial(_fused_norm, norm)
    return model


def _fused_norm(norm: Any, x: torch.Tensor) -> torch.Tensor:
    return rms_norm(x, x.shape[-1:], norm.weight.to(x.dtype), norm.variance_epsilon)


def _optimizers(model: torch.nn.Module, rate: float) -> list[torch.optim.Optimizer]:
    """Make Muon for the matrices inside the layers, and AdamW for embeddings, output head, norms and biases."""
    inside = [p for name, p in model.named_parameters() if p.dim() == 2 and ".layers." in name]
    others = [p for name, p in model.named_parameters() if not (p.dim() == 2 and ".layers." in name)]
    return [Muon(inside, rate), torch.optim.AdamW(others, rate, betas=(0.9, 0.98), weight_decay=0.0, fused=True)]


def _mean(losses: torch.Tensor) -> float | None:
    """Return the mean of all losses that are not NaN, or None if there are none."""
    return round(losses.nanmean().item(), 4) if losses.isfinite().any() else None
