"""torch.export's dimensions as records."""

import pytest
from torch.export import Dim

from fxstack_capture.shapes.dims import Exactly, Hint, Named, Range, Root, dim_rule

B = Dim("b", max=9)
ROOT = Root("b", Range(0, 9))

RULES = [
    (None, None),
    (Dim.STATIC, None),
    (4, Exactly(4)),
    (Dim.AUTO, Hint(strict=False, bounds=Range())),
    (Dim.AUTO(min=2, max=5), Hint(strict=False, bounds=Range(2, 5))),
    (Dim.DYNAMIC(max=5), Hint(strict=True, bounds=Range(None, 5))),
    (B, Named(ROOT)),
    (2 * B, Named(ROOT, 2)),
    (3 * (2 * B + 1) - 1, Named(ROOT, 6, 2)),
    (B + 1, Named(ROOT, 1, 1)),
]


@pytest.mark.parametrize(("dim", "rule"), RULES, ids=[str(dim) for dim, _ in RULES])
def test_rules(dim, rule):
    assert dim_rule(dim, "") == rule


@pytest.mark.parametrize("dim", ["b", 1.5, True, object()])
def test_what_is_no_dimension(dim):
    with pytest.raises(TypeError, match=r"dynamic_shapes at x: expected None, an int, a Dim"):
        dim_rule(dim, " at x")


@pytest.mark.parametrize(("scale", "offset"), [(1, 0), (2, 0), (3, 5), (1, -2), (4, -7)])
def test_formulas_are_solved(scale, offset):
    rule = Named(ROOT, scale, offset)
    solved = {scale * n + offset: n for n in range(20)}
    assert {size: rule.solve(size) for size in solved} == solved
    assert scale == 1 or rule.solve(offset + 1) is None
    assert scale * rule.lowest + offset >= 2 > scale * (rule.lowest - 1) + offset


TEXTS = {
    "b": Named(ROOT),
    "2*b + 1": Named(ROOT, 2, 1),
    "b - 3": Named(ROOT, 1, -3),
    "Dim('b', max=9)": ROOT,
    "Dim.DYNAMIC(min=3)": Hint(strict=True, bounds=Range(3)),
    "Dim.AUTO": Hint(strict=False, bounds=Range()),
}


@pytest.mark.parametrize("text", TEXTS)
def test_texts(text):
    assert getattr(TEXTS[text], "text", None) == text or str(TEXTS[text]) == text
