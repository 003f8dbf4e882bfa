"""Compiles kernels of typical graphs for a GPU that is not there; prints facts about the machine code as JSON."""

import json
import re
import sys
import tempfile
from pathlib import Path

import torch
from machine_code import compile_ahead, registers_and_spilled
from torch.fx.experimental.proxy_tensor import make_fx

from fxstack_inductor import InductorOptions, decompositions
from fxstack_inductor.runtime import triton_runtime
from fxstack_inductor.targets.triton.lower import lower_triton

F = torch.nn.functional


def block(x, w, v, i):
    y = F.layer_norm(x, (64,), w)
    picked = F.embedding(i, x) * 2
    return torch.softmax(F.gelu(y), -1), y.argmax(-1), (y * v).sum(0), y.bfloat16(), picked


def long_rows(x):
    return x.softmax(-1), x.argmax(0), x.std(1), torch.div(x, x.sum(0), rounding_mode="trunc")


def scans(x, n):
    values, where = x.cummax(-1)
    return x.softmax(-1).cumsum(-1), values, where, torch.logcumsumexp(x, 0), n.cumsum(0)


def scatters(x, i):
    summed = torch.zeros(500, 64).index_put((i,), x.exp(), accumulate=True)
    return (summed, x.bfloat16().index_add(0, i, x.bfloat16()), x.long().scatter_add(0, i[:, None], x.long()))


def one_row(x, w):
    return (x @ w).relu(), (x.relu() @ w).tanh()


def products(x, w, b, y):
    return F.gelu(F.linear(x, w, b)) + y, (x[:1000] @ w[:1000].t()).relu()


def small_results(x, w, v):
    return F.gelu(x @ w), (x @ w[:, :192]).relu() @ v, (x.relu() @ w).tanh() * 2


def gelu_gradients(x, w, y):
    """Each element of a large tile takes another tensor and a transcendental function."""
    return torch.ops.aten.gelu_backward(x @ w.t(), y, approximate="tanh")


def sizes(x, y):
    return (x.softmax(-1) + y).permute(2, 0, 1).reshape(x.shape[2], -1), (x @ y.mT).relu().mean((1, 2))


def quantise(x):
    scale = 448 / x.abs().amax(-1, keepdim=True).float()
    eight = (x * scale).to(torch.float8_e4m3fn)
    return eight, eight.float() / scale, x.to(torch.float8_e5m2)


def facts(kernel):
    target = re.search(r"\.target (sm_\d+)", kernel.asm["ptx"]).group(1)
    _, spilled = registers_and_spilled(kernel)
    exact = re.findall(r"\b((?:sqrt|div)\.[\w.]*f32)", kernel.asm["ptx"])
    return {
        "target": target,
        "cubin": len(kernel.asm["cubin"]),
        "spilled": spilled,
        "exact": sorted(set(exact)),
        "matrix": sorted(set(re.findall(r"wgmma|mma(?=\.sync)", kernel.asm["ptx"]))),
    }


def compile_all(fn, inputs, capability, folder, mode="fake"):
    graph = make_fx(fn, decomposition_table=decompositions(), tracing_mode=mode)(*inputs)
    source = lower_triton(graph, InductorOptions()).source
    module = triton_runtime.load_module(source.text, folder)
    compiled = compile_ahead(source, module, capability)
    assert set(compiled) == {f.name for f in source.functions.values()}
    return {f"{fn.__name__}.{name}": facts(kernel) for name, kernel in compiled.items()}


with tempfile.TemporaryDirectory() as name:
    first = (torch.randn(32, 64), torch.randn(64), torch.randn(64), torch.tensor([1, 2, 3]))
    result = compile_all(block, first, int(sys.argv[1]), Path(name))
    result |= compile_all(long_rows, (torch.randn(500, 9000),), int(sys.argv[1]), Path(name))
    third = (torch.randn(300, 1000), torch.ones(300, 1000, dtype=torch.int8))
    result |= compile_all(scans, third, int(sys.argv[1]), Path(name))
    fourth = (torch.randn(300, 64), torch.zeros(300, dtype=torch.int64))
    result |= compile_all(scatters, fourth, int(sys.argv[1]), Path(name))
    half = [(4096, 128), (4096, 128), (4096,), (4096, 4096)]
    fifth = [torch.empty(shape, dtype=torch.bfloat16) for shape in half]
    result |= compile_all(products, fifth, int(sys.argv[1]), Path(name))
    result |= compile_all(gelu_gradients, [fifth[0], fifth[1], fifth[3]], int(sys.argv[1]), Path(name))
    rows = [torch.empty(shape, dtype=torch.bfloat16) for shape in [(1, 512), (512, 512)]]
    result |= compile_all(one_row, rows, int(sys.argv[1]), Path(name))
    small = [torch.empty(shape, dtype=torch.bfloat16) for shape in [(128, 192), (192, 768), (192, 192)]]
    result |= compile_all(small_results, small, int(sys.argv[1]), Path(name))
    sixth = (torch.randn(3, 20, 30), torch.randn(3, 20, 30))
    result |= compile_all(sizes, sixth, int(sys.argv[1]), Path(name), "symbolic")
    seventh = (torch.empty(300, 1024, dtype=torch.bfloat16),)
    result |= compile_all(quantise, seventh, int(sys.argv[1]), Path(name))
    print(json.dumps(result))
