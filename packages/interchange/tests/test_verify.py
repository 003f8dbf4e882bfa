"""Each rule notices what it is for, and names node, rule and source line."""

from dataclasses import replace

import pytest
import torch
from stage_graphs import GRAPHS, TRACE, aten, backward, captured, fake, forward, functional, joint

from fxstack_interchange import (
    InputKind,
    InputSpec,
    OutputKind,
    OutputSpec,
    Stage,
    StageGraph,
    SymbolSpec,
    VerificationError,
    verify,
)
from fxstack_interchange.format.verify import RULES


def broken(graph, change):
    """Return the (node, rule) pairs that ``change`` breaks, and the message."""
    made = change(graph) or graph
    with pytest.raises(VerificationError) as caught:
        verify(made if isinstance(made, StageGraph) else graph)
    return {(v.node, v.rule) for v in caught.value.violations}, str(caught.value)


def named(graph, name):
    return next(n for n in graph.graph_module.graph.nodes if n.name == name)


def resigned(graph, **changes):
    return StageGraph(graph.graph_module, replace(graph.signature, **changes))


def test_duplicated_names():
    def change(graph):
        named(graph, "sigmoid").name = "mul"

    found, message = broken(joint(), change)
    assert ("mul", "unique-names") in found
    assert "2 nodes have this name" in message


def test_a_node_before_its_argument():
    def change(graph):
        named(graph, "sigmoid").append(named(graph, "mul"))

    found, _ = broken(joint(), change)
    assert ("sigmoid", "topological-order") in found


def test_placeholders_and_specifications_must_match():
    found, message = broken(joint(), lambda g: resigned(g, inputs=g.signature.inputs[:-1]))
    assert (None, "inputs") in found
    assert "3 placeholders, 2 input specifications" in message
    swapped = lambda g: resigned(g, inputs=g.signature.inputs[::-1])
    assert ("x_1", "inputs") in broken(joint(), swapped)[0]


def test_outputs_and_specifications_must_match():
    assert ("output", "outputs") in broken(joint(), lambda g: resigned(g, outputs=()))[0]

    def nested(graph):
        node = graph.graph_module.graph.output_node()
        node.args = ([list(node.args[0])],)

    assert "the output is flat" in broken(joint(), nested)[1]


def test_kinds_that_a_stage_does_not_have():
    spec = InputSpec(InputKind.TANGENT, "x", "y")
    found, message = broken(captured(), lambda g: resigned(g, inputs=(spec, g.signature.inputs[1])))
    assert ("x", "kinds") in found
    assert "a captured graph has no tangent inputs" in message


def test_targets_must_exist():
    def change(graph):
        first, *rest = graph.signature.outputs
        return resigned(graph, outputs=(OutputSpec(OutputKind.MUTATED_INPUT, first.name, "nowhere"), *rest))

    assert "a mutated_input of 'nowhere', which is not an input" in broken(functional(), change)[1]

    def no_tangent(graph):
        *rest, last = graph.signature.inputs
        return resigned(graph, inputs=(*rest, replace(last, target="nowhere")))

    assert "the tangent of 'nowhere', which is not an output" in broken(joint(), no_tangent)[1]


def test_groups_must_be_in_order():
    graph = forward()
    x, exp, size = graph.signature.outputs
    order = graph.graph_module.graph.output_node()
    order.args = ((order.args[0][0], order.args[0][2], order.args[0][1]),)
    found, message = broken(graph, lambda g: resigned(g, outputs=(x, size, exp)))
    assert ("exp", "groups") in found
    assert "is out of order" in message


def test_metadata_is_closed():
    def change(graph):
        node = named(graph, "mul")
        node.meta.update(stack_trace=TRACE, my_notes=1)

    found, message = broken(joint(), change)
    assert found == {("mul", "metadata")}
    assert "metadata key 'my_notes' is not in the closed list" in message
    assert "from model.py:12: return x + y" in message


def test_recompute_tags_are_words():
    def change(graph):
        named(graph, "mul").meta["recompute"] = "perhaps"

    assert "recompute is 'perhaps', must be one of must_save" in broken(joint(), change)[1]


def test_values_are_there():
    def change(graph):
        del named(graph, "mul").meta["val"]

    assert ("mul", "values") in broken(joint(), change)[0]


def test_symbols_are_bound():
    def change(graph):
        symbol, x = graph.graph_module.graph.find_nodes(op="placeholder")
        graph.graph_module.graph.erase_node(symbol)
        return resigned(graph, inputs=graph.signature.inputs[1:])

    found, message = broken(forward(), change)
    assert ("x", "symbols-bound") in found
    assert "which no symbol input defines" in message


def test_symbol_descriptions():
    twice = (SymbolSpec("s0", 1), SymbolSpec("s0", 2, 5, 3))
    found, message = broken(joint(), lambda g: resigned(g, symbols=twice))
    assert "the symbol is described 2 times" in message
    assert "range 5..3 is empty" in message


def test_aten_stages_have_no_torch_functions():
    def change(graph):
        named(graph, "mul").target = torch.nn.functional.relu

    assert "calls relu, which is not an ATen operator" in broken(joint(), change)[1]


def test_aten_stages_do_not_mutate():
    def change(graph):
        named(graph, "mul").target = aten.mul_.Tensor

    found, message = broken(joint(), change)
    assert ("mul", "functional") in found
    assert "aten.mul_.Tensor mutates; only a trailing copy_ into an input is allowed" in message


def test_an_updated_input_is_not_read_afterwards():
    def change(graph):
        inner = graph.graph_module.graph
        with inner.inserting_before(inner.output_node()):
            x = inner.find_nodes(op="placeholder")[0]
            inner.call_function(aten.exp.default, (x,)).meta["val"] = fake(3)

    found, message = broken(functional(), change)
    assert "updates x, which 'exp_default' reads later" in message


def test_every_rule_holds_for_the_examples():
    for make in GRAPHS.values():
        verify(make(), RULES)


def test_all_violations_are_listed_but_not_all_are_shown():
    def change(graph):
        for node in graph.graph_module.graph.nodes:
            node.meta.update({f"k{i}": 1 for i in range(5)})

    with pytest.raises(VerificationError, match=r"\.\.\. and \d+ more") as caught:
        graph = backward()
        change(graph)
        verify(graph)
    assert len(caught.value.violations) > 20
    assert graph.signature.stage is Stage.BACKWARD
