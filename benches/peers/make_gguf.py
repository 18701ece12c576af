#!/usr/bin/env python3
"""Writes a GGUF file for measuring llama.cpp: a model in Qwen3-0.6B's shape, with random matrices in Q4_0.

python benches/peers/make_gguf.py FILE      needs `gguf` and `numpy` from PyPI; the lock file has no `gguf`
"""

import sys

import gguf
import numpy as np

V, E, I, LAYERS, H_Q, H_KV, D = 151936, 1024, 3072, 28, 16, 8, 128
BLOCK = 32  # weights that share a scale


def main(path: str) -> None:
    writer = gguf.GGUFWriter(path, "qwen3")
    writer.add_context_length(40960)
    writer.add_embedding_length(E)
    writer.add_block_count(LAYERS)
    writer.add_feed_forward_length(I)
    writer.add_head_count(H_Q)
    writer.add_head_count_kv(H_KV)
    writer.add_key_length(D)
    writer.add_value_length(D)
    writer.add_rope_freq_base(1e6)
    writer.add_layer_norm_rms_eps(1e-6)
    writer.add_file_type(gguf.LlamaFileType.MOSTLY_Q4_0)
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("qwen2")
    writer.add_token_list([f"t{i}" for i in range(V)])
    writer.add_token_types([gguf.TokenType.NORMAL] * V)
    writer.add_token_merges(["t 0"])
    writer.add_eos_token_id(0)
    random = np.random.default_rng(0)
    shapes = {"token_embd": (V, E)}
    norms = {"output_norm": E}
    for i in range(LAYERS):
        shapes |= {f"blk.{i}.attn_q": (H_Q * D, E), f"blk.{i}.attn_k": (H_KV * D, E), f"blk.{i}.attn_v": (H_KV * D, E)}
        shapes |= {f"blk.{i}.attn_output": (E, H_Q * D), f"blk.{i}.ffn_gate": (I, E), f"blk.{i}.ffn_up": (I, E)}
        shapes |= {f"blk.{i}.ffn_down": (E, I)}
        norms |= {f"blk.{i}.attn_norm": E, f"blk.{i}.ffn_norm": E}
        norms |= {f"blk.{i}.attn_q_norm": D, f"blk.{i}.attn_k_norm": D}
    for name, (rows, columns) in shapes.items():
        data = random.integers(0, 256, (rows, columns // BLOCK, 18), dtype=np.uint8)
        data[..., :2] = np.array([0.01], np.float16).view(np.uint8)
        data = data.reshape(rows, -1)
        writer.add_tensor(f"{name}.weight", data, raw_dtype=gguf.GGMLQuantizationType.Q4_0)
    for name, size in norms.items():
        writer.add_tensor(f"{name}.weight", np.ones(size, np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


if __name__ == "__main__":
    main(*sys.argv[1:])
