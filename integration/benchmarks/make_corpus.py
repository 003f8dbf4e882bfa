"""Write the corpus of joint graphs that fxstack-partition ships: ``python make_corpus.py [NAME ...]``.

Each graph is one model's training step, captured and functionalized for this project's code generator, saved in
the interchange format and compressed. Paths in stack traces are cut to what follows ``site-packages``.
"""

from __future__ import annotations

import lzma
import re
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
import zoo
from torch import nn

import fxstack
from fxstack_functionalize import aot
from fxstack_inductor import decompositions
from fxstack_interchange import StageGraph, to_bytes
from fxstack_partition import partition

if TYPE_CHECKING:
    from collections.abc import Callable

TARGET = Path(__file__).parents[2] / "packages/partition/src/fxstack_partition/corpus"
_INSTALLED = re.compile(r'File "[^"]*/(?:site-packages|benchmarks)/')
_STANDARD = re.compile(r'File "/[^"]*/(?=[^/"]+")')


def record(model: Any, batch: dict[str, Any], *, dynamic: bool) -> StageGraph:
    """Return the joint graph of one training call."""
    found: list[StageGraph] = []

    def keep(joint: StageGraph):
        found.append(joint)
        return partition(joint, "save_all")

    def run(graph, _inputs):
        return graph.forward

    def backend(graph, inputs):
        table = decompositions()
        return aot(graph, inputs, fw_compiler=run, partitioner=keep, decompositions=table)

    fxstack.compile(model, backend=backend, dynamic=dynamic)(**batch)
    if len(found) != 1:
        message = f"expected one joint graph, found {len(found)}"
        raise RuntimeError(message)
    return found[0]


class Block(nn.Module):
    """A pre-norm transformer block on ``scaled_dot_product_attention``."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.first, self.second = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        self.dropout = nn.Dropout(0.1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, length, width = x.shape
        parts = self.qkv(self.first(x)).view(batch, length, 3, self.heads, -1)
        q, k, v = parts.permute(2, 0, 3, 1, 4).unbind(0)
        mixed = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.dropout(self.out(mixed.transpose(1, 2).reshape(batch, length, width)))
        return x + self.dropout(self.down(nn.functional.gelu(self.up(self.second(x)))))


class Stack(nn.Module):
    """Token embedding, blocks, head and loss."""

    def __init__(self, width: int, depth: int, heads: int, vocabulary: int) -> None:
        super().__init__()
        self.embed = nn.Embedding(vocabulary, width)
        self.blocks = nn.Sequential(*(Block(width, heads) for _ in range(depth)))
        self.head = nn.Linear(width, vocabulary)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        logits = self.head(self.blocks(self.embed(tokens)))
        return nn.functional.cross_entropy(logits.flatten(0, 1), tokens.flatten())


class Softmaxes(nn.Module):
    """Attention written out: large square intermediates that are cheap to make again."""

    def forward(self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        for _ in range(4):
            scores = q @ k.transpose(-1, -2) / q.shape[-1] ** 0.5
            q = torch.tanh(nn.functional.softmax(scores * torch.sigmoid(scores), -1) @ v)
        return q.square().mean()


def stack(width: int, depth: int, length: int) -> tuple[nn.Module, dict[str, Any]]:
    torch.manual_seed(0)
    tokens = torch.randint(0, 1000, (4, length))
    return Stack(width, depth, 4, 1000), {"tokens": tokens}


def softmaxes() -> tuple[nn.Module, dict[str, Any]]:
    shape = (2, 4, 128, 32)
    return Softmaxes(), {name: torch.randn(shape, requires_grad=True) for name in "qkv"}


def case(name: str, size: str) -> tuple[nn.Module, dict[str, Any]]:
    built = zoo.build(name, size)
    return built.model.train(), built.batch


CORPUS: dict[str, tuple[Callable[[], tuple[nn.Module, dict[str, Any]]], bool]] = {
    **{name: (lambda name=name: case(name, zoo.BENCH), False) for name in zoo.CASES},
    **{
        f"{name}_symbolic": (lambda name=name: case(name, zoo.TINY), True)
        for name in ("bert", "gpt2", "llama", "mlp", "unet")
    },
    "softmaxes": (softmaxes, False),
    "stack_4": (lambda: stack(128, 4, 128), False),
    "stack_4_symbolic": (lambda: stack(64, 4, 48), True),
    "stack_24": (lambda: stack(256, 24, 128), False),
}
"""Name -> (builder of a model and its arguments, whether sizes are symbolic)."""


def clean(joint: StageGraph) -> StageGraph:
    for node in joint.graph_module.graph.nodes:
        trace = node.meta.get("stack_trace")
        if isinstance(trace, str):
            short = _INSTALLED.sub('File "', trace)
            node.meta["stack_trace"] = _STANDARD.sub('File "', short)
    return joint


def main(names: list[str]) -> None:
    for name in names or CORPUS:
        builder, dynamic = CORPUS[name]
        model, batch = builder()
        joint = clean(record(model, batch, dynamic=dynamic))
        data = lzma.compress(to_bytes(joint), preset=9 | lzma.PRESET_EXTREME)
        (TARGET / f"{name}.fxg.xz").write_bytes(data)
        nodes = len(joint.graph_module.graph.nodes)
        symbols = len(joint.signature.symbols)
        print(f"{name}: {nodes} nodes, {symbols} symbols, {len(data) / 1024:.0f} KiB", flush=True)


if __name__ == "__main__":
    if sys.argv[1:] == ["--dry"]:  # seconds of it, for the tests
        sys.argv[1:] = ["mlp"]
        TARGET = Path(tempfile.mkdtemp())
    main(sys.argv[1:])
