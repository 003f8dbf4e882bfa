"""Calls whose results depend on arithmetic with sizes: scale factors, windows, paddings, steps, parts.

``CALLS`` names functions of one tensor; ``difference(name)`` compiles one with symbolic sizes, runs it on several sizes and
compares values, strides and exceptions with eager.
"""

from __future__ import annotations

import itertools
import warnings
from typing import TYPE_CHECKING, Any

import torch
import torch.nn.functional as F  # noqa: N812 - the customary name

import fxstack

if TYPE_CHECKING:
    from collections.abc import Iterator

SIZES = (7, 5, 12, 9, 2)
OPTIONS = {"optimization": 0, "use_cache": False}


def image(n: int) -> torch.Tensor:
    return torch.randn(2, 3, n, n + 1)


def signal(n: int) -> torch.Tensor:
    return torch.randn(2, 3, n)


def volume(n: int) -> torch.Tensor:
    return torch.randn(1, 2, n, n + 1, n + 2)


def matrix(n: int) -> torch.Tensor:
    return torch.randn(n, 4)


def interpolations() -> Iterator[tuple[str, Any, Any]]:
    shapes = {"nearest": (signal, image, volume), "nearest-exact": (signal, image, volume)}
    shapes |= {"area": (signal, image, volume), "linear": (signal,), "bilinear": (image,)}
    shapes |= {"bicubic": (image,), "trilinear": (volume,)}
    for mode, makes in shapes.items():
        corners = (None, True, False) if mode in ("linear", "bilinear", "bicubic", "trilinear") else (None,)
        for make, align in itertools.product(makes, corners):
            for factor, again in itertools.product((1.3, 0.7, 2, 2.5), (None, True, False)):
                more = {"scale_factor": factor, "recompute_scale_factor": again, "align_corners": align}
                yield f"{mode} {make.__name__} {more}", make, interpolation(mode, more)
            more = {"size": 8, "align_corners": align}
            yield f"{mode} {make.__name__} {more}", make, interpolation(mode, more)
    for mode, factor in itertools.product(("bilinear", "bicubic"), (0.4, 0.7, 1.6)):
        more = {"scale_factor": factor, "antialias": True}
        yield f"{mode} {more}", image, interpolation(mode, more)
    yield "nearest of two factors", image, interpolation("nearest", {"scale_factor": (1.3, 1.5)})
    twice = {"scale_factor": (0.6, 1.9), "align_corners": False}
    yield "bilinear of two factors", image, interpolation("bilinear", twice)


def interpolation(mode: str, more: dict[str, Any]) -> Any:
    return lambda x: F.interpolate(x, mode=mode, **more)


def poolings() -> Iterator[tuple[str, Any, Any]]:
    for window, step, pad, ceil in itertools.product((2, 3), (1, 2, 3), (0, 1), (False, True)):
        name = f"{window} {step} {pad} {ceil}"
        for apart in (1, 2):
            yield f"max_pool2d {name} {apart}", image, max_pooling(window, step, pad, apart, ceil)
        for all_ in (False, True):
            yield f"avg_pool2d {name} {all_}", image, avg_pooling(window, step, pad, ceil, all_)
    for size in (1, 3, (2, 5), (None, 4)):
        yield f"adaptive_avg {size}", image, lambda x, n=size: F.adaptive_avg_pool2d(x, n)
        yield f"adaptive_max {size}", image, lambda x, n=size: F.adaptive_max_pool2d(x, n)
    yield "adaptive half", image, lambda x: F.adaptive_avg_pool2d(x, x.shape[-1] // 2)
    yield "lp_pool", image, lambda x: F.lp_pool2d(x, 2, 3, ceil_mode=True)
    yield "unpool", image, lambda x: F.max_unpool2d(*F.max_pool2d(x, 2, return_indices=True), 2)


def max_pooling(window: int, step: int, pad: int, apart: int, ceil: bool) -> Any:
    return lambda x: F.max_pool2d(x, window, step, pad, apart, ceil_mode=ceil)


def avg_pooling(window: int, step: int, pad: int, ceil: bool, all_: bool) -> Any:
    return lambda x: F.avg_pool2d(x, window, step, pad, ceil, all_)


def windows() -> Iterator[tuple[str, Any, Any]]:
    weight, back = torch.randn(4, 3, 3, 3), torch.randn(3, 4, 3, 3)
    for step, pad, apart in itertools.product((1, 2, 3), (0, 2), (1, 2)):
        place = {"stride": step, "padding": pad, "dilation": apart}
        yield f"conv2d {place}", image, lambda x, p=place: F.conv2d(x, weight, **p)
        yield f"unfold {place}", image, lambda x, p=place: F.unfold(x, 3, **p)
        yield f"transposed {place}", image, lambda x, p=place: F.conv_transpose2d(x, back, **p)
    yield "same", image, lambda x: F.conv2d(x, weight, padding="same")
    yield "fold", image, lambda x: F.fold(F.unfold(x, 2), x.shape[2:], 2)
    for size, step in ((2, 1), (3, 2), (2, 3)):
        yield f"Tensor.unfold {size} {step}", signal, lambda x, n=size, s=step: x.unfold(-1, n, s)
    for mode, pads in itertools.product(
        ("constant", "reflect", "replicate", "circular"), ((1, 2), (-1, 1), (1, 0, 2, 1), (3, 3, 3, 3))
    ):
        yield f"pad {mode} {pads}", image, lambda x, m=mode, p=pads: F.pad(x, p, m)


def grids() -> Iterator[tuple[str, Any, Any]]:
    turn = torch.tensor([[[0.8, -0.3, 0.1], [0.2, 0.9, 0.0]]] * 2)
    for align in (True, False):
        yield f"affine_grid {align}", image, lambda x, a=align: F.affine_grid(turn, x.shape, a)
        for mode, pad in itertools.product(
            ("bilinear", "nearest", "bicubic"), ("zeros", "border", "reflection")
        ):
            more = {"mode": mode, "padding_mode": pad, "align_corners": align}
            yield (
                f"grid_sample {more}",
                image,
                lambda x, m=more: F.grid_sample(x, F.affine_grid(turn, x.shape, m["align_corners"]), **m),
            )


def steps() -> Iterator[tuple[str, Any, Any]]:
    yield "linspace", signal, lambda x: torch.linspace(0, 1, x.shape[-1])
    yield "linspace to a size", signal, lambda x: torch.linspace(-1, x.shape[-1], 7)
    yield "logspace", signal, lambda x: torch.logspace(0, 1, x.shape[-1])
    for start, step in ((0, 0.1), (0.5, 0.3), (0, 3), (-2, 1.7)):
        yield (f"arange {start} {step}", signal, lambda x, a=start, s=step: torch.arange(a, x.shape[-1], s))
    yield "arange down", signal, lambda x: torch.arange(x.shape[-1], -1, -2)
    yield "arange of a quotient", signal, lambda x: torch.arange(0, x.shape[-1] / 3, 0.5)
    yield ("windows", signal, lambda x: (torch.hann_window(x.shape[-1]), torch.hamming_window(x.shape[-1])))
    yield "tril", signal, lambda x: x[0, 0].expand(x.shape[-1], -1).tril(x.shape[-1] // 2 - 3)
    yield "eye", signal, lambda x: torch.eye(x.shape[-1], x.shape[-1] - 1)
    yield "fftfreq", signal, lambda x: torch.fft.fftfreq(x.shape[-1], 0.3)
    yield "mean", signal, lambda x: (x.mean(-1), x.var(-1), x.std(-1, correction=2))
    yield "quantile", signal, lambda x: x.quantile(0.3, -1)
    yield "scaled", signal, lambda x: x * (x.shape[-1] ** -0.5) + x.shape[-1] // 3 / x.shape[-1]


def parts() -> Iterator[tuple[str, Any, Any]]:
    for n in (2, 3, 5):
        yield f"split {n}", signal, lambda x, n=n: x.split(n, -1)
        yield f"chunk {n}", signal, lambda x, n=n: x.chunk(n, -1)
        yield f"tensor_split {n}", signal, lambda x, n=n: x.tensor_split(n, -1)
        yield (f"roll {n}", signal, lambda x, n=n: (x.roll(n, -1), x.roll(-n), x.roll((n, 1), (-1, 0))))
        yield f"narrow {n}", signal, lambda x, n=n: x.narrow(-1, x.shape[-1] - n, n)
        yield (f"step {n}", signal, lambda x, n=n: (x[..., ::n], x[..., 1::n], x[..., -n:], x[..., :-n]))
        yield f"repeat_interleave {n}", signal, lambda x, n=n: x.repeat_interleave(n, -1)
        yield (
            f"multiple of {n}",
            signal,
            lambda x, n=n: x[..., : x.shape[-1] // n * n].unflatten(-1, (-1, n)),
        )
    yield "tensor_split at", signal, lambda x: x.tensor_split((1, x.shape[-1] // 2, 100), -1)
    yield (
        "split in halves",
        signal,
        lambda x: x.split([x.shape[-1] // 2, x.shape[-1] - x.shape[-1] // 2], -1),
    )
    yield "half", signal, lambda x: x[..., x.shape[-1] // 2 :] * 2
    yield "pixel_shuffle", image, lambda x: F.pixel_shuffle(x[:, :1].expand(-1, 4, -1, -1), 2)
    yield (
        "pixel_unshuffle",
        image,
        lambda x: F.pixel_unshuffle(x[..., : x.shape[-1] // 2 * 2][:, :, : x.shape[-2] // 2 * 2], 2),
    )
    yield "diagonals", matrix, lambda x: (x.diagonal(1), x.diagonal(-1), torch.diag_embed(x, 1))
    yield "cartesian", signal, lambda x: torch.cartesian_prod(x[0, 0], x[0, 1])
    yield "circular", matrix, lambda x: torch.cat([x[-1:], x, x[:1]])
    yield "tile", signal, lambda x: (x.tile(2, 3), x.repeat(x.shape[-1] % 3, 1, 1))
    yield "attention", signal, lambda x: F.scaled_dot_product_attention(x, x, x, is_causal=True)
    yield "group_norm", image, lambda x: F.group_norm(x, 3)
    yield "local_response_norm", image, lambda x: F.local_response_norm(x, 2)
    yield "layer_norm", signal, lambda x: F.layer_norm(x, x.shape[-1:])


FAMILIES = (interpolations, poolings, windows, grids, steps, parts)
CALLS = {name: (make, function) for family in FAMILIES for name, make, function in family()}


def outcome(function: Any, x: torch.Tensor) -> Any:
    try:
        found = function(x.clone())
    except Exception as error:
        return type(error).__name__, str(error)
    return list(found) if isinstance(found, (tuple, list)) else [found]


def strides(x: torch.Tensor) -> list[int]:
    return [s for n, s in zip(x.shape, x.stride(), strict=True) if n > 1] if x.numel() else []


def unequal(got: Any, want: Any) -> str | None:
    if isinstance(got, tuple) or isinstance(want, tuple):
        return None if got == want else f"{str(got)[:150]}, eager: {str(want)[:150]}"
    if len(got) != len(want):
        return f"{len(got)} results, eager: {len(want)}"
    for a, b in zip(got, want, strict=True):
        try:
            torch.testing.assert_close(a, b, rtol=2e-5, atol=2e-5, equal_nan=True)
        except AssertionError as error:
            return str(error).replace("\n", " ")[:200]
        if strides(a) != strides(b):
            return f"strides {a.stride()}, eager: {b.stride()}"
    return None


def difference(name: str) -> str | None:
    """How one graph for all sizes differs from eager, if it does."""
    make, function = CALLS[name]
    fxstack.reset()
    compiled = fxstack.compile(lambda x: function(x), dynamic=True, options=OPTIONS)
    for n in SIZES:
        torch.manual_seed(0)
        x = make(n)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            found = unequal(outcome(compiled, x), outcome(function, x))
        if found is not None:
            return f"size {n}: {found}"
    return None
