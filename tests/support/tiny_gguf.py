#!/usr/bin/env python3
"""Writes tiny GGUF models with random weights and a small real vocabulary, for tests.

  tiny_gguf.py --list                    names of the presets
  tiny_gguf.py --preset NAME -o FILE     one model
  tiny_gguf.py --all DIR                 every preset as DIR/NAME.gguf

A preset always gives the same bytes. Every file loads in libllama and in rkv, tokenises any text
and carries a ChatML template. Weights are drawn so that activations and logits stay near 1.
"""
import argparse
import ctypes
import dataclasses
import math
import os
import pathlib
import sys
import zlib

import gguf
import numpy as np
from gguf import GGMLQuantizationType as Type
from gguf import TokenType

CHAT_TEMPLATE = (
    "{% for message in messages %}{{'<|im_start|>' + message['role'] + '\\n' + message['content'] "
    "+ '<|im_end|>' + '\\n'}}{% endfor %}{% if add_generation_prompt %}"
    "{{ '<|im_start|>assistant\\n' }}{% endif %}"
)
WORDS = (
    "the of and to in a is that it was for on are as with his they at be this from have or by one "
    "had not but what all were when we there can an your which their said if do will each about "
    "how up out them then she many some so these would other into has more her two like him see "
    "time could no make than first been its who now people my made over did down only way find "
    "user assistant system pass key answer"
).split()
# Of query and key weights: scores spread enough that a token attends to some ten others out of
# thousands. With 1 all rows weigh the same and an attention error hardly moves the logits.
SHARPNESS = 1.5


@dataclasses.dataclass(frozen=True)
class Spec:
    """One model. `types`: of the matrices; `embedding_type`: of token_embd and output."""

    architecture: str = "llama"
    vocabulary: str = "spm"  # spm | bpe
    layers: int = 2
    embd: int = 128
    heads: int = 2
    kv_heads: int = 1
    head_dim: int = 64  # other than embd / heads is written as key_length and value_length
    ff: int = 192
    context: int = 4096
    tied: bool = False
    biases: tuple = ()  # of "q", "k", "v", "o"
    type: Type = Type.F32
    embedding_type: Type | None = None  # the same as `type`
    rope_base: float = 10000.0
    rope_scaling: str = ""  # "", "linear", "yarn"
    rope_factor: float = 4.0
    original_context: int = 1024  # of yarn and of llama3 factors
    llama3_factors: bool = False  # the tensor rope_freqs.weight
    yarn_extra: bool = False  # yarn_beta_* other than their defaults


def qwen2(**changes):
    """Qwen2 as published: NEOX rope, q, k, v biases, byte-level BPE, head_dim = embd / heads."""
    return Spec(**{"architecture": "qwen2", "vocabulary": "bpe", "biases": ("q", "k", "v"),
                   "rope_base": 1000000.0, **changes})


# K-quants need rows of a multiple of 256 numbers.
K_SHAPE = {"embd": 256, "heads": 4, "kv_heads": 2, "ff": 256}

PRESETS = {
    "llama-f32": Spec(),
    "llama-f32-mha": Spec(heads=2, kv_heads=2),
    "llama-f32-gqa3-llama3rope": Spec(
        layers=3, embd=192, heads=3, rope_base=500000.0, llama3_factors=True),
    "llama-f32-gqa4-hd80": Spec(heads=4, head_dim=80),
    "llama-f32-gqa8": Spec(embd=96, heads=8),
    "llama-f32-hd96": Spec(embd=192, heads=2, head_dim=96),
    "llama-f32-hd128": Spec(embd=128, heads=2, head_dim=128),
    "llama-f32-linear": Spec(rope_scaling="linear"),
    "llama-f32-yarn": Spec(rope_scaling="yarn"),
    "llama-bias": Spec(biases=("q", "k", "v", "o")),
    "llama-bpe": Spec(vocabulary="bpe"),
    "llama-tied": Spec(heads=4, kv_heads=2, tied=True),
    "qwen2-f32": qwen2(),
    "qwen2-f32-gqa7": qwen2(embd=448, heads=7, ff=64, layers=2, tied=True),
    "qwen2-yarn": qwen2(rope_scaling="yarn", yarn_extra=True),
    "llama-f16": Spec(type=Type.F16),
    "llama-bf16": Spec(type=Type.BF16),
    "llama-q8_0": Spec(type=Type.Q8_0),
    "llama-q4_0": Spec(type=Type.Q4_0),
    "llama-q4_1": Spec(heads=6, kv_heads=2, type=Type.Q4_1),
    "llama-q5_0": Spec(type=Type.Q5_0),
    "llama-q5_1": Spec(type=Type.Q5_1),
    "llama-q4_k": Spec(type=Type.Q4_K, embedding_type=Type.Q6_K, **K_SHAPE),
    "llama-q6_k": Spec(type=Type.Q6_K, **K_SHAPE),
    "qwen2-q4_k": qwen2(type=Type.Q4_K, embedding_type=Type.Q8_0, tied=True, **K_SHAPE),
}


class Quantiser:
    """Rounds f32 matrices with ggml's own quantisation, K-quants included."""

    def __init__(self):
        import llama_cpp

        folder = pathlib.Path(llama_cpp.__file__).parent / "lib"
        self._quantise = ctypes.CDLL(str(folder / "libggml-base.so")).ggml_quantize_chunk
        self._quantise.restype = ctypes.c_size_t
        self._quantise.argtypes = [ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64,
                                   ctypes.c_int64, ctypes.c_int64, ctypes.c_void_p]

    def __call__(self, matrix, kind):
        rows, columns = matrix.shape
        block, block_bytes = gguf.GGML_QUANT_SIZES[kind]
        if columns % block:
            raise ValueError(f"{kind.name} needs rows of a multiple of {block}, got {columns}")
        out = np.empty((rows, columns // block * block_bytes), dtype=np.uint8)
        source = np.ascontiguousarray(matrix, dtype=np.float32)
        written = self._quantise(int(kind), source.ctypes.data, out.ctypes.data, 0, rows, columns,
                                 None)
        assert written == out.nbytes, (kind, written, out.nbytes)
        return out


def spm_vocabulary():
    """SentencePiece style: byte fallback, letters, and every prefix of some words."""
    tokens = [("<unk>", TokenType.UNKNOWN), ("<s>", TokenType.CONTROL), ("</s>", TokenType.CONTROL)]
    tokens += [(f"<0x{byte:02X}>", TokenType.BYTE) for byte in range(256)]
    tokens += [("<|im_start|>", TokenType.CONTROL), ("<|im_end|>", TokenType.CONTROL)]
    pieces = dict.fromkeys(chr(c) for c in range(0x21, 0x7F))
    pieces["▁"] = None
    for word in WORDS:
        for end in range(1, len(word) + 1):
            pieces.setdefault("▁" + word[:end])
    tokens += [(piece, TokenType.NORMAL) for piece in pieces]
    scores = [0.0] * (len(tokens) - len(pieces)) + [-float(i) for i in range(len(pieces))]
    return tokens, scores


def byte_letters():
    """GPT-2's printable letter for each byte."""
    plain = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in plain]
    letters = {byte: chr(byte) for byte in plain}
    letters.update({byte: chr(256 + i) for i, byte in enumerate(others)})
    return [letters[byte] for byte in range(256)]


def bpe_vocabulary():
    """Byte-level BPE: 256 letters, then one merge for each prefix of some words."""
    merges = {}
    for word in WORDS:
        for end in range(1, len(word) + 1):
            merges.setdefault(("Ġ" + word[: end - 1], word[end - 1]))
    tokens = [(letter, TokenType.NORMAL) for letter in byte_letters()]
    tokens += [(left + right, TokenType.NORMAL) for left, right in merges]
    specials = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
    tokens += [(name, TokenType.CONTROL) for name in specials]
    return tokens, [" ".join(pair) for pair in merges]


def add_vocabulary(writer, spec):
    """Writes the tokenizer keys and returns the number of tokens."""
    if spec.vocabulary == "spm":
        tokens, scores = spm_vocabulary()
        writer.add_tokenizer_model("llama")
        writer.add_tokenizer_pre("default")
        writer.add_token_scores(scores)
        bos, eos, unknown = "<s>", "</s>", "<unk>"
    else:
        tokens, merges = bpe_vocabulary()
        writer.add_tokenizer_model("gpt2")
        writer.add_tokenizer_pre("qwen2" if spec.architecture == "qwen2" else "gpt-2")
        writer.add_token_merges(merges)
        bos, eos, unknown = "<|endoftext|>", "<|endoftext|>", None
    ids = {name: i for i, (name, _) in enumerate(tokens)}
    writer.add_token_list([name for name, _ in tokens])
    writer.add_token_types([kind for _, kind in tokens])
    writer.add_bos_token_id(ids[bos])
    writer.add_eos_token_id(ids[eos])
    writer.add_eot_token_id(ids["<|im_end|>"])
    if unknown:
        writer.add_unk_token_id(ids[unknown])
    writer.add_add_bos_token(spec.vocabulary == "spm")
    writer.add_chat_template(CHAT_TEMPLATE)
    writer.add_vocab_size(len(tokens))
    return len(tokens)


def llama3_divisors(spec):
    """Llama 3.1's frequency divisors: low frequencies by the factor, high ones not at all."""
    low, high = 1.0, 4.0
    half = np.arange(spec.head_dim // 2)
    wavelength = 2 * math.pi * spec.rope_base ** (2 * half / spec.head_dim)
    smooth = np.clip((spec.original_context / wavelength - low) / (high - low), 0, 1)
    return (1 / ((1 - smooth) / spec.rope_factor + smooth)).astype(np.float32)


def add_hyper_parameters(writer, spec, name):
    writer.add_name(f"tiny {name}")
    writer.add_context_length(spec.context)
    writer.add_embedding_length(spec.embd)
    writer.add_block_count(spec.layers)
    writer.add_feed_forward_length(spec.ff)
    writer.add_head_count(spec.heads)
    writer.add_head_count_kv(spec.kv_heads)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_rope_dimension_count(spec.head_dim)
    writer.add_rope_freq_base(spec.rope_base)
    if spec.head_dim * spec.heads != spec.embd:
        writer.add_key_length(spec.head_dim)
        writer.add_value_length(spec.head_dim)
    if spec.rope_scaling:
        writer.add_rope_scaling_type(gguf.RopeScalingType(spec.rope_scaling))
        writer.add_rope_scaling_factor(spec.rope_factor)
    if spec.rope_scaling == "yarn":
        writer.add_rope_scaling_orig_ctx_len(spec.original_context)
    if spec.yarn_extra:
        writer.add_rope_scaling_yarn_beta_fast(24.0)
        writer.add_rope_scaling_yarn_beta_slow(2.0)


class TensorWriter:
    """Draws tensors in a fixed order from one seeded generator."""

    def __init__(self, writer, spec, name, quantise):
        self._writer = writer
        self._spec = spec
        self._quantise = quantise
        self._random = np.random.default_rng(zlib.crc32(name.encode()))

    def matrix(self, name, rows, columns, kind=None, gain=1.0):
        kind = kind if kind is not None else self._spec.type
        values = self._random.standard_normal((rows, columns), dtype=np.float32)
        values *= np.float32(gain / math.sqrt(columns))
        if kind == Type.F32:
            self._writer.add_tensor(name, values)
        elif kind == Type.F16:
            self._writer.add_tensor(name, values.astype(np.float16))
        elif kind == Type.BF16:
            self._writer.add_tensor(name, gguf.quantize(values, Type.BF16), raw_dtype=Type.BF16)
        else:
            self._writer.add_tensor(name, self._quantise(values, kind), raw_dtype=kind)

    def vector(self, name, length, mean, deviation):
        values = mean + deviation * self._random.standard_normal(length)
        self._writer.add_tensor(name, values.astype(np.float32))


def add_layer(out, spec, prefix):
    q_width, kv_width = spec.heads * spec.head_dim, spec.kv_heads * spec.head_dim
    shapes = {"q": (q_width, spec.embd), "k": (kv_width, spec.embd), "v": (kv_width, spec.embd),
              "o": (spec.embd, q_width)}
    names = {"q": "attn_q", "k": "attn_k", "v": "attn_v", "o": "attn_output"}
    out.vector(prefix + "attn_norm.weight", spec.embd, 1.0, 0.1)
    for part, (rows, columns) in shapes.items():
        gain = SHARPNESS if part in ("q", "k") else 1.0
        out.matrix(f"{prefix}{names[part]}.weight", rows, columns, gain=gain)
        if part in spec.biases:
            out.vector(f"{prefix}{names[part]}.bias", rows, 0.0, 0.5)
    out.vector(prefix + "ffn_norm.weight", spec.embd, 1.0, 0.1)
    out.matrix(prefix + "ffn_gate.weight", spec.ff, spec.embd)
    out.matrix(prefix + "ffn_up.weight", spec.ff, spec.embd)
    out.matrix(prefix + "ffn_down.weight", spec.embd, spec.ff)


def write_model(name, path, quantise):
    """Writes preset `name` to `path`; an interrupted run leaves no file under that name."""
    spec = PRESETS[name]
    partial = path.with_suffix(".partial")
    writer = gguf.GGUFWriter(str(partial), spec.architecture)
    add_hyper_parameters(writer, spec, name)
    vocab = add_vocabulary(writer, spec)
    out = TensorWriter(writer, spec, name, quantise)
    embedding_type = spec.embedding_type if spec.embedding_type is not None else spec.type
    out.matrix("token_embd.weight", vocab, spec.embd, embedding_type)
    for layer in range(spec.layers):
        add_layer(out, spec, f"blk.{layer}.")
    out.vector("output_norm.weight", spec.embd, 1.0, 0.1)
    if not spec.tied:
        out.matrix("output.weight", vocab, spec.embd, embedding_type)
    if spec.llama3_factors:
        writer.add_tensor("rope_freqs.weight", llama3_divisors(spec))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    os.replace(partial, path)


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("--list", action="store_true", help="print the names of the presets")
    what.add_argument("--preset", choices=PRESETS, metavar="NAME", help="write this one")
    what.add_argument("--all", type=pathlib.Path, metavar="DIR", help="write all of them here")
    parser.add_argument("-o", type=pathlib.Path, metavar="FILE", help="where --preset writes")
    options = parser.parse_args()
    if (options.preset is None) != (options.o is None):
        parser.error("--preset and -o go together")
    if options.list:
        print("\n".join(PRESETS))
    elif options.preset:
        write_model(options.preset, options.o, Quantiser())
    else:
        options.all.mkdir(parents=True, exist_ok=True)
        quantise = Quantiser()
        for name in PRESETS:
            write_model(name, options.all / f"{name}.gguf", quantise)


if __name__ == "__main__":
    sys.exit(main())
