"""Selective checkpointing beside eager: what policies are asked and answer, and what the graph keeps of it."""

import functools
from collections import defaultdict

import pytest
import torch
from beside_eager import Programs
from torch import nn
from torch.utils.checkpoint import CheckpointPolicy, checkpoint, create_selective_checkpoint_contexts

import fxstack
from fxstack_partition import PartitionOptions, partition, simulate

program = Programs()
aten = torch.ops.aten


def network():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(8, 16), nn.GELU(), nn.LayerNorm(16), nn.Dropout(0.5), nn.Linear(16, 8))


def contexts(policy):
    return functools.partial(create_selective_checkpoint_contexts, policy)


def steps(c, context_fn, model=None):
    """Two steps and a call without gradients of a checkpointed model."""
    model = model or network()
    options = {"use_reentrant": False, "context_fn": context_fn}
    f = c(lambda x: checkpoint(model, x, **options).sum())
    x = torch.linspace(-1, 1, 32).reshape(4, 8).requires_grad_()
    for _ in range(2):
        f(x).backward()
    with torch.no_grad():
        f(x)
    return x.grad, [p.grad for p in model.parameters()]


@program(breaks=0)
def list_of_operators(c):
    return steps(c, contexts([aten.mm.default, aten.addmm.default]))


@program(breaks=0)
def policy_that_keeps_products(c):
    def policy(ctx, op, *args, **kwargs):
        saves = op in (aten.mm.default, aten.addmm.default)
        return CheckpointPolicy.MUST_SAVE if saves else CheckpointPolicy.PREFER_RECOMPUTE

    return steps(c, contexts(policy))


@program(breaks=0)
def policy_that_counts(c):
    """Every second product is saved, as in torchtitan; the counts are made anew in each step."""

    def context_fn():
        counts = defaultdict(int)

        def policy(ctx, op, *args, **kwargs):
            counts[op] += op is aten.addmm.default
            return op is aten.addmm.default and counts[op] % 2 == 1

        return create_selective_checkpoint_contexts(policy)

    return steps(c, context_fn)


@program(breaks=0)
def policy_that_reads_sizes(c):
    return steps(c, contexts(lambda ctx, op, *args: op is aten.addmm.default and args[1].shape[1] == 16))


@program(breaks=0)
def policy_that_writes_down_what_it_is_asked(c):
    """In the order of eager, with the sizes that eager shows."""
    asked = []

    def policy(ctx, op, *args, **kwargs):
        asked.append((str(op), ctx.is_recompute, [tuple(a.shape) for a in args if torch.is_tensor(a)]))
        return op is aten.addmm.default

    return steps(c, contexts(policy)), [entry for entry in asked if not entry[1]]


@program(breaks=0)
def list_that_changes_between_calls(c):
    kept = [aten.addmm.default]
    model = network()
    f = c(lambda x: checkpoint(model, x, use_reentrant=False, context_fn=contexts(kept)).sum())
    x = torch.randn(4, 8, requires_grad=True)
    f(x).backward()
    kept.append(aten.gelu.default)
    f(x).backward()
    return x.grad


@program()
def policy_of_no_answer(c):
    return steps(c, contexts(lambda ctx, op, *args, **kwargs: None))


@program()
def policy_that_computes(c):
    def policy(ctx, op, *args, **kwargs):
        return op is aten.addmm.default and bool(args[1].sum() > 0)

    return steps(c, contexts(policy))


@program()
def policy_that_raises(c):
    def policy(ctx, op, *args, **kwargs):
        raise KeyError(op)

    try:
        steps(c, contexts(policy))
    except KeyError as error:
        return str(error)


@program()
def packet_instead_of_operator(c):
    try:
        steps(c, contexts([aten.addmm]))
    except ValueError as error:
        return str(error)


class Changing(nn.Module):
    """Writes to what a product returned, which eager notices in the backward if a policy saved it."""

    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(8, 8)

    def forward(self, x):
        return self.linear(x).sin_().cos()


@program()
def saved_value_that_is_changed(c):
    torch.manual_seed(0)
    try:
        return steps(c, contexts([aten.addmm.default]), Changing())
    except RuntimeError as error:
        return str(error)


@program()
def saved_value_that_the_operator_itself_changes(c):
    torch.manual_seed(0)
    try:
        return steps(c, contexts([aten.sin_.default]), Changing())
    except RuntimeError as error:
        return str(error)


@program()
def everything_is_saved_dropout_too(c):
    try:
        return steps(c, contexts(lambda ctx, op, *args, **kwargs: True))
    except RuntimeError as error:
        return str(error)


@program(breaks=0)
def changed_value_that_is_not_saved(c):
    torch.manual_seed(0)
    return steps(c, contexts([aten.cos.default]), Changing())


@program()
def contexts_of_the_programs_own(c):
    entered = []

    class Context:
        def __enter__(self):
            entered.append(1)

        def __exit__(self, *_):
            pass

    return steps(c, lambda: (Context(), Context())), len(entered)


@program()
def contexts_that_are_not_for_a_checkpoint(c):
    @c
    def f(x):
        forward, again = create_selective_checkpoint_contexts([aten.mm.default])
        return x * 2, type(forward).__name__, type(again).__name__

    return f(torch.ones(2))


test_equals_eager = program.tests()


def cut_by(policy):
    """The partition that a step of a checkpointed perceptron is compiled with."""
    seen = []

    def keep(joint, options=PartitionOptions()):
        seen.append(partition(joint, "min_cut", options))
        return seen[-1]

    torch.manual_seed(0)
    model = nn.Sequential(*(m for _ in range(4) for m in (nn.Linear(64, 64), nn.GELU())))

    def loss(x):
        options = {} if policy is None else {"context_fn": contexts(policy)}
        return checkpoint(model, x, use_reentrant=False, **options).sum()

    compiled = fxstack.compile(loss, options={"partitioner": keep}, fullgraph=True)
    compiled(torch.randn(512, 64, requires_grad=True)).backward()
    return seen[0]


def test_what_a_policy_saves_is_saved_and_the_rest_is_not():
    part = cut_by([aten.addmm.default])
    products = [name for name in part.saved if name.startswith("addmm")]
    assert len(products) == 4
    assert not [name for name in part.recomputed if name.startswith("addmm")]
    assert [name for name in part.recomputed if name.startswith("gelu")]


def test_a_policy_stands_between_saving_nothing_and_all():
    nothing, products, every = (
        simulate(cut_by(policy)).saved_bytes
        for policy in (
            None,
            lambda ctx, op, *args: op is aten.addmm.default,
            [aten.addmm.default, aten.gelu.default],
        )
    )
    assert nothing < products < every


@pytest.mark.parametrize("answer", ["MUST_RECOMPUTE", "PREFER_RECOMPUTE"])
def test_what_is_recomputed_is_as_without_a_policy(answer):
    part = cut_by(lambda ctx, op, *args, **kwargs: CheckpointPolicy[answer])
    assert part.saved == cut_by(None).saved
