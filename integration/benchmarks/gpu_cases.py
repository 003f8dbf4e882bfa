"""What every transformer runs: memory-bound functions with the bytes that they must move, and products with their operations."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch.nn import functional as F  # noqa: N812
from torch.nn.attention.flex_attention import create_block_mask, flex_attention

if TYPE_CHECKING:
    from collections.abc import Callable

    from gpu_measure import Machine


@dataclass(frozen=True)
class Case:
    """``run(*inputs)``; ``traffic`` is the least number of bytes it can move, ``operations`` what its products come to.

    ``eager`` computes the same in eager torch where ``run`` itself would take too much memory there. ``around`` is what a
    program does with the compiled function: take its gradients, say.
    """

    name: str
    run: Callable[..., Any]
    inputs: tuple[Any, ...]
    traffic: int
    tolerance: float = 2e-2
    operations: int = 0
    eager: Callable[..., Any] | None = None
    around: Callable[[Callable[..., Any]], Callable[..., Any]] = lambda run: run

    @property
    def in_eager(self) -> Callable[..., Any]:
        return self.eager or self.run


def _bytes(*tensors: torch.Tensor) -> int:
    return sum(t.numel() * t.element_size() for t in tensors)


def rope(q: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
    low, high = q.chunk(2, -1)
    return q * cos + torch.cat([-high, low], -1) * sin


def adamw(p: torch.Tensor, g: torch.Tensor, m: torch.Tensor, v: torch.Tensor) -> tuple[torch.Tensor, ...]:
    m = m.lerp(g, 0.1)
    v = v * 0.999 + g * g * 0.001
    return p * (1 - 1e-5) - 1e-3 * (m / 0.1) / ((v / 0.001).sqrt() + 1e-8), m, v


def rms_norm(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    wide = x.float()
    return (wide * torch.rsqrt(wide.square().mean(-1, keepdim=True) + 1e-6)).to(x.dtype) * w


def memory_bound(machine: Machine) -> list[Case]:
    """The cases, at sizes that do not fit into a cache; those that were slower than torch.compile's come first."""
    rows, width = machine.pick((4, 16), (8192, 4096))
    tokens, vocabulary = machine.pick((4, 33), (4096, 50257))

    def randn(*shape: int, dtype: torch.dtype = torch.bfloat16) -> torch.Tensor:
        return torch.randn(*shape, device=machine.device).to(dtype)

    x, y, w = randn(rows, width), randn(rows, width), randn(width)
    logits, labels = randn(tokens, vocabulary), torch.randint(vocabulary, (tokens,)).to(x.device)
    heads = randn(2, machine.pick(2, 32), machine.pick(4, 4096), machine.pick(8, 128))
    angle = randn(*heads.shape[-2:])
    state = tuple(randn(rows, width, dtype=torch.float32).abs() for _ in range(4))
    wide = x.float()
    return [
        Case("sum columns", lambda a: a.sum(0), (wide,), _bytes(wide), 1e-3),
        Case("cross-entropy", F.cross_entropy, (logits, labels), _bytes(logits)),
        Case("sum rows", lambda a: a.sum(-1), (wide,), _bytes(wide), 1e-3),
        Case("sum all", lambda a: a.abs().sum(), (wide,), _bytes(wide), 1e-3),
        Case("argmax", lambda a: a.argmax(-1), (logits,), _bytes(logits)),
        Case("copy", lambda a: a.clone(), (x,), 2 * _bytes(x)),
        Case("add relu", lambda a, b: (a + b).relu(), (x, y), 3 * _bytes(x)),
        Case("gelu bias", lambda a, b: F.gelu(a + b), (x, w), 2 * _bytes(x)),
        Case("transpose add", lambda a, b: a.t() + b.t().contiguous(), (x, y), 3 * _bytes(x)),
        Case("softmax", lambda a: a.softmax(-1), (x,), 2 * _bytes(x)),
        Case("layer norm", lambda a, b: F.layer_norm(a, b.shape, b, b), (x, w), 2 * _bytes(x)),
        Case("rms norm", rms_norm, (x, w), 2 * _bytes(x)),
        Case("rope", rope, (heads, angle, angle), 2 * _bytes(heads), 5e-2),
        Case("adamw", adamw, state, 7 * _bytes(wide), 1e-5),
    ]


def swiglu(x: torch.Tensor, w: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    return F.silu(x @ w) * (x @ v)


def causal(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    return F.scaled_dot_product_attention(q, k, v, is_causal=True)


def flex_alibi(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    return flex_attention(q, k, v, lambda s, _b, h, m, n: s + (n - m) * torch.exp2(-(h + 1) / 4.0))


def flex_causal(machine: Machine, length: int) -> Callable[..., torch.Tensor]:
    """The same as ``causal``, with a mask of blocks."""
    mask = create_block_mask(lambda _b, _h, m, n: m >= n, None, None, length, length, device=machine.device)
    return lambda q, k, v: flex_attention(q, k, v, block_mask=mask)


def with_gradients(run: Callable[..., torch.Tensor]) -> Callable[..., tuple[torch.Tensor, ...]]:
    """``run``'s result, and the gradients of its inputs."""

    def trained(*inputs: torch.Tensor) -> tuple[torch.Tensor, ...]:
        own = [x.detach().requires_grad_() for x in inputs]
        out = run(*own)
        return out.detach(), *torch.autograd.grad(out, own, out.detach())

    return trained


def decoding(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    return flex_attention(q, k, v, enable_gqa=True)


def decoding_in_eager(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    return F.scaled_dot_product_attention(q, k, v, enable_gqa=True)


def attention(machine: Machine) -> list[Case]:
    """Flex attention, with torch's flash attention as what eager does."""

    def randn(*shape: int) -> torch.Tensor:
        return torch.randn(*shape, device=machine.device).to(torch.bfloat16) / shape[-1] ** 0.5

    heads = machine.pick((1, 2, 16, 16), (4, 32, 4096, 128))
    batch, count, length, width = heads
    shared = (batch, machine.pick(1, 8), length, width)
    whole = tuple(randn(*heads) for _ in range(3))
    masked = flex_causal(machine, length)
    # On CPU, where the dry run is, flex attention has no gradients.
    trained = machine.pick(causal, masked)
    one = (randn(batch, count, 1, width), randn(*shared), randn(*shared))
    few = machine.pick((1, 1, 4, 16), (2, 16, 1024, 64))
    work = _scores(heads)
    return [
        Case("causal attention", causal, whole, 0, 2e-2, work),
        Case("flex causal", masked, whole, 0, 2e-2, work, causal),
        Case("causal attention and gradients", causal, whole, 0, 4e-2, 7 * work // 2, around=with_gradients),
        Case("flex causal and gradients", trained, whole, 0, 4e-2, 7 * work // 2, causal, with_gradients),
        Case("flex decoding", decoding, one, 2 * _bytes(one[1]), 2e-2, 0, decoding_in_eager),
        Case("flex attention", flex_alibi, tuple(randn(*few) for _ in range(3)), 0, 2e-2, 2 * _scores(few)),
    ]


def products(machine: Machine) -> list[Case]:
    """Products with what is fused to them, in bfloat16."""

    def randn(*shape: int) -> torch.Tensor:
        return torch.randn(*shape, device=machine.device).to(torch.bfloat16) / shape[-1] ** 0.5

    def product(name: str, run: Callable[..., Any], sides: tuple[int, ...], weights: int) -> Case:
        m, n, k = sides
        inputs = (randn(m, k), *(randn(k, n) for _ in range(weights)))
        return Case(f"{name} {m}x{n}x{k}", run, inputs, 0, 4e-2, 2 * m * n * k * weights)

    small, large = machine.pick((16, 16, 16), (4096,) * 3), machine.pick((16, 32, 16), (8192,) * 3)
    flat = machine.pick((32, 16, 16), (8192, 4096, 512))
    return [
        product("mm", lambda x, w: x @ w, small, 1),
        product("mm", lambda x, w: x @ w, large, 1),
        product("mm gelu", lambda x, w: F.gelu(x @ w), small, 1),
        product("mm gelu", lambda x, w: F.gelu(x @ w), flat, 1),
        product("mm relu residual", lambda x, w: (x @ w).relu() + x, small, 1),
        product("swiglu", swiglu, small, 2),
    ]


def _scores(shape: tuple[int, ...]) -> int:
    """Operations of the two products of causal attention."""
    batch, heads, length, width = shape
    return 2 * batch * heads * length * length * width
