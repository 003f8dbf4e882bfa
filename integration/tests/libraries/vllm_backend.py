"""As vLLM compiles: a backend of its own cuts the graph at a custom attention operator; the number of tokens is dynamic."""

import json
import time

import torch
from torch import nn
from torch.fx.passes.split_module import split_module


@torch.library.custom_op("mini_vllm::attention", mutates_args=("out",))
def attention(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, out: torch.Tensor, layer: str) -> None:
    CALLS.append(layer)
    out.copy_(nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True))


@attention.register_fake
def _(q, k, v, out, layer):
    return None


CALLS, PIECES = [], []


class Pieces:
    """The graph as a module of pieces; those without the operator get the inner compiler."""

    def __call__(self, graph: torch.fx.GraphModule, example_inputs):
        number, places = 0, {}
        for node in graph.graph.nodes:
            if node.op in ("placeholder", "output"):
                continue
            whole = node.target in (torch.ops.mini_vllm.attention, torch.ops.mini_vllm.attention.default)
            number += whole
            places[node] = number
            number += whole
        split = split_module(graph, None, lambda node: places[node], keep_original_order=True)
        PIECES.extend(name for name, _ in split.named_children())
        return split.forward


class Layer(nn.Module):
    def __init__(self, width, heads, name):
        super().__init__()
        self.heads, self.name = heads, name
        self.norm, self.qkv, self.out = (
            nn.RMSNorm(width),
            nn.Linear(width, 3 * width),
            nn.Linear(width, width),
        )

    def forward(self, x, residual):
        residual = residual + x
        q, k, v = self.qkv(self.norm(residual)).unflatten(-1, (3, self.heads, -1)).transpose(0, 2).unbind(1)
        out = torch.empty_like(q)
        torch.ops.mini_vllm.attention(q, k, v, out, self.name)
        return self.out(out.transpose(0, 1).flatten(1)), residual


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(70, 32)
        self.layers = nn.ModuleList(Layer(32, 4, f"layers.{i}") for i in range(2))

    def forward(self, tokens, positions):
        x = self.embed(tokens) + torch.sin(positions[:, None] / 10)
        residual = torch.zeros_like(x)
        for layer in self.layers:
            x, residual = layer(x, residual)
        return x + residual


torch.manual_seed(0)
model = torch.compile(Model().eval(), fullgraph=True, backend=Pieces())
losses, times = [], []
with torch.inference_mode():
    for count in (12, 7, 33, 12):
        tokens, positions = torch.randint(0, 70, (count,)), torch.arange(count)
        torch._dynamo.mark_dynamic(tokens, 0)
        torch._dynamo.mark_dynamic(positions, 0)
        start = time.perf_counter()
        y = model(tokens, positions)
        times.append(time.perf_counter() - start)
        losses += [y.abs().sum().item(), float(len(CALLS))]
print(json.dumps({"losses": losses, "pieces": PIECES, "first": times[0], "step": times[-1]}))
