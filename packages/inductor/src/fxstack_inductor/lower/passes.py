"""The passes that lower an ATen graph to loops over the elements of tensors.

In the examples, ``example`` compiles a function and prints what the pass changed: the lines before (``-``) and after
(``+``) the pass.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final

from torch.fx import GraphModule
from torch.fx import Node as FxNode

from fxstack_inductor.lower.graph import lower_graph
from fxstack_inductor.lower.host.scalars import numbers_on_device
from fxstack_inductor.lower.nested.graphs import NestedGraphs
from fxstack_inductor.lower.nested.scans import scan_rules
from fxstack_inductor.lower.program import Program, show_program
from fxstack_inductor.lower.reductions.split import split_reductions as split_large
from fxstack_inductor.lower.rewrites.accumulate import accumulate_products as rewrite_sums
from fxstack_inductor.lower.rewrites.channels_last import channels_last
from fxstack_inductor.lower.rewrites.convolution_inputs import copy_images as copy_contiguous
from fxstack_inductor.lower.rewrites.embedding_sums import join_gradients as join_embeddings
from fxstack_inductor.lower.rewrites.point_products import point_products
from fxstack_inductor.lower.rewrites.shared_operands import share_operands as share_equal
from fxstack_inductor.lower.rules import RULES
from fxstack_inductor.lower.target import CPU_KERNELS, KernelTarget
from fxstack_inductor.options import InductorOptions
from fxstack_interchange.format.show import show_graph
from fxstack_interchange.passes import NothingToDo, Pass, run_passes


@dataclass(frozen=True, slots=True)
class Lowering:
    """A graph between two passes. ``target`` and ``chosen`` are the arguments of ``lower_graph``."""

    graph_module: GraphModule
    options: InductorOptions
    target: KernelTarget = CPU_KERNELS
    chosen: Mapping[str, Callable[..., Any]] = field(default_factory=dict)
    nested: NestedGraphs = field(default_factory=NestedGraphs)
    """The functions that operators of the compilation call."""
    prefix: str = ""
    """The begin of the names of constants, which differs between functions of one program."""
    lowered: Program | None = None
    """The result of ``lower_operators``; None before it."""

    @property
    def program(self) -> Program:
        """The lowered program, for passes after ``lower_operators``."""
        assert self.lowered is not None
        return self.lowered

    def has_rule(self, node: FxNode) -> bool:
        """Whether a rule lowers ``node`` to loops."""
        return node.name in self.chosen or node.target in RULES


def move_numbers(state: Lowering) -> Lowering | NothingToDo:
    """Move numbers in CPU tensors to the GPU of the operators that use them.

    >>> example("move_numbers", lambda x: x * torch.scalar_tensor(2.0))
    - scalar_tensor = aten.scalar_tensor(2.0, device=device(type='cpu'), pin_memory=False)
    - mul = aten.mul.Tensor(x_1, scalar_tensor)
    + full_default = aten.full([], 2.0, dtype=torch.float32, device=device(type='cuda', index=0))
    + mul = aten.mul.Tensor(x_1, full_default)
    """
    if not state.target.many_threads:
        return NothingToDo("the kernels are for the CPU")
    moved = numbers_on_device(state.graph_module)
    if moved is state.graph_module:
        return NothingToDo("no operator on a GPU uses a number on the CPU")
    return replace(state, graph_module=moved)


def accumulate_products(state: Lowering) -> Lowering | NothingToDo:
    """Add the matrix products of a sum into the same memory.

    >>> example("accumulate_products", lambda x: x @ x + x @ x)
    - mm_1 = aten.mm(arg0_1, arg0_1)
    - add = aten.add.Tensor(mm, mm_1)
    + add = aten.addmm(mm, arg0_1, arg0_1)
    """
    if state.target.many_threads:
        return NothingToDo("the kernels are for a GPU")
    rewritten = rewrite_sums(state.graph_module)
    if rewritten is state.graph_module:
        return NothingToDo("no sum has only matrix products as summands")
    return replace(state, graph_module=rewritten)


def join_gradients(state: Lowering) -> Lowering | NothingToDo:
    """Compute the sum of an embedding's gradients in one buffer.

    >>> example("join_gradients", embedded_twice)
    - embedding_dense_backward = aten.embedding_dense_backward(x_1, _to_copy, 8, -1, False)
    ...
    + cat_default_1 = aten.cat([view_default_2, view_default_3])
    + embedding_dense_backward_default = aten.embedding_dense_backward(cat_default, cat_default_1, 8, -1, False)
    + return embedding_dense_backward_default
    """
    if not state.target.many_threads or state.options.eager_rounding:
        return NothingToDo("the kernels are for the CPU, or round as eager does")
    joined = join_embeddings(state.graph_module)
    if joined is state.graph_module:
        return NothingToDo("no sum has two gradients of one embedding")
    return replace(state, graph_module=joined)


def share_operands(state: Lowering) -> Lowering | NothingToDo:
    """Let calls whose operands are equal read one tensor.

    >>> example("share_operands", lambda x: (torch.linalg.det(x + 1), torch.linalg.inv(x + 1)))
    - add_1 = aten.add.Tensor(arg0_1, 1)
    - linalg_inv_ex: (f32[4, 4], i32[]) = aten.linalg_inv_ex(add_1)
    + linalg_inv_ex: (f32[4, 4], i32[]) = aten.linalg_inv_ex(add)
    """
    shared = share_equal(state.graph_module, state.has_rule)
    if shared is state.graph_module:
        return NothingToDo("no two calls have equal operands")
    return replace(state, graph_module=shared)


def lay_out_images(state: Lowering) -> Lowering | NothingToDo:
    """Lay out the images of convolutions channels last, and convert what enters and leaves.

    >>> example("lay_out_images", lambda x, w: torch.conv2d(x.half(), w.half(), groups=4).sum(), *DEPTHWISE)
    - convolution = aten.convolution(_to_copy, _to_copy_1, None, [1, 1], [0, 0], [1, 1], False, [0, 0], 4)
    + _to_copy_channels_last = aten.clone(_to_copy, memory_format=torch.channels_last)
    + convolution = aten.convolution(_to_copy_channels_last, _to_copy_1, None, [1, 1], [0, 0], [1, 1], False, [0, 0], 4)
    """
    if not state.options.channels_last:
        return NothingToDo("the option channels_last is off, or the graph has gradients")
    changed = channels_last(state.graph_module, state.target.device)
    if changed is state.graph_module:
        return NothingToDo("no convolutions of images for which the layout pays, or too many copies")
    if state.target.many_threads:
        return replace(state, graph_module=changed)
    return replace(state, graph_module=changed, chosen={**point_products(changed), **state.chosen})


def copy_images(state: Lowering) -> Lowering | NothingToDo:
    """Copy the images of convolutions in kernels, where ATen would copy them, and those of pools with gaps in rows.

    >>> example("copy_images", lambda x, w: torch.conv2d(x.transpose(2, 3), w), *IMAGES[:2])
    - convolution = aten.convolution(transpose, arg1_1, None, [1, 1], [0, 0], [1, 1], False, [0, 0], 1)
    + clone_default = aten.clone(transpose, memory_format=torch.contiguous_format)
    + convolution = aten.convolution(clone_default, arg1_1, None, [1, 1], [0, 0], [1, 1], False, [0, 0], 1)
    """
    if state.target.many_threads:
        return NothingToDo("the kernels are for a GPU")
    copied = copy_contiguous(state.graph_module)
    if copied is state.graph_module:
        return NothingToDo(
            "no convolution reads images that ATen copies, and no pool images with gaps in rows"
        )
    return replace(state, graph_module=copied)


def lower_operators(state: Lowering) -> Lowering:
    """Rewrite each ATen operator as the expression of one element, or as a call of its ATen kernel.

    >>> example("lower_operators", lambda x: x.sum(1))
    - arg0_1: f32[4, 4],
    - sum_1 = aten.sum.dim_IntList(arg0_1, [1])
    - return sum_1
    + def program(arg0_1):
    + arg0_1: float32[4, 4]
    + sum_1__0 = sum over r0 in 4 of arg0_1[i0, r0]
    + return sum_1__0
    """
    program = lower_graph(
        state.graph_module,
        RULES,
        state.options,
        state.target,
        {**scan_rules(state.graph_module, RULES), **state.chosen},
        nested=state.nested,
        prefix=state.prefix,
    )
    return replace(state, lowered=program)


def split_reductions(state: Lowering) -> Lowering | NothingToDo:
    """Split reductions that would occupy too few processors of a GPU.

    >>> example("split_reductions", lambda x: x.expand(16384, 4, 4).sum())
    - sum_1__0 = sum over r0 in 16384, r1 in 4, r2 in 4 of x_1[r1, r2]
    + sum_1__0_parts = sum over r0 in 2048 of x_1[(((r0 // 4)) % 4), (r0 % 4)]
    + sum_1__0 = sum over r0 in 128 of sum_1__0_parts[r0]
    """
    if not state.target.many_threads:
        return NothingToDo("the kernels are for the CPU")
    steps = len(state.program.steps)
    split_large(state.program)
    return state if len(state.program.steps) > steps else NothingToDo("no reduction is large enough")


def text(state: Lowering) -> str:
    """Return the graph as text, for dumps between passes; once it is lowered, return the program."""
    return show_graph(state.graph_module.graph) if state.lowered is None else show_program(state.lowered)


LOWER: Final = (
    Pass("move_numbers", move_numbers),
    Pass("accumulate_products", accumulate_products),
    Pass("join_gradients", join_gradients),
    Pass("lay_out_images", lay_out_images),
    Pass("copy_images", copy_images),
    Pass("share_operands", share_operands),
    Pass("lower_operators", lower_operators),
    Pass("split_reductions", split_reductions),
)


def lower_by_passes(state: Lowering) -> Program:
    """Run the passes of ``LOWER`` and return the program; the targets call this for each graph."""
    return run_passes("lower", LOWER, state, text).program
