"""The fixed words of the directives, in the languages of the book."""

from __future__ import annotations

__all__ = ["NAMES", "in_formula", "word"]

WORDS = {
    "chapter": {"en": "Week {week}, day {day}: ", "ja": "第 {week} 週 {day} 日目："},
    "entry": {"en": "Day {day}: ", "ja": "{day} 日目："},
    "takes": {"en": "About {time}", "ja": "所要時間：約 {time}"},
    "task": {"en": "Task {number}: {title}", "ja": "課題 {number}：{title}"},
    "file": {"en": "File", "ja": "ファイル"},
    "test": {"en": "Test", "ja": "テスト"},
    "hint": {"en": "Hint {number}", "ja": "ヒント {number}"},
    "solution": {"en": "Solution", "ja": "解答"},
    "copied": {
        "en": "puts the reference of this day in place. It overwrites what you wrote in these files, so commit first.",
        "ja": "これで、この日の解答が入ります。書いたものは上書きされるので、先にコミットしておいてください。",
    },
    "copied_too": {
        "en": "They also hold tasks of {days}, which are then solved as well.",
        "ja": "同じファイルに入っている{days}の課題も、同時に解答になります。",
    },
    "and": {"en": " and ", "ja": "と"},
    "space": {"en": " ", "ja": ""},
    "day": {"en": "day {week}.{day}", "ja": "第 {week} 週 {day} 日目"},
    "written": {
        "en": "`./course solution --day {day}` writes only those functions of this day that are still open, "
        "and `./course undo` takes that back. A copy that an instructor handed out may hold no solutions.",
        "ja": "`./course solution --day {day}` は、この日の関数のうち、まだスタブのものだけを書き込みます。こちらは "
        "`./course undo` で取り消せます。講師から配られた教材には、解答が入っていないことがあります。",
    },
    "week_card": {"en": "Week {week}: {title}", "ja": "第 {week} 週：{title}"},
    "week_optional": {"en": ", optional", "ja": "（飛ばしてもよい）"},
    "start": {"en": "Start here", "ja": "ここから始める"},
    "in_brackets": {"en": "{text} ({more})", "ja": "{text}（{more}）"},
    "core": {"en": "core path", "ja": "コア"},
    "term_week": {"en": "Week {number} of the term: {hours}", "ja": "学期の第 {number} 週：{hours}"},
    "hour": {"en": "1 hour", "ja": "1 時間"},
    "hours": {"en": "{hours} hours", "ja": "{hours} 時間"},
    "hours_half": {"en": "{hours}½ hours", "ja": "{hours} 時間半"},
    "measured": {
        "en": "Measured on {machine}, by `{command}`. Other machines and other days give other numbers.",
        "ja": "計測環境：{machine}。コマンド：`{command}`。マシンや日が変われば、数値も変わります。",
    },
    "rung": {"en": "step", "ja": "段階"},
    "time": {"en": "time", "ja": "時間"},
    "against_twin": {"en": "speed, twin = 1", "ja": "速度（ツイン = 1）"},
    "of_limit": {"en": "of the machine's limit", "ja": "マシンの上限に対する割合"},
    "peer": {"en": "what else there is", "ja": "比較対象"},
    "pass": {"en": "pass", "ja": "処理"},
    "peer_speed": {"en": "its speed", "ja": "その速度"},
    "our_speed": {"en": "tuned", "ja": "講座の高速版"},
    "ratio": {"en": "ratio", "ja": "比"},
    "prefill": {"en": "prefill of {length} tokens", "ja": "{length} トークンのプリフィル"},
    "decode": {"en": "decode behind {length} tokens", "ja": "{length} トークンに続くデコード"},
    "part": {"en": "part", "ja": "部分"},
    "milliseconds": {"en": "ms", "ja": "ミリ秒"},
    "share": {"en": "share", "ja": "割合"},
    "embedding": {"en": "embedding", "ja": "埋め込み"},
    "before attention": {
        "en": "before attention: norm, q, k, v, RoPE",
        "ja": "アテンションの前（正規化、q・k・v、RoPE）",
    },
    "cache": {"en": "writing to the cache", "ja": "キャッシュへの書き込み"},
    "attention": {"en": "attention", "ja": "アテンション"},
    "after attention": {"en": "after attention: o, norm, MLP", "ja": "アテンションの後（o、正規化、MLP）"},
    "output layer": {"en": "last norm and output layer", "ja": "最後の正規化と出力層"},
    "choice": {"en": "choosing the token", "ja": "トークンの選択"},
    "rest": {"en": "rest", "ja": "その他"},
    "whole step": {"en": "whole step", "ja": "1 ステップ全体"},
    "of which MLX, for its operations": {
        "en": "in it: MLX, to run these operations",
        "ja": "うち MLX が演算を実行する手間",
    },
    "of which Python, before anything runs": {
        "en": "in it: Python, before anything runs",
        "ja": "うち実行前の Python の処理",
    },
    "first_token": {"en": "first token after", "ja": "最初のトークンまで"},
    "model": {"en": "model", "ja": "モデル"},
    "requests": {"en": "requests", "ja": "リクエスト数"},
    "engine_speed": {"en": "this engine", "ja": "本書のエンジン"},
    "without_sampling": {"en": "without sampling", "ja": "サンプリングを除く"},
    "llama_speed": {"en": "llama.cpp, without sampling", "ja": "llama.cpp（サンプリングなし）"},
    "overhead": {"en": "of a step, not the model", "ja": "モデル以外の割合"},
    "token_bytes": {"en": "keys and values of a token", "ja": "1 トークン分の K と V"},
    "pages_waste": {"en": "unused by a request, in pages", "ja": "1 リクエスト当たりの無駄（ページ）"},
    "padded_waste": {"en": "padded to the longest", "ja": "同（最長に合わせたパディング）"},
    "budget": {"en": "budget", "ja": "予算"},
    "no_budget": {"en": "none", "ja": "なし"},
    "steps": {"en": "steps", "ja": "ステップ数"},
    "gap_before": {"en": "gap before", "ja": "到着前の間隔"},
    "longest_gap": {"en": "longest gap", "ja": "最長の間隔"},
    "arrival": {"en": "eight requests", "ja": "8 つのリクエスト"},
    "tree": {"en": "tree", "ja": "木"},
    "one by one": {"en": "one by one", "ja": "1 つずつ"},
    "at once": {"en": "at once", "ja": "同時"},
    "pages": {"en": "no", "ja": "なし"},
    "prefix": {"en": "yes", "ja": "あり"},
    "prompt_tokens": {"en": "tokens of prompts that ran", "ja": "計算したトークン数"},
    "first_one": {"en": "first token of the first", "ja": "最初のリクエストの TTFT"},
    "later_ones": {"en": "of the others, median", "ja": "残りの TTFT（中央値）"},
    "weights": {"en": "weights", "ja": "重み"},
    "four_bits": {"en": "4 bits", "ja": "4 ビット"},
    "clients": {"en": "clients", "ja": "クライアント"},
    "left": {"en": "clients that left", "ja": "途中でいなくなった数"},
    "server": {"en": "server", "ja": "サーバー"},
    "output_speed": {"en": "output, all together", "ja": "出力（合計）"},
    "first_tokens": {"en": "first token: p50, p95", "ja": "TTFT（p50、p95）"},
    "between_tokens": {"en": "between tokens: p50, p95", "ja": "トークン間隔（p50、p95）"},
    "three_first": {"en": "first token: p50, p95, p99", "ja": "TTFT（p50、p95、p99）"},
    "three_between": {"en": "between tokens: p50, p95, p99", "ja": "トークン間隔（p50、p95、p99）"},
    "chance": {"en": "a guess is right", "ja": "推測が当たる確率"},
    "accepted": {"en": "accepted", "ja": "採択率"},
    "tokens_per_step": {"en": "tokens a step", "ja": "1 ステップのトークン数"},
    "without_guesses": {"en": "without guesses", "ja": "推測なし"},
    "with_guesses": {"en": "with four", "ja": "推測 4 個"},
}

# Words in \text{...} of formulas: names stay as they are, other words get their Japanese.
NAMES = {
    *("Attention", "MLP", "SiLU", "attention", "norm", "sigmoid", "softmax"),
    *("base", "head", "hidden", "out", "page", r"page\_size", "parts", "place", "row", "rows", "score", "sum"),
}
IN_FORMULAS = {
    "bandwidth": "帯域幅",
    "bias": "バイアス",
    "bits per weight": "重み 1 つのビット数",
    "both": "全体",
    "bytes": "バイト数",
    "bytes of a number": "数値のバイト数",
    "bytes per token": "1 トークンのバイト数",
    " is at or before query ": r" の位置 }\le\text{ クエリ ",
    "if key ": "キー ",
    "intensity": "演算強度",
    "keys, transposed": "転置したキー",
    "layers": "層数",
    "level": "レベル",
    "operations": "演算数",
    "otherwise": "それ以外",
    "peak": "ピーク性能",
    "query": "クエリ",
    "scale": "スケール",
    "scores": "スコア",
}


def word(key: str, language: str, **values: object) -> str:
    return WORDS[key][language].format(**values)


def in_formula(words: str) -> str:
    """Words of a formula in Japanese, or as they are."""
    return IN_FORMULAS.get(words, words)
