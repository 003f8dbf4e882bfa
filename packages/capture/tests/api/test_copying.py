"""``copy`` in compiled code: objects with state beside their contents, and tensors."""

import collections
import copy
import functools

import pytest
import torch
from beside import breaks_beside_plain

from fxstack_capture import graph_break


def args():
    return (torch.arange(6.0).view(2, 3),)


def ordered_dict_with_attributes(x):
    made = collections.OrderedDict(a=x)
    made.version = [1]
    made.itself = made
    graph_break()
    alternate = copy.copy(made)
    return vars(made), vars(alternate), alternate.version is made.version, x + 1


def partial_with_attributes(x):
    made = functools.partial(max, 1)
    made.note = x
    graph_break()
    return vars(made), vars(copy.copy(made)), x + 1


class Named(functools.partial):
    def text(self):
        return self.func, self.name


NAMED = Named(max, 1)
NAMED.name = ["outside"]


def derived_from_partial(x):
    made = Named(min, 2)
    made.name = x
    graph_break()
    return made.text(), type(made), NAMED.text(), NAMED(3), type(NAMED), vars(NAMED), x + 1


def state_dict(x):
    state = torch.nn.BatchNorm1d(3).state_dict()
    graph_break()
    return state._metadata, copy.deepcopy(state)._metadata, x + 1


def tensors(x):
    seen = [x + 0, x.t().contiguous().t(), torch.ones(2, 1, 3), torch.ones(())]
    made = copy.deepcopy({"list": seen, "again": seen[0]})
    made["again"].add_(1)
    return seen, made, made["again"] is made["list"][0]


def argument(x):
    made = copy.deepcopy(x)
    made.mul_(2)
    return x, made


def modules(x):
    net = torch.nn.Linear(3, 3)
    alternate = copy.deepcopy(net)
    return (alternate(x) == net(x)).all(), alternate.weight is net.weight


def views_of_each_other(x):
    one, two = copy.deepcopy([x, x[0]])
    one.zero_()
    return one, two, x


def part(x):
    made = copy.deepcopy(x[:, 1:])
    return made, made.stride(), made.storage_offset()


def leaf(x):
    made = copy.deepcopy(x.clone().requires_grad_())
    return made.is_leaf, made.requires_grad, made


def not_a_leaf(x):
    return copy.deepcopy(x.clone().requires_grad_() * 2)


def with_attribute(x):
    y = x + 1
    y.note = [3]
    return copy.deepcopy(y).note, y


@pytest.mark.parametrize("program", [tensors, argument, modules])
def test_in_one_graph(program):
    assert breaks_beside_plain(program, args) == []


@pytest.mark.parametrize(
    "program",
    [
        ordered_dict_with_attributes,
        partial_with_attributes,
        derived_from_partial,
        state_dict,
        views_of_each_other,
        part,
        leaf,
        not_a_leaf,
        with_attribute,
    ],
)
def test_over_breaks(program):
    breaks_beside_plain(program, args)


def test_attributes_of_an_argument_are_guarded():
    def program(x):
        made = copy.deepcopy(x)
        return getattr(made, "note", None), made + 1

    def with_note():
        x = torch.ones(3)
        x.note = [1]
        return (x,)

    made = [args, args, with_note, with_note]
    breaks_beside_plain(program, lambda: made.pop(0)(), calls=2)
