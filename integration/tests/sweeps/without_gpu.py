"""Programs on two H100s that are not there: torch's CUDA build over stand-ins for the driver, its runtime, cuBLAS and cuDNN.

    python integration/tests/sweeps/without_gpu.py [--programs mlp ...] [--modes default reduce-overhead] [--host]

Everything that the host does runs for real: capture under ``cuda``, Triton's compiler, launches, allocations, streams,
autograd's threads, recordings of CUDA graphs. Kernels compute nothing, so values are not looked at. Fails if a program raises,
falls back, cannot be recorded, launches on another stream or device than it should, or if a library lays a result out
otherwise than was traced. With torch's CPU build there is nothing to run. ``--host`` measures what calls cost the host.
"""

import argparse
import os
import subprocess
import sys
import tempfile
import time
import traceback
import warnings
from pathlib import Path

import torch
from torch import nn

HERE = Path(__file__).parents[1] / "stand_in"
sys.path.insert(0, str(HERE))
import build  # noqa: E402

F = torch.nn.functional
MODES = ("default", "reduce-overhead", "max-autotune")
PROGRAMS = {}
HALF = torch.bfloat16


def program(device="cuda:0", **expected):
    def register(make):
        PROGRAMS[make.__name__] = (make, device, expected)
        return make

    return register


def step_of(model, *inputs):
    """A training step's function of a compiled model."""

    def step(compiled):
        model.zero_grad(set_to_none=True)
        compiled(*inputs).float().square().sum().backward()

    return model, step


class Block(nn.Module):
    def __init__(self, size=64, heads=4, dropout=0.0, causal=True):
        super().__init__()
        self.heads, self.dropout, self.causal = heads, dropout, causal
        self.norm, self.qkv = nn.LayerNorm(size), nn.Linear(size, 3 * size)
        self.up, self.down, self.drop = (
            nn.Linear(size, 4 * size),
            nn.Linear(4 * size, size),
            nn.Dropout(dropout),
        )

    def forward(self, x):
        q, k, v = self.qkv(self.norm(x)).unflatten(-1, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=self.causal, dropout_p=self.dropout)
        x = x + y.transpose(1, 2).flatten(2)
        return x + self.drop(self.down(F.gelu(self.up(x))))


@program()
def block_float32(device):
    return step_of(Block().to(device), torch.randn(2, 32, 64, device=device))


@program()
def block_half(device):
    return step_of(Block().to(device, HALF), torch.randn(2, 32, 64, device=device, dtype=HALF))


@program()
def block_dropout(device):
    model = Block(dropout=0.1, causal=False).to(device, HALF)
    return step_of(model, torch.randn(2, 32, 64, device=device, dtype=HALF))


@program(device="cuda:1")
def block_on_the_second_gpu(device):
    return step_of(Block(dropout=0.1).to(device, HALF), torch.randn(2, 32, 64, device=device, dtype=HALF))


def images(device, dtype, layout):
    model = nn.Sequential(
        nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(8, 8, 3, groups=8),
        nn.GroupNorm(2, 8), nn.SiLU(), nn.Upsample(scale_factor=2), nn.ConvTranspose2d(8, 4, 2, 2), nn.GELU(),
    )  # fmt: skip
    x = torch.randn(2, 3, 16, 16, device=device, dtype=dtype).to(memory_format=layout)
    return step_of(model.to(device, dtype, memory_format=layout), x.requires_grad_())


@program()
def images_float32(device):
    return images(device, torch.float32, torch.contiguous_format)


@program()
def images_half_channels_last(device):
    return images(device, HALF, torch.channels_last)


@program()
def embedding(device):
    model = nn.Sequential(nn.Embedding(50, 16), nn.Linear(16, 50)).to(device)
    return step_of(model, torch.randint(0, 50, (4, 8), device=device))


@program()
def optimizer(device):
    model = nn.Linear(16, 16).to(device)
    chosen = torch.optim.AdamW(model.parameters(), lr=1e-3)

    def step(compiled):
        model(torch.randn(4, 16, device=device)).sum().backward()
        compiled()
        chosen.param_groups[0]["lr"] *= 0.9

    return chosen.step, step


@program()
def numbers(device):
    x, count = torch.randn(64, 64, device=device), [0.0]

    def step(compiled):
        count[0] += 0.5
        compiled(x, count[0], torch.tensor(count[0]))

    return lambda x, a, b: (x * a + b).relu(), step


@program()
def sizes(device):
    size = iter(range(5, 100))

    def step(compiled):
        compiled(torch.randn(next(size), 16, device=device))

    return lambda x: (x.softmax(-1) @ x.t()).sum(0), step


@program(stream=True)
def stream_of_the_program(device):
    x, side = torch.randn(64, 64, device=device), torch.cuda.Stream(device)

    def step(compiled):
        with torch.cuda.stream(side):
            compiled(x)

    return lambda x: x.sin() + x @ x, step


@program(devices=2)
def two_gpus(device):
    x = torch.randn(64, 64, device=device)
    return lambda x: (x * 2).to("cuda:1").relu() + 1, lambda compiled: compiled(x)


def watch(seen):
    """Note results that come with other strides than were traced."""
    from fxstack_inductor.codegen.host import python_host as wrapper

    plain = wrapper.HELPERS["restride"]

    def noted(tensor, *rest):
        made = plain(tensor, *rest)
        if made is not tensor:
            seen.append(f"strides {tensor.stride()} of {tuple(tensor.shape)}, not {rest[1]}")
        return made

    wrapper.HELPERS = {**wrapper.HELPERS, "restride": noted}


def run(name, mode, records, seen):
    """Problems of a program, and the launches of its last step: ours, and all."""
    import fxstack

    make, device, expected = PROGRAMS[name]
    function, step = make(device)
    seen.clear()
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        compiled = fxstack.compile(function, mode=mode)
        for _ in range(5):
            records.clear()
            step(compiled)
    words = [str(w.message) for w in said]
    problems = [w for w in words if "recording it failed" in w or "fxstack: tracing" in w] + seen
    calls = [c for c in records.calls() if not c[0].startswith(("<record", "<wait"))]
    own = [c for c in calls if c[0].startswith("kernel_") or c[0] == "<graph launch>"]
    if not own:
        problems.append("nothing of ours was launched")
    if expected.get("devices", 1) == 1:
        problems += [f"{c[0]} on GPU {c[2]}" for c in own if c[2] != torch.device(device).index]
    problems += [f"{c[0]} on stream {c[1]:#x}" for c in own if bool(c[1]) != expected.get("stream", False)]
    return problems, len(own), len(calls)


def sweep(programs, modes):
    records, seen, failures = build.Records(), [], 0
    watch(seen)
    print("| program | mode | launches of ours | all launches and copies | problems |\n|---|---|---|---|---|")
    start = time.time()
    for name in programs:
        for mode in modes:
            try:
                problems, own, count = run(name, mode, records, seen)
            except Exception:
                problems, own, count = [traceback.format_exc(limit=-3).replace("\n", " ")], 0, 0
            failures += bool(problems)
            print(f"| {name} | {mode} | {own} | {count} | {'; '.join(problems)[:400]} |", flush=True)
    versions = f"torch {torch.__version__}, {torch.cuda.get_device_name()}"
    print(
        f"\n{len(programs) * len(modes)} runs, {failures} with problems, {time.time() - start:.0f} s, {versions}"
    )
    return failures


def micros(run, rounds=300, tries=7):
    """The least of several means."""
    found = []
    for _ in range(tries):
        start = time.perf_counter()
        for _ in range(rounds):
            run()
        found.append((time.perf_counter() - start) / rounds * 1e6)
    return min(found)


def host():
    """Host time over devices that take none: of a call with a kernel, of each further kernel, of a product and a kernel."""
    import fxstack

    def sums(count):
        return lambda *tensors: tuple(t.sum(-1) for t in tensors[:count])

    def products(a, b):
        for _ in range(16):
            a = (a @ b).relu()
        return a

    tensors = [torch.randn(k + 2, 7, device="cuda") for k in range(16)]
    a, b = torch.randn(8, 8, device="cuda"), torch.randn(8, 8, device="cuda")
    print(
        "| system | call, one kernel | each further kernel and its result | product and relu |\n|---|---|---|---|"
    )
    systems = {"eager": lambda f: f, "torch.compile": torch.compile, "fxstack": fxstack.compile}
    for name, compiler in systems.items():
        times = []
        for run, inputs in ((sums(1), tensors), (sums(16), tensors), (products, (a, b))):
            compiled = compiler(run)
            for _ in range(3):
                compiled(*inputs)
            times.append(micros(lambda c=compiled, i=inputs: c(*i)))
        one, many, both = times
        print(f"| {name} | {one:.1f} us | {(many - one) / 15:.2f} us | {both / 16:.2f} us |")


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--programs", nargs="*", default=list(PROGRAMS))
    parser.add_argument("--modes", nargs="*", default=list(MODES))
    parser.add_argument("--host", action="store_true")
    arguments = parser.parse_args()
    if arguments.host and "libcudart" in os.environ.get("LD_PRELOAD", ""):
        with torch.no_grad():
            host()
        return 0
    if "libcudart" in os.environ.get("LD_PRELOAD", ""):
        return 1 if sweep(arguments.programs, arguments.modes) else 0
    with tempfile.TemporaryDirectory() as name:
        try:
            library = build.build(Path(name))
        except RuntimeError as reason:
            print(f"not run: {reason}")
            return 0
        places = {"LD_LIBRARY_PATH": name, "TRITON_LIBCUDA_PATH": name}
        # Kernels compute nothing, so numbers of dropout cannot be compared.
        environment = {"FXSTACK_DROPOUT": "generated", **os.environ, **places, "LD_PRELOAD": str(library)}
        return subprocess.run([sys.executable, *sys.argv], env=environment, check=False).returncode


if __name__ == "__main__":
    if sys.argv[1:] == ["--dry"]:  # seconds of it, for the tests
        sys.argv[1:] = ["--programs", "embedding", "--modes", "default"]
    sys.exit(main())
