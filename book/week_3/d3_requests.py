"""Writes requests.jsonl into the current folder: three requests for `./course batch`."""

import json
from pathlib import Path


def asked(question: str, **settings: object) -> dict[str, object]:
    return {"messages": [{"role": "user", "content": question}], **settings}


requests = [
    asked("Mia had a red key. She hid the key in the old box. Where is the key?", id="key"),
    asked("Tell me a short story.", id="story", max_tokens=80),
    asked("Tell me a short story.", id="dice", max_tokens=80, temperature=0.8, seed=3),
]
Path("requests.jsonl").write_text("".join(json.dumps(request) + "\n" for request in requests), encoding="utf-8")
