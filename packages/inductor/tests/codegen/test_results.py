"""What operators return otherwise than the graph says: copied where it lies otherwise, refused where it is something else."""

import pytest
import torch
from torch.fx.experimental.proxy_tensor import make_fx

from fxstack_inductor import InductorOptions, compile_graph
from fxstack_inductor.errors import UnexpectedResult

LIBRARY = torch.library.Library("fxstack_results", "DEF")


def operator(name, real, said, *, results=1):
    """An operator that does ``real``, and whose fake kernel says ``said``."""
    returned = "Tensor" if results == 1 else f"({', '.join(['Tensor'] * results)})"
    LIBRARY.define(f"{name}(Tensor x) -> {returned}", tags=torch.Tag.pt2_compliant_tag)
    LIBRARY.impl(name, real, "CPU")
    torch.library.register_fake(f"fxstack_results::{name}", said, lib=LIBRARY)
    return getattr(torch.ops.fxstack_results, name)


TURNED = operator("turned", lambda x: (x * 2).t().contiguous().t(), torch.empty_like)
WIDER = operator("wider", lambda x: x.double(), torch.empty_like)
LONGER = operator("longer", lambda x: torch.cat([x, x]), torch.empty_like)
NONE = operator(
    "none", lambda x: (x * 2, None), lambda x: (torch.empty_like(x), torch.empty_like(x)), results=2
)


def run(fn, x, host):
    graph = make_fx(fn, tracing_mode="fake")(x)
    return compile_graph(graph, (x,), InductorOptions(host=host))(x)


@pytest.fixture(params=["native", "python"])
def host(request):
    return request.param


def test_other_strides_are_copied(host):
    x = torch.randn(5, 7)
    assert torch.equal(run(lambda x: TURNED(x) + x, x, host)[0], x * 3)


def test_what_nobody_reads_is_returned_as_it_is(host):
    x = torch.randn(5, 7)
    made, other = run(lambda x: (TURNED(x), x + 1), x, host)
    assert made.stride() == (1, 5)
    assert torch.equal(other, x + 1)


@pytest.mark.parametrize(("op", "text"), [(WIDER, "float64"), (LONGER, r"\(10, 7\)")])
def test_other_dtypes_and_shapes_are_never_read(host, op, text):
    with pytest.raises(UnexpectedResult, match=text):
        run(lambda x: op(x) + x, torch.randn(5, 7), host)


def test_other_dtypes_do_not_leave(host):
    with pytest.raises(UnexpectedResult, match="float64"):
        run(lambda x: (WIDER(x), x + 1), torch.randn(5, 7), host)


def test_an_undefined_result_that_nobody_reads(host):
    x = torch.randn(5, 7)
    assert torch.equal(run(lambda x: NONE(x)[0] + x, x, host)[0], x * 3)


def test_an_undefined_result_is_not_read(host):
    with pytest.raises((UnexpectedResult, TypeError, AttributeError), match="tensor|NoneType"):
        run(lambda x: NONE(x)[1] + x, torch.randn(5, 7), host)
