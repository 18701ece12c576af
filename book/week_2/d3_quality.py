"""Print how perplexity and right answers of `story` depend on quantisation, as benches/quantisation.py measured."""

import json
from pathlib import Path

RESULTS = Path(__file__).resolve().parents[2] / "benches" / "results" / "quantisation.json"
results = json.loads(RESULTS.read_text(encoding="utf-8"))
PARTS = {None: "", "embed_tokens": "embedding", "self_attn": "attention", "mlp": "MLP"}

print(f"{results['model']}: {results['stories']} held-out stories, {results['questions']} questions in each language")
print(f"{'':40}{'perplexity':>18}{'right answers':>18}")
print(f"{'bits':>4}{'group':>7}  {'only':10}{'bits per weight':>17}{'en':>10}{'ja':>8}{'en':>10}{'ja':>8}")
for row in results["rows"]:
    line = f"{row['bits'] or 16:4}{row['group_size'] or '':7}  {PARTS[row['only']]:10}{row['bits_per_weight']:17.2f}  "
    line += "".join(f"{row['perplexity'][language]:8.2f}" for language in ("english", "japanese"))
    print(line + "  " + "".join(f"{row['right'][language]:8.1%}" for language in ("english", "japanese")))
