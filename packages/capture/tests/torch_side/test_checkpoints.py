"""Checkpoints in one graph: values and gradients are eager's, and nodes say what the program wants saved."""

from __future__ import annotations

import functools

import pytest
import torch
import torch.nn.functional as F
from torch.utils.checkpoint import CheckpointPolicy, checkpoint, create_selective_checkpoint_contexts

from fxstack_capture import Unsupported, capture, native, optimize

pytestmark = pytest.mark.skipif(not native.AVAILABLE, reason="needs the frame hook")

MM = torch.ops.aten.mm.default


def body(x):
    return torch.mm(x, x).sin().exp()


def from_set(saved, ctx, func, *args, **kwargs):
    return CheckpointPolicy.MUST_SAVE if func in saved else CheckpointPolicy.PREFER_RECOMPUTE


def every_second():
    count = {"mm": 0}

    def policy(ctx, func, *args, **kwargs):
        count["mm"] += func is MM
        return func is MM and count["mm"] % 2 == 1

    return create_selective_checkpoint_contexts(policy)


def by_list():
    return create_selective_checkpoint_contexts([MM])


def by_shape():
    wide = CheckpointPolicy.PREFER_SAVE, CheckpointPolicy.MUST_RECOMPUTE
    return create_selective_checkpoint_contexts(lambda ctx, op, x, *_: wide[x.shape[0] != 4])


def selected(context_fn, function=body):
    return lambda x: checkpoint(function, x, use_reentrant=False, context_fn=context_fn)


SAVE_MM = {"mm": "must_save", "sin": "prefer_recompute"}
TAGS = {
    "a list": (selected(by_list), SAVE_MM),
    "a partial of a partial": (
        selected(functools.partial(create_selective_checkpoint_contexts, functools.partial(from_set, {MM}))),
        SAVE_MM,
    ),
    "counting": (
        selected(every_second, lambda x: torch.mm(x, body(x)) + 1),
        {**SAVE_MM, "mm_1": "prefer_recompute"},
    ),
    "by shape": (
        selected(by_shape, lambda x: body(x)[:2].sin() + 1),
        {"mm": "prefer_save", "sin_1": "must_recompute"},
    ),
    "a layer": (
        selected(
            lambda: create_selective_checkpoint_contexts([torch.ops.aten.addmm.default]),
            lambda x: F.linear(x, x, x[0]).sin() + 1,
        ),
        {"linear": "must_save", "sin": "prefer_recompute"},
    ),
    "reentrant": (
        lambda x: checkpoint(body, x, use_reentrant=True),
        {"mm": "must_recompute", "sin": "must_recompute"},
    ),
    "without use_reentrant": (
        lambda x: checkpoint(lambda x: body(x) + 1, x),
        {"mm": "must_recompute", "exp": "must_recompute"},
    ),
    "without random numbers": (
        lambda x: checkpoint(body, x, use_reentrant=False, preserve_rng_state=False),
        {"mm": "prefer_recompute", "sin": "prefer_recompute"},
    ),
}


def gradient(fn):
    x = torch.linspace(-1, 1, 16).reshape(4, 4).requires_grad_()
    y = fn(x)
    y.sum().backward()
    return y, x.grad


@pytest.mark.parametrize("name", TAGS)
def test_policies_become_tags(name):
    fn, expected = TAGS[name]
    graphs = []
    compiled = optimize(lambda gm, _: (graphs.append(gm), gm)[1], fullgraph=True)(fn)
    for _ in range(2):
        torch.testing.assert_close(gradient(compiled), gradient(fn))
    assert len(graphs) == 1
    found = {node.name: node.meta.get("recompute") for node in graphs[0].graph.nodes}
    assert {name: found[name] for name in expected} == {
        n: CheckpointPolicy[tag.upper()] for n, tag in expected.items()
    }


def contexts_of_its_own():
    return torch.no_grad(), torch.no_grad()


LEFT_TO_EAGER = {
    "other contexts": selected(contexts_of_its_own),
    "fresh random numbers": lambda x: checkpoint(
        lambda y: F.dropout(y) * y, x, use_reentrant=False, preserve_rng_state=False
    ),
    "results that eager gives a gradient": lambda x: checkpoint(
        lambda y: (y.detach() * 2, y * 2), x, use_reentrant=True
    )[1],
    "a result that is an argument": lambda x: checkpoint(lambda y: y, x, use_reentrant=True) * 2,
}


@pytest.mark.parametrize("name", LEFT_TO_EAGER)
def test_what_eager_alone_can_do_is_left_to_it(name):
    fn = LEFT_TO_EAGER[name]
    with pytest.raises(Unsupported):
        optimize(fullgraph=True)(fn)(torch.ones(4, 4, requires_grad=True))
    compiled = optimize()(fn)
    results = []
    for run in (fn, compiled):
        torch.manual_seed(3)
        results.append(_attempt(run))
    torch.testing.assert_close(*results)


def _attempt(run):
    try:
        return gradient(run)
    except RuntimeError as error:
        return torch.tensor([ord(letter) for letter in str(error)[:60]])


def one_context():
    return create_selective_checkpoint_contexts(from_nothing)[:1]


def two_policies():
    first, _ = create_selective_checkpoint_contexts(lambda *_, **__: True)
    return first, create_selective_checkpoint_contexts(from_nothing)[1]


def from_nothing(ctx, func, *args, **kwargs):
    return False


@pytest.mark.parametrize("contexts", [tuple, one_context, two_policies])
def test_contexts_that_are_no_pair_end_the_graph(contexts):
    with pytest.raises(Unsupported, match="contexts of the program's own"):
        optimize(fullgraph=True)(selected(contexts))(torch.ones(4, 4, requires_grad=True))


@pytest.mark.parametrize("contexts", [tuple, one_context])
def test_contexts_that_are_no_pair_are_eagers_error(contexts):
    for run in (selected(contexts), optimize()(selected(contexts))):
        with pytest.raises(ValueError, match="not enough values to unpack"):
            run(torch.ones(4, 4, requires_grad=True))


def test_a_wrong_list_is_eagers_error():
    wrong = selected(lambda: create_selective_checkpoint_contexts([torch.ops.aten.mm]))
    with pytest.raises(ValueError, match="to be an OpOverload"):
        optimize()(wrong)(torch.ones(4, 4, requires_grad=True))


def test_a_graph_with_a_checkpoint_is_printed_as_torch_prints_it():
    def program(x):
        return checkpoint(lambda a: a.sin().cos(), x, use_reentrant=False) + 1

    graph = capture(program, torch.ones(3, requires_grad=True)).graph_module
    assert "MUST_RECOMPUTE" in graph.print_readable(print_output=False)
