"""Random graphs, arguments and expressions survive the round trip."""

import math

import sympy
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from stage_graphs import aten, fake, stage_graph
from torch.fx import Graph, GraphModule
from torch.utils._sympy.functions import FloorDiv, Max, Min, Mod

from fxstack_interchange import Stage, load, save, show, to_bytes
from fxstack_interchange.format.encoding.arguments import Reading, decode, encode
from fxstack_interchange.format.expressions import from_text, to_text
from fxstack_interchange.format.symbols import declare

leaves = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.text(max_size=5),
    st.floats(),
    st.complex_numbers(allow_nan=False),
    st.sampled_from([torch.float16, torch.bool, torch.float8_e4m3fn]),
    st.sampled_from([torch.device("cpu"), torch.device("cuda", 1), torch.device("meta")]),
    st.sampled_from([torch.strided, torch.sparse_coo, torch.channels_last, torch.preserve_format]),
    st.sampled_from([Ellipsis, torch.relu, torch.ops.aten.add.Tensor, torch.Size([2, 3])]),
    st.builds(slice, st.integers(), st.none(), st.integers(1, 3)),
    st.builds(range, st.integers(0, 9), st.integers(0, 9), st.integers(1, 3)),
)
arguments = st.recursive(
    leaves,
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.lists(inner, max_size=3).map(tuple),
        st.dictionaries(st.text(max_size=3), inner, max_size=3),
        st.frozensets(st.integers(), max_size=3),
    ),
    max_leaves=8,
)


def same(a, b):
    if isinstance(a, float) and math.isnan(a):
        return isinstance(b, float) and math.isnan(b)
    if isinstance(a, (list, tuple)):
        return type(a) is type(b) and len(a) == len(b) and all(map(same, a, b))
    if isinstance(a, dict):
        return list(a) == list(b) and all(same(a[k], b[k]) for k in a)
    if isinstance(a, float):
        return a == b and math.copysign(1, a) == math.copysign(1, b)
    return type(a) is type(b) and a == b


@settings(max_examples=150, deadline=None)
@given(arguments)
def test_arguments(value):
    assert same(decode(encode(value), Reading({}, declare([]))), value)


SYMBOLS = {name: sympy.Symbol(name, integer=True, positive=True) for name in ("s0", "s1", "u0")}
expressions = st.recursive(
    st.one_of(st.sampled_from(list(SYMBOLS.values())), st.integers(1, 9).map(sympy.Integer)),
    lambda inner: st.one_of(
        st.builds(lambda f, a, b: f(a, b), st.sampled_from([sympy.Add, sympy.Mul, Max, Min]), inner, inner),
        st.builds(
            lambda f, a, n: f(a, sympy.Integer(n)), st.sampled_from([FloorDiv, Mod]), inner, st.integers(2, 7)
        ),
    ),
    max_leaves=6,
)


@settings(max_examples=150, deadline=None)
@given(expressions)
def test_expressions(expr):
    read = from_text(to_text(expr), SYMBOLS)  # torch may leave Min(2, 3) as it is inside of another
    text = to_text(read)
    assert to_text(from_text(text, SYMBOLS)) == text
    values = {symbol: sympy.Integer(5 + 2 * k) for k, symbol in enumerate(SYMBOLS.values())}
    assert read.xreplace(values) == expr.xreplace(values)
    assert from_text(text, SYMBOLS) == read


@given(st.text(alphabet="s01(),Add Mul-/.e_", max_size=20))
def test_any_text_is_either_an_expression_or_an_error(text):
    try:
        from_text(text, SYMBOLS)
    except ValueError as error:
        assert "size expression" in str(error)


def random_graph(choices, constants):
    graph = Graph()
    nodes = [graph.placeholder("x"), graph.placeholder("y")]
    root = {f"c{i}": torch.tensor(values) for i, values in enumerate(constants)}
    nodes += [graph.get_attr(name) for name in root]
    for op, left, right, alpha in choices:
        a, b = nodes[left % len(nodes)], nodes[right % len(nodes)]
        target = (aten.add.Tensor, aten.mul.Tensor, aten.cat.default, torch.add)[op]
        args = ([a, b],) if target is aten.cat.default else (a, b)
        nodes.append(graph.call_function(target, args, {} if op != 0 else {"alpha": alpha}))
    graph.output(tuple(nodes[-3:]))
    for node in nodes:
        node.meta["val"] = fake(2, 3)
    return stage_graph(GraphModule(root, graph), Stage.CAPTURED)


@settings(max_examples=25, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    st.lists(st.tuples(st.integers(0, 3), st.integers(0, 99), st.integers(0, 99), st.floats()), max_size=10),
    st.lists(st.lists(st.floats(width=32), min_size=1, max_size=4), max_size=3),
)
def test_graphs(tmp_path_factory, choices, constants):
    graph = random_graph(choices, constants)
    path = tmp_path_factory.mktemp("files") / "graph.fxg"
    save(graph, path)
    loaded = load(path)
    assert to_bytes(loaded) == path.read_bytes()
    assert loaded.graph_module.code == graph.graph_module.code
    assert show(loaded) == show(graph)
