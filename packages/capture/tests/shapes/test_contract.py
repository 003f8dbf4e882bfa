"""A shape contract beside the arguments of a call: what binds, and what each misfit is told."""

from dataclasses import dataclass
from typing import NamedTuple

import pytest
import torch
from torch.export import Dim

from fxstack_capture.shapes.contract import ShapeContract, ShapeContractError, demand_general
from fxstack_capture.shapes.dims import Exactly, Named
from fxstack_capture.sources import Item, Local

B, C = Dim("b"), Dim("c", min=2, max=8)


class Pair(NamedTuple):
    left: object
    right: object


@dataclass
class Batch:
    ids: torch.Tensor
    mask: torch.Tensor


def t(*shape):
    return torch.empty(shape)


def bind(spec, **arguments):
    return ShapeContract(spec).bind({n: (v, Local(n)) for n, v in arguments.items()})


def rules(spec, **arguments):
    """The rules of all tensors, in the order in which they are met."""
    bound = bind(spec, **arguments)
    return [bound.tensors[id(tensor)] for tensor in bound.alive]


def name(rule):
    return rule.text if isinstance(rule, Named) else rule


BINDS = {
    "by index": ({"x": {0: B}}, {"x": t(4, 3)}, [("b", None)]),
    "negative index": ({"x": {-1: B}}, {"x": t(4, 3)}, [(None, "b")]),
    "by list": ({"x": (B, None)}, {"x": t(4, 3)}, [("b", None)]),
    "in order": (({0: B}, None), {"x": t(4), "y": t(5)}, [("b",), (None,)]),
    "fewer than arguments": ([{0: B}], {"x": t(4), "y": t(5)}, [("b",)]),
    "an int": ({"x": (4, B)}, {"x": t(4, 3)}, [(Exactly(4), "b")]),
    "a list": ({"x": [{0: B}, None]}, {"x": [t(4), t(4)]}, [("b",), (None,)]),
    "a dict": ({"x": {"a": {0: B}}}, {"x": {"a": t(4)}}, [("b",)]),
    "a named tuple": ({"x": Pair({0: B}, None)}, {"x": Pair(t(4), t(3))}, [("b",), (None,)]),
    "a data class": ({"x": {"ids": {0: B}, "mask": None}}, {"x": Batch(t(4), t(3))}, [("b",), (None,)]),
    "none of a container": ({"x": None}, {"x": [t(4), {"k": t(3)}]}, [(None,), (None,)]),
    "a formula": ({"x": {0: B}, "y": {0: 2 * B - 1}}, {"x": t(4), "y": t(7)}, [("b",), ("2*b - 1",)]),
}  # fmt: skip


@pytest.mark.parametrize("case", BINDS)
def test_binds(case):
    spec, arguments, expected = BINDS[case]
    assert [tuple(name(r) for r in found) for found in rules(spec, **arguments)] == expected


REFUSED = {
    "no such argument": ({"z": None}, {"x": t(4)}, r"names the arguments \['z'\], but the function has \['x'\]"),
    "too many": ((None, None), {"x": t(4)}, r"2 entries, but the call has 1 arguments \(x\)"),
    "rank": ({"x": (B,)}, {"x": t(4, 3)}, r"1 dimensions for x, which has 2 \(its shape is \(4, 3\)\)"),
    "index": ({"x": {5: B}}, {"x": t(4, 3)}, "entry for dimension 5 of x, which has 2 dimensions"),
    "structure": ({"x": [None, None]}, {"x": [t(4)]}, "x has 0, but its specification 0, 1"),
    "list for a dict": ({"x": [None]}, {"x": {"a": t(4)}}, "x has 'a', but its specification 0"),
    "no tensor": ({"x": {0: B}}, {"x": "s"}, "for x, which is a str"),
    "a named number": ({"x": B}, {"x": 3}, r"for x, which is a number\.\nfix: use Dim.AUTO or Dim.DYNAMIC"),
    "another size": ({"x": (3,)}, {"x": t(4)}, r"x.size\(0\) is 4, but its shape contract requires 3"),
    "below": ({"x": {0: Dim("c", min=5)}}, {"x": t(4)}, r"is 4, but its shape contract requires Dim\('c', min=5\)"),
    "above a hint": ({"x": {0: Dim.AUTO(max=3)}}, {"x": t(4)}, r"is 4, .* requires Dim.AUTO\(max=3\)"),
    "unequal": ({"x": {0: B}, "y": {0: B}}, {"x": t(4), "y": t(5)}, r"5, which requires b = 5, but x.size\(0\) requires b = 4"),
    "not whole": ({"x": {0: 2 * B}}, {"x": t(5)}, r"x.size\(0\) is 5, .* requires 2\*b with an integer b"),
    "formula out of range": ({"x": {0: 2 * C}}, {"x": t(18)}, r"18, which is 2\*c with c = 9, but .* Dim\('c', min=2, max=8\)"),
}  # fmt: skip


@pytest.mark.parametrize("case", REFUSED)
def test_refused(case):
    spec, arguments, words = REFUSED[case]
    with pytest.raises(ShapeContractError, match=words):
        bind(spec, **arguments)


def test_one_tensor_under_two_rules():
    x = t(4)
    with pytest.raises(ShapeContractError, match="different entries for one tensor, which is passed as y"):
        bind({"x": {0: B}, "y": None}, x=x, y=x)


@pytest.mark.parametrize("spec", [3, "x", Dim("b")])
def test_no_specification(spec):
    with pytest.raises(TypeError, match="expected a dict by argument name or a tuple"):
        ShapeContract(spec)


def test_one_name_with_two_ranges():
    with pytest.raises(ValueError, match=r"different definitions Dim\('b', max=9\) and Dim\('b'\)"):
        ShapeContract({"x": {0: Dim("b", max=9)}, "y": [{0: Dim("b")}]})


def test_numbers_are_known_by_source():
    bound = bind({"x": [Dim.DYNAMIC, None]}, x=[3, 4])
    assert [bound.numbers[Item(Local("x"), i)] is None for i in range(2)] == [False, True]


@pytest.mark.parametrize(("size", "apart"), [(0, True), (1, True), (2, False), (9, False)])
def test_zero_and_one_are_apart(size, apart):
    bound = bind({"x": {0: B}}, x=t(size))
    assert bound.roots["b"].apart is apart
    if apart:
        with pytest.raises(ShapeContractError, match="0 and 1 are always specialised"):
            demand_general(bound)
