"""Write three requests for `./course batch` into out/requests.jsonl, and delete the results of an earlier day."""

import json
from pathlib import Path


def asked(question: str, **settings: object) -> dict[str, object]:
    return {"messages": [{"role": "user", "content": question}], **settings}


requests = [
    asked("Mia had a red key. She hid the key in the old box. Where is the key?", id="key"),
    asked("Tell me a short story.", id="story", max_tokens=80),
    asked("Tell me a short story.", id="dice", max_tokens=80, temperature=0.8, seed=3),
]
file = Path("out/requests.jsonl")  # git ignores this folder
file.parent.mkdir(exist_ok=True)
file.write_text("".join(json.dumps(request) + "\n" for request in requests), encoding="utf-8")
file.with_name("requests.out.jsonl").unlink(missing_ok=True)  # otherwise `batch` would continue these results
print(f"wrote {file}")
