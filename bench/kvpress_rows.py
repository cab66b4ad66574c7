"""One random prompt, and the rows of it that kvpress and our kept_rows keep; for kvpress_check.py."""
import json
import pathlib
import subprocess
import sys
import tempfile
from dataclasses import dataclass, replace
from types import SimpleNamespace

import torch
from kvpress import BasePress, SnapKVPress
from torch.nn import functional as F

HEAD_DIM = 64
KV_HEADS = 3
LAYERS = 5
WINDOW = 32
Kept = list[list[list[int]]]  # [layers][kv_heads][rows kept]


@dataclass
class Tensors:
    """One prompt: keys [layers][kv_heads][rows][d], queries [layers][heads][rows][d]."""
    keys: torch.Tensor
    queries: torch.Tensor

    @property
    def group(self) -> int:
        return self.queries.shape[1] // self.keys.shape[1]

    @property
    def rows(self) -> int:
        return self.keys.shape[2]

    def per_query_head(self) -> "Tensors":
        """The same prompt with a kv_head of its own for every query head."""
        return Tensors(self.keys.repeat_interleave(self.group, dim=1), self.queries)

    def per_kv_head(self) -> "Tensors":
        """The same prompt with a layer of its own for every kv_head."""
        return Tensors(self.keys.flatten(0, 1)[:, None],
                       self.queries.unflatten(1, (-1, self.group)).flatten(0, 1))

    def write(self, path: pathlib.Path) -> None:
        """The file that kept_rows reads."""
        layers, kv_heads, rows, head_dim = self.keys.shape
        with open(path, "wb") as file:
            numbers = (layers, kv_heads, self.group, head_dim, rows, WINDOW)
            file.write((" ".join(map(str, numbers)) + "\n").encode())
            file.write(self.keys.contiguous().numpy().tobytes())
            file.write(self.queries[:, :, -WINDOW:].contiguous().numpy().tobytes())


def random_tensors(seed: int, group: int, rows: int, distinct: int) -> Tensors:
    """Keys repeat after `distinct` rows, so that scores tie when that is less than `rows`. Attention is
    spread widely in the first kv_head and sharp in the last."""
    random = torch.Generator().manual_seed(seed)
    sharpness = torch.tensor([0.5, 1.5, 3.0]).view(1, KV_HEADS, 1, 1)
    keys = sharpness * torch.randn(LAYERS, KV_HEADS, distinct, HEAD_DIM, generator=random)
    queries = torch.randn(LAYERS, KV_HEADS * group, rows, HEAD_DIM, generator=random)
    return Tensors(keys[:, :, torch.arange(rows) % distinct], queries)


class FakeAttention(torch.nn.Module):
    """An attention layer whose hidden states are its queries."""

    def __init__(self, tensors: Tensors, layer: int):
        super().__init__()
        layers, kv_heads = tensors.keys.shape[:2]
        self.config = SimpleNamespace(num_attention_heads=kv_heads * tensors.group,
                                      num_key_value_heads=kv_heads, num_hidden_layers=layers,
                                      _attn_implementation="sdpa")
        self.head_dim = HEAD_DIM
        self.layer_idx = layer
        self.q_proj = self.k_proj = self.o_proj = torch.nn.Identity()
        self.masked_key_indices = None


def press_inputs(tensors: Tensors, layer: int) -> tuple:
    """What a press's score and compress take; a row's values are its number."""
    rows = tensors.rows
    hidden = tensors.queries[layer].transpose(0, 1).reshape(1, rows, -1)
    keys = tensors.keys[layer][None]
    values = torch.arange(rows, dtype=torch.float32)[None, None, :, None].expand(keys.shape)
    rotation = (torch.ones(1, rows, HEAD_DIM), torch.zeros(1, rows, HEAD_DIM))
    return (FakeAttention(tensors, layer), hidden, keys, values, None,
            {"position_embeddings": rotation})


class MaxPooledSnapKV(SnapKVPress):
    """kvpress's scores pooled as ours are: the maximum, after the group's mean; of equal maxima the row
    with the higher score first, a share too small to change any other order."""

    def score(self, *inputs) -> torch.Tensor:
        scores = super(MaxPooledSnapKV, replace(self, kernel_size=1)).score(*inputs)
        width = self.kernel_size
        pooled = F.max_pool1d(scores[..., :-self.window_size], width, 1, width // 2).double()
        pooled += 1e-9 * scores[..., :-self.window_size]
        return torch.cat([pooled, scores[..., -self.window_size:].double()], dim=-1)


def rows_of_press(press: BasePress, tensors: Tensors) -> Kept:
    kept = []
    for layer in range(tensors.keys.shape[0]):
        inputs = press_inputs(tensors, layer)
        _, values = press.compress(*inputs)
        alive = torch.zeros(tensors.keys.shape[1], tensors.rows, dtype=torch.bool)
        alive.scatter_(1, values[0, :, :, 0].long(), True)
        if inputs[0].masked_key_indices is not None:  # Ada-KV masks instead of pruning
            _, heads, rows = inputs[0].masked_key_indices
            alive[heads, rows] = False
        kept.append([head.nonzero().flatten().tolist() for head in alive])
    return kept


def rows_of_ours(program: str, tensors: Tensors, method: str) -> Kept:
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder) / "tensors"
        tensors.write(path)
        done = subprocess.run([program, path, method], capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"{method}: {done.stderr}")
    return json.loads(done.stdout)["kept"]
