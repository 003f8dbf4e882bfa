"""How compile time grows with the number of equal layers: GPT-2, ViT and Llama blocks, forward and backward.

    python layers.py [--models gpt2,vit,llama] [--layers 12,48,96] [--modes shared,region,unshared] [--size 64] [--dry]

Every row runs in a process of its own with empty caches. ``shared``: equal parts of the graph become regions.
``region``: the blocks are functions of ``torch.compiler.nested_compile_region``. ``unshared``: the option
``share_regions`` is off. The columns are seconds of processor time of the first training step (with the C
compiler), wall-clock seconds by stage, and milliseconds of processor time of a later step. ``--check`` compares
losses and gradients of ``shared`` with those of ``unshared``, bit by bit.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import subprocess
import sys
import tempfile
import time

import torch
from torch import nn
from torch.nn import functional

STAGES = ("capture", "functionalize", "partition", "inductor")


class Gpt2Block(nn.Module):
    def __init__(self, size: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.ln1, self.ln2 = nn.LayerNorm(size), nn.LayerNorm(size)
        self.attend, self.project = nn.Linear(size, 3 * size), nn.Linear(size, size)
        self.up, self.down = nn.Linear(size, 4 * size), nn.Linear(4 * size, size)

    def forward(self, x):
        b, t, d = x.shape
        parts = self.attend(self.ln1(x)).split(d, dim=2)
        q, k, v = (part.view(b, t, self.heads, d // self.heads).transpose(1, 2) for part in parts)
        y = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.project(y.transpose(1, 2).reshape(b, t, d))
        return x + self.down(functional.gelu(self.up(self.ln2(x)), approximate="tanh"))


class VitBlock(nn.Module):
    def __init__(self, size: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.ln1, self.ln2 = nn.LayerNorm(size), nn.LayerNorm(size)
        self.q, self.k, self.v, self.project = (nn.Linear(size, size) for _ in range(4))
        self.mlp = nn.Sequential(nn.Linear(size, 4 * size), nn.GELU(), nn.Linear(4 * size, size))

    def forward(self, x):
        b, t, d = x.shape
        y = self.ln1(x)
        q, k, v = (f(y).view(b, t, self.heads, -1).transpose(1, 2) for f in (self.q, self.k, self.v))
        weights = (q @ k.transpose(-1, -2) * (d // self.heads) ** -0.5).softmax(-1)
        x = x + self.project((weights @ v).transpose(1, 2).reshape(b, t, d))
        return x + self.mlp(self.ln2(x))


class LlamaBlock(nn.Module):
    def __init__(self, size: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.ln1, self.ln2 = nn.RMSNorm(size, eps=1e-6), nn.RMSNorm(size, eps=1e-6)
        self.q, self.k, self.v, self.o = (nn.Linear(size, size, bias=False) for _ in range(4))
        self.gate, self.up = (nn.Linear(size, 3 * size, bias=False) for _ in range(2))
        self.down = nn.Linear(3 * size, size, bias=False)

    def forward(self, x, cos, sin):
        b, t, _ = x.shape
        y = self.ln1(x)
        q, k, v = (f(y).view(b, t, self.heads, -1).transpose(1, 2) for f in (self.q, self.k, self.v))

        def rotate(z):
            first, second = z.chunk(2, dim=-1)
            return z * cos + torch.cat((-second, first), dim=-1) * sin

        y = functional.scaled_dot_product_attention(rotate(q), rotate(k), v, is_causal=True)
        x = x + self.o(y.transpose(1, 2).reshape(b, t, -1))
        y = self.ln2(x)
        return x + self.down(functional.silu(self.gate(y)) * self.up(y))


BLOCKS = {"gpt2": Gpt2Block, "vit": VitBlock, "llama": LlamaBlock}


class Model(nn.Module):
    def __init__(self, kind: str, layers: int, size: int, *, region: bool) -> None:
        super().__init__()
        heads = max(2, size // 64)
        self.kind, self.head_size = kind, size // heads
        self.embed = nn.Linear(48, size) if kind == "vit" else nn.Embedding(256, size)
        block = BLOCKS[kind]
        if region:
            block = type(
                block.__name__, (block,), {"forward": torch.compiler.nested_compile_region(block.forward)}
            )
        self.blocks = nn.ModuleList(block(size, heads) for _ in range(layers))
        self.ln, self.head = nn.LayerNorm(size), nn.Linear(size, 256)

    def forward(self, inputs):
        x = self.embed(inputs)
        more = ()
        if self.kind == "llama":
            steps = torch.arange(x.shape[1], dtype=torch.float32)
            angles = torch.outer(steps, 10000 ** -(torch.arange(0, self.head_size, 2) / self.head_size))
            more = (torch.cat((angles, angles), -1).cos(), torch.cat((angles, angles), -1).sin())
        for block in self.blocks:
            x = block(x, *more)
        return self.head(self.ln(x))


def processor_seconds() -> float:
    """Return the processor time of this process and of the C compilers that it has started."""
    times = os.times()
    return times.user + times.system + times.children_user + times.children_system


def measure(kind: str, layers: int, mode: str, size: int) -> dict:
    """Measure one row, in this process."""
    import fxstack

    torch.manual_seed(0)
    model = Model(kind, layers, size, region=mode == "region")
    shape = (4, 64)
    inputs = torch.randn(*shape, 48) if kind == "vit" else torch.randint(256, shape)
    # One operator of each library starts before the clock.
    warm = nn.Linear(8, 8)
    fxstack.compile(warm)(torch.randn(2, 8)).sum().backward()
    compiled = fxstack.compile(model, fullgraph=True, options={"share_regions": mode != "unshared"})

    def step():
        model.zero_grad()
        loss = compiled(inputs).float().log_softmax(-1).square().mean()
        loss.backward()
        return loss

    start = processor_seconds()
    loss = step()
    first = processor_seconds() - start
    digest = hashlib.sha256(loss.detach().numpy().tobytes())
    for parameter in model.parameters():
        digest.update(parameter.grad.numpy().tobytes())
    times = []
    for _ in range(15):
        start = time.process_time()
        step()
        times.append(time.process_time() - start)
    stages = {stage: fxstack.compile_log(compiled).seconds(stage) for stage in STAGES}
    return {"first": first, "step": min(times) * 1e3, "digest": digest.hexdigest(), **stages}


def row(kind: str, layers: int, mode: str, size: int) -> dict:
    """Measure one row in a new process with empty caches."""
    with tempfile.TemporaryDirectory() as caches:
        env = {**os.environ, "FXSTACK_CACHE_DIR": caches, "FXSTACK_INDUCTOR_CACHE_DIR": caches}
        command = [sys.executable, __file__, "--row", json.dumps([kind, layers, mode, size])]
        done = subprocess.run(command, env=env, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(done.stderr[-3000:])
    return json.loads(done.stdout.splitlines()[-1])


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--models", default="gpt2,vit,llama")
    parser.add_argument("--layers", default="12,48,96")
    parser.add_argument("--modes", default="shared,region,unshared")
    parser.add_argument("--size", type=int, default=64)
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--dry", action="store_true", help="four layers of one model")
    parser.add_argument("--row", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.check and len(options.modes.split(",")) < 2:
        parser.error(
            "--check compares the results of at least two modes, for example --modes unshared,shared"
        )
    if options.dry:
        options.models, options.layers, options.modes = "gpt2", "4", "shared"
    if options.row:
        print(json.dumps(measure(*json.loads(options.row))))
        return
    print(
        f"| model | mode | layers | first step, s | {', s | '.join(STAGES)}, s | times the first row | step, ms |"
    )
    print("| --- " * (len(STAGES) + 6) + "|")
    digests: dict[tuple[str, int], set[str]] = {}
    for kind in options.models.split(","):
        for mode in options.modes.split(","):
            base = None
            for layers in map(int, options.layers.split(",")):
                found = row(kind, layers, mode, options.size)
                base = base or found["first"]
                digests.setdefault((kind, layers), set()).add(found["digest"])
                stages = " | ".join(f"{found[stage]:.2f}" for stage in STAGES)
                ratio = f"{found['first'] / base:.2f}"
                print(
                    f"| {kind} | {mode} | {layers} | {found['first']:.2f} | {stages} | {ratio} | {found['step']:.1f} |",
                    flush=True,
                )
    different = [key for key, found in digests.items() if len(found) > 1]
    if options.check and different:
        raise SystemExit(f"other results with and without shared regions: {different}")


if __name__ == "__main__":
    main()
