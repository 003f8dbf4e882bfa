"""Eager against ahead-of-time: values, gradients, strides, aliasing, version counters, errors."""

import torch
from helpers import run_graph, save_everything
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.symbolic_shapes import DimDynamic, ShapeEnv, StatelessSymbolicContext
from torch.utils import _pytree as pytree

from fxstack_functionalize import AotOptions, UnsupportedGraphError, aot


def as_graph(fn, count):
    """A captured graph of one node that calls ``fn``."""
    graph = torch.fx.Graph()
    inputs = [graph.placeholder(f"x{i}") for i in range(count)]
    graph.output(graph.call_function(fn, tuple(inputs)))
    return torch.fx.GraphModule(torch.nn.Module(), graph)


def compiled(fn, inputs, **options):
    return aot(
        as_graph(fn, len(inputs)),
        inputs,
        fw_compiler=options.pop("compiler", run_graph),
        partitioner=options.pop("partitioner", save_everything),
        options=AotOptions(verify=True, **options),
    )


def tensors(value):
    return [leaf for leaf in pytree.tree_leaves(value) if isinstance(leaf, torch.Tensor)]


def memory_of(tensor):
    """What tensors that share memory have in common."""
    return tensor.untyped_storage()._cdata if tensor.layout is torch.strided else id(tensor)


def describe(inputs, outputs):
    """Everything observable without a further operation."""
    everything = tensors(inputs) + tensors(outputs)
    storages = {}
    return [
        {
            "value": t.detach().clone(),
            "stride": t.stride() if t.layout is torch.strided else None,
            "dtype": t.dtype,
            "requires_grad": t.requires_grad,
            "is_leaf": t.is_leaf,
            "view": t._is_view(),
            "same as": next(i for i, u in enumerate(everything) if u is t),
            "storage": storages.setdefault(memory_of(t), len(storages)),
            "base": next((i for i, u in enumerate(everything) if u is t._base), None),
            "conj": (t.is_conj(), t.is_neg()),
        }
        for t in everything
    ]


def versions(inputs):
    return [t._version for t in tensors(inputs)]


def assert_same(ours, eager, what, tol=0.0):
    assert len(ours) == len(eager), what
    for number, (a, b) in enumerate(zip(ours, eager)):
        for key in b:
            if key == "value":
                torch.testing.assert_close(
                    a[key], b[key], rtol=tol, atol=tol, equal_nan=True, msg=lambda m: f"{what}[{number}]: {m}"
                )
            else:
                assert a[key] == b[key], f"{what}[{number}].{key}: ours {a[key]}, eager {b[key]}"


def gradients(inputs, outputs):
    torch.manual_seed(7)
    roots = [t for t in tensors(outputs) if t.requires_grad and t.grad_fn is not None]
    roots += [t for t in tensors(inputs) if t.requires_grad and t.grad_fn is not None]
    roots = list({id(t): t for t in roots}.values())
    leaves = []
    stack = [t.grad_fn for t in roots]
    seen = set()
    while stack:
        node = stack.pop()
        if node is None or node in seen:
            continue
        seen.add(node)
        stack += [n for n, _ in node.next_functions]
        if hasattr(node, "variable"):
            leaves.append(node.variable)
    if roots:
        torch.autograd.backward(roots, [torch.randn_like(t) for t in roots])
    return [t.grad for t in tensors(inputs) if t.is_leaf]


def roots_of(inputs):
    """Leaf tensors that the inputs were made from, where a maker keeps them in ``.root``."""
    return [t.root for t in inputs if hasattr(t, "root")]


def sample_program(op, sample):
    """Return a function of the tensors of an operator's sample, and what makes fresh ones.

    Its results are those that have a gradient: of eigenvectors the sizes, of sparse tensors the dense ones.
    """
    leaves, spec = pytree.tree_flatten(((sample.input, *sample.args), sample.kwargs))
    places = [i for i, leaf in enumerate(leaves) if isinstance(leaf, torch.Tensor)]
    kept = [leaves[i].detach().clone() for i in places]
    grads = [leaves[i].requires_grad for i in places]

    def make():
        return tuple(t.clone().requires_grad_(g) for t, g in zip(kept, grads))

    def program(*given):
        filled = list(leaves)
        for place, tensor in zip(places, given):
            filled[place] = tensor
        args, kwargs = pytree.tree_unflatten(filled, spec)
        return sample.output_process_fn_grad(op.op(*args, **kwargs))

    return program, make


def dynamic(inputs):
    """Fake examples of the inputs with a symbol for each of their sizes."""
    mode = FakeTensorMode(shape_env=ShapeEnv(), allow_non_fake_inputs=True)
    made = []
    for t in inputs:
        context = StatelessSymbolicContext([DimDynamic.DYNAMIC] * t.dim())
        made.append(mode.from_tensor(t, symbolic_context=context))
    return made


def check(fn, make, *, tol=0.0, poke=True, calls=2, examples=list, **options):
    """Compare ``fn`` eager with ahead-of-time on the inputs that ``make()`` gives, again and again."""
    example = examples(make())
    function = compiled(fn, example, **options)
    for call in range(calls):
        results = []
        for run in (function, fn):
            torch.manual_seed(call)
            inputs = make()
            before = versions(inputs)
            outputs = run(*inputs)
            seen = describe(inputs, outputs)
            bumps = [b - a for a, b in zip(before, versions(inputs))]
            rng = torch.get_rng_state()
            grads = gradients(inputs, outputs)
            grads += [t.grad for t in roots_of(inputs)]
            poked = poke_all(inputs, outputs) if poke else []
            results.append((seen, bumps, grads, poked, pytree.tree_structure(outputs), rng))
        ours, eager = results
        assert_same(ours[0], eager[0], "tensor", tol)
        assert ours[1] == eager[1], f"version counters: ours {ours[1]}, eager {eager[1]}"
        for number, (a, b) in enumerate(zip(ours[2], eager[2], strict=True)):
            assert (a is None) == (b is None), f"gradient {number}: ours {a}, eager {b}"
            if a is not None:
                torch.testing.assert_close(
                    a, b, rtol=tol, atol=tol, equal_nan=True, msg=lambda m: f"gradient {number}: {m}"
                )
        assert_same(ours[3], eager[3], "after an in-place change", tol)
        assert ours[4] == eager[4]
        assert torch.equal(ours[5], eager[5]), "random state"
    return function


def poke_all(inputs, outputs):
    """Change each output in place in turn and record how that shows everywhere."""
    seen = []
    for number, tensor in enumerate(tensors(outputs)):
        with torch.no_grad():
            try:
                tensor.add_(1) if tensor.dtype != torch.bool else tensor.logical_not_()
            except RuntimeError as error:
                seen.append({"error": type(error)})
                continue
        seen += [{"value": t.detach().clone()} for t in tensors(inputs) + tensors(outputs)]
    return seen


def refuses(fn, make, text):
    import pytest

    with pytest.raises(UnsupportedGraphError, match=text):
        compiled(fn, make())
