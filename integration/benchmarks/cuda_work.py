"""What a recorded launch has to do: bytes, operations, programs. ``Works(folder)`` gives the work of launches of ``cuda_record``.

The traffic of a Triton kernel comes from its text (``cuda_bytes``). That of a library's product, convolution or attention comes
from the shapes of its operator. Other kernels of libraries read their arguments, and write as much as the largest argument.
"""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import cuda_bytes
import cuda_ttir

if TYPE_CHECKING:
    from collections.abc import Callable

KINDS = ("pointwise", "reduction", "product", "library", "copy", "memset")
_BYTES = {
    "float": 4,
    "double": 8,
    "long int": 8,
    "int": 4,
    "bool": 1,
    "c10::BFloat16": 2,
    "c10::Half": 2,
    "signed char": 1,
    "unsigned char": 1,
}
MOST = 512.0
"""Bytes that a thread of a library's kernel moves, at most: the small kernels around a sort do not read all that it sorts."""
Shape = list[int]


@dataclass(frozen=True)
class Work:
    """``own``: the compiler made the kernel. ``tiles``: what of a product is computed in parallel, in tiles of 128x128."""

    kind: str
    name: str
    own: bool
    moved: float
    touched: float
    operations: float = 0.0
    tiles: float = 0.0
    programs: int = 1
    threads: int = 1
    width: float = 16.0
    """Bytes of an access: the mean over the instructions, weighted by their bytes."""
    attention: bool = False
    half: bool = True


class Works:
    """Kernels are read once, and each is computed once for equal grids, integers and pattern of equal addresses."""

    def __init__(self, folder: Path) -> None:
        self._folder, self._kept = folder / "kernels", folder / "traffic.json"
        self._known: dict[str, list[float]] = (
            json.loads(self._kept.read_text()) if self._kept.exists() else {}
        )
        self._kernel = cache(lambda key: cuda_ttir.read((self._folder / f"{key}.ttir").read_text()))

    def save(self) -> None:
        self._kept.write_text(json.dumps(self._known))

    def of(self, launch: dict[str, Any]) -> Work:
        if "kernel" in launch:
            return self._triton(launch)
        if launch["name"].startswith("<"):
            kind, times = ("memset", 1) if launch["name"] == "<set>" else ("copy", 2)
            moved = float(launch["bytes"] * times)
            return Work(
                kind, launch["name"], False, moved, moved, programs=1 + int(moved) // 8192, threads=256
            )
        return _library(launch)

    def _triton(self, launch: dict[str, Any]) -> Work:
        kernel = self._kernel(launch["kernel"])
        read, written, touched, operations = self._traffic(kernel, launch)
        widths = json.loads((self._folder / f"{launch['kernel']}.json").read_text())["widths"]
        total = sum(int(w) * n for w, n in widths.items())
        width = sum(int(w) ** 2 * n for w, n in widths.items()) / total if total else 16.0
        programs = math.prod(launch["grid"])
        work = Work(
            kernel.kind,
            launch["name"],
            True,
            read + written,
            touched,
            programs=programs,
            threads=launch["threads"],
            width=width,
        )
        if kernel.kind != "product":
            return work
        return Work(**{**work.__dict__, "operations": operations, "tiles": programs})

    def _traffic(self, kernel: cuda_ttir.Kernel, launch: dict[str, Any]) -> list[float]:
        parameters = launch["parameters"]
        known = [
            parameters.index(p) if kind.pointer else p
            for (_, kind), p in zip(kernel.arguments, parameters, strict=False)
        ]
        key = f"{launch['kernel']} {launch['grid']} {known}"
        if key not in self._known:
            found = cuda_bytes.traffic(kernel, launch["grid"], parameters)
            self._known[key] = [found.read, found.written, found.touched, found.operations]
        return self._known[key]


def _library(launch: dict[str, Any]) -> Work:
    op = launch["op"] or {"name": "", "shapes": [], "dtypes": [], "values": []}
    name, shapes = op["name"], op["shapes"]
    sizes = [_BYTES.get(d, 0) for d in op["dtypes"]]
    half = 2 in sizes
    rule = _PRODUCTS.get(name)
    if rule is not None and not launch["name"].startswith("_ZN2at"):
        found = rule(op)
        if found is not None:
            operations, tiles, elements = found
            moved = float(elements * (2 if half else 4))
            attention = "attention" in name
            return Work(
                "product", name, False, moved, moved, operations, tiles, attention=attention, half=half
            )
    each = [math.prod(s) * b for s, b in zip(shapes, sizes, strict=False) if b]
    moved = float(sum(each) + max(each, default=0))
    programs = math.prod(launch["grid"])
    if "TensorList" in op["dtypes"]:
        moved += programs * launch["threads"] * 8.0
    moved = min(moved, programs * launch["threads"] * MOST)
    kind = "copy" if name == "copy_" else "library"
    return Work(
        kind, name or launch["name"], False, moved, moved, programs=programs, threads=launch["threads"]
    )


Product = tuple[float, float, float]
"""Operations, tiles, and elements that are read and written."""


def _matrices(batch: int, m: int, k: int, n: int) -> Product:
    tiles = batch * math.ceil(m / 128) * math.ceil(n / 128)
    return 2.0 * batch * m * k * n, tiles, float(batch * (m * k + k * n + m * n))


def _mm(at: int) -> Callable[[dict[str, Any]], Product]:
    def rule(op: dict[str, Any]) -> Product:
        a, b = op["shapes"][at : at + 2]
        return _matrices(math.prod(a[:-2]), a[-2], a[-1], b[-1])

    return rule


def _convolved(out: Shape, weight: Shape, elements: int) -> Product:
    """``weight`` is outer, inner (of a group), and the window."""
    per = math.prod(weight[1:])
    points = math.prod(out) // out[1]
    tiles = math.ceil(points / 128) * math.ceil(out[1] / 128)
    return 2.0 * math.prod(out) * per, tiles, float(elements)


def _convolution(op: dict[str, Any]) -> Product | None:
    image, weight = op["shapes"][:2]
    padding, stride, dilation = op["values"][2:5]
    if not isinstance(padding, list):
        return None
    sides = [
        (n + 2 * p - d * (w - 1) - 1) // s + 1
        for n, p, s, d, w in zip(image[2:], padding, stride, dilation, weight[2:], strict=True)
    ]
    out = [image[0], weight[0], *sides]
    return _convolved(out, weight, math.prod(out) + math.prod(image) + math.prod(weight))


def _convolution_backward(op: dict[str, Any]) -> Product:
    """One of the two convolutions of the gradients; both have as many operations as the forward."""
    out, image, weight = op["shapes"][:3]
    return _convolved(out, weight, math.prod(out) + math.prod(image) + math.prod(weight))


def _attention(heads: int, first: int, times: float, causal: int) -> Callable[[dict[str, Any]], Product]:
    """``heads`` is the dimension of the heads, ``first`` the argument that is the query, ``causal`` the flag's argument."""

    def rule(op: dict[str, Any]) -> Product:
        q, k, v = op["shapes"][first : first + 3]
        rows = 3 - heads
        share = 0.5 if len(op["values"]) > causal and op["values"][causal] else 1.0
        pairs = q[0] * q[heads] * q[rows] * k[rows]
        tiles = q[0] * q[heads] * math.ceil(q[rows] / 128)
        elements = sum(math.prod(s) for s in (q, k, v, q)) * (1 if times == 1 else 2)
        return times * share * 2.0 * pairs * (q[3] + v[3]), tiles, float(elements)

    return rule


_PRODUCTS: dict[str, Callable[[dict[str, Any]], Product | None]] = {
    "mm": _mm(0),
    "bmm": _mm(0),
    "addmm": _mm(1),
    "baddbmm": _mm(1),
    "cudnn_convolution": _convolution,
    "convolution_backward": _convolution_backward,
    "_cudnn_attention_forward": _attention(1, 0, 1.0, 10),
    "_flash_attention_forward": _attention(2, 0, 1.0, 8),
    "_efficient_attention_forward": _attention(2, 0, 1.0, 9),
    "_cudnn_attention_backward": _attention(1, 1, 2.5, 12),
    "_flash_attention_backward": _attention(2, 1, 2.5, 11),
    "_efficient_attention_backward": _attention(2, 1, 2.5, 13),
}
