"""The text names stage, symbols, inputs, shapes, source lines and outputs."""

from stage_graphs import captured, joint, with_subgraph

from fxstack_interchange import show
from fxstack_interchange.format.show import show_graph, target_text, value_text


def test_joint():
    text = show(joint())
    assert text == (
        "# joint graph: 3 inputs, 7 operations, 3 outputs\n"
        "def graph(\n"
        "    x_1: f32[4, 3],  # user_input\n"
        "    w_1: f32[4, 3],  # parameter w\n"
        "    t_1: f32[4, 3],  # tangent sigmoid\n"
        "):\n"
        "    mul: f32[4, 3] = aten.mul.Tensor(x_1, w_1)\n"
        "    sigmoid: f32[4, 3] = aten.sigmoid(mul)\n"
        "    detach: f32[4, 3] = aten.detach(sigmoid)\n"
        "    detach_1: f32[4, 3] = aten.detach(detach)\n"
        "    sigmoid_backward: f32[4, 3] = aten.sigmoid_backward(t_1, detach_1)\n"
        "    mul_1: f32[4, 3] = aten.mul.Tensor(sigmoid_backward, x_1)\n"
        "    mul_2: f32[4, 3] = aten.mul.Tensor(sigmoid_backward, w_1)\n"
        "    return (\n"
        "        sigmoid,  # user_output\n"
        "        mul_2,  # gradient of x_1\n"
        "        mul_1,  # gradient of w_1\n"
        "    )\n"
    )


def test_symbols_have_range_hint_and_source():
    lines = show(joint(symbolic=True)).splitlines()
    assert lines[1].startswith("# symbol s")
    assert lines[1].endswith("in 2..inf, seen as 4, from x.shape[0]")


def test_source_lines_and_methods():
    text = show(captured())
    assert "    # model.py:12: return x + y\n    add: f32[2, 2] = operator.add(linear, 1)\n" in text
    assert "view: f32[2, 2] = add.view((2, -1))" in text
    assert "getitem: f32[2, 2] = operator.getitem(view, (slice(None, None, 2), Ellipsis))" in text
    assert "x: f32[2, 2],  # user_input from args[0]" in text


def test_subgraphs_are_shown():
    text = show(with_subgraph())
    assert "cond: (f32[3]) = cond(flag, yes, no, (x,))" in text
    assert "# subgraph no\ndef no(" in text


def test_small_words():
    assert value_text(3) == "int"
    assert value_text(None) == "?"
    assert target_text(len) == "len"


def test_a_graph_without_output_is_shown():
    graph = joint().graph_module.graph
    graph.erase_node(graph.output_node())
    assert show_graph(graph).startswith("def graph(\n") and "return" not in show_graph(graph)
