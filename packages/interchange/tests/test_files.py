"""What is saved is what is loaded, byte for byte and value for value."""

import json
import os
import subprocess
import sys
import zipfile
from importlib.resources import files
from pathlib import Path

import jsonschema
import pytest
import torch
from stage_graphs import GRAPHS, captured, fake, functional, joint, stage_graph, with_subgraph
from torch.fx import Graph, GraphModule

from fxstack_interchange import SaveError, Stage, load, save, show, to_bytes, verify

GOLDEN = Path(__file__).parent / "golden"
each_graph = pytest.mark.parametrize("name", GRAPHS)


def round_trip(graph, tmp_path):
    path = tmp_path / "graph.fxg"
    save(graph, path)
    return load(path)


@each_graph
def test_the_example_is_well_formed(name):
    verify(GRAPHS[name]())


@each_graph
def test_loading_and_saving_again_gives_the_same_bytes(name, tmp_path):
    graph = GRAPHS[name]()
    assert to_bytes(round_trip(graph, tmp_path)) == to_bytes(graph)


@each_graph
def test_signature_code_and_text_survive(name, tmp_path):
    graph = GRAPHS[name]()
    loaded = round_trip(graph, tmp_path)
    assert loaded.signature == graph.signature
    assert loaded.graph_module.code == graph.graph_module.code
    assert show(loaded) == show(graph)


@each_graph
def test_a_file_of_every_released_version_loads(name):
    """The golden files are never rewritten; see docs/interchange.md."""
    loaded = load(GOLDEN / f"{name}-1.0.fxg")
    verify(loaded)
    if name in ("captured", "functional", "joint"):
        assert loaded.graph_module.code == GRAPHS[name]().graph_module.code
    assert to_bytes(loaded) == (GOLDEN / f"{name}-1.0.fxg").read_bytes()


@each_graph
def test_documents_follow_the_published_schema(name, tmp_path):
    path = tmp_path / "graph.fxg"
    save(GRAPHS[name](), path)
    document = json.loads(zipfile.ZipFile(path).read("graph.json"))
    schema = json.loads(files("fxstack_interchange.format").joinpath("schema.json").read_text())
    jsonschema.Draft202012Validator(schema).validate(document)


def test_a_loaded_graph_computes_the_same(tmp_path):
    graph = joint()
    loaded = round_trip(graph, tmp_path)
    args = [torch.randn(4, 3) for _ in range(3)]
    for a, b in zip(graph.graph_module(*args), loaded.graph_module(*args)):
        torch.testing.assert_close(a, b, rtol=0, atol=0)


def test_subgraphs_and_their_constants_run(tmp_path):
    loaded = round_trip(with_subgraph(), tmp_path)
    yes = loaded.graph_module.yes(torch.ones(3))
    torch.testing.assert_close(yes[0], torch.full((3,), 2.0))


@pytest.mark.parametrize("attribute", ["table", "wide", "low", "weight", "imaginary"])
def test_constants_keep_value_dtype_and_strides(attribute, tmp_path):
    graph = functional()
    loaded = getattr(round_trip(graph, tmp_path).graph_module, attribute)
    original = getattr(graph.graph_module, attribute)
    assert torch.equal(loaded, original)
    assert (loaded.dtype, loaded.stride()) == (original.dtype, original.stride())
    assert type(loaded) is type(original)
    assert loaded.requires_grad == original.requires_grad


def only_attribute(value, op="get_attr"):
    """A functional graph that returns one attribute, or what that attribute computes."""
    graph = Graph()
    node = graph.create_node(op, "a", () if op == "get_attr" else (graph.placeholder("x"),))
    graph.output((node,))
    return stage_graph(GraphModule({"a": value}, graph), Stage.FUNCTIONAL)


def test_what_lies_between_the_elements_is_not_written():
    secret = torch.arange(6.0)
    data = to_bytes(only_attribute(secret[::2]))
    assert torch.tensor([1.0]).numpy().tobytes() not in data
    assert torch.tensor([2.0]).numpy().tobytes() in data


def test_symbols_come_back_with_range_and_hint(tmp_path):
    loaded = round_trip(joint(symbolic=True), tmp_path)
    nodes = loaded.graph_module.graph.find_nodes(op="placeholder")
    size = nodes[0].meta["val"]
    env = size.node.shape_env
    assert size.node.hint == 4
    assert nodes[2].meta["val"].shape[0].node.expr == size.node.expr
    assert env.var_to_range[size.node.expr].lower == 2
    assert nodes[2].meta["val"].fake_mode.shape_env is env


def test_loaded_values_can_be_computed_with(tmp_path):
    loaded = round_trip(joint(symbolic=True), tmp_path)
    x, w = (n.meta["val"] for n in loaded.graph_module.graph.find_nodes(op="placeholder")[2:4])
    with x.fake_mode:
        product = x.t() @ w
    assert str(product.shape) == f"torch.Size([{x.shape[1]}, {w.shape[1]}])"


def test_metadata_survives(tmp_path):
    node = next(n for n in round_trip(captured(), tmp_path).graph_module.graph.nodes if n.name == "add")
    assert node.meta["nn_module_stack"]["a"] == ("layers.0", "torch.nn.modules.linear.Linear")
    assert node.meta["source_fn_stack"][0] == ("linear", "torch._C._nn.linear")
    assert node.meta["recompute"] == "must_save"
    assert node.meta["original_name"] == "add"
    assert "line 12" in node.meta["stack_trace"]


def test_saving_leaves_no_partial_file_behind(tmp_path):
    save(joint(), tmp_path / "a.fxg")
    assert [p.name for p in tmp_path.iterdir()] == ["a.fxg"]


SCRIPT = """
import sys, hashlib
from stage_graphs import GRAPHS
from fxstack_interchange import to_bytes
print([hashlib.sha256(to_bytes(make())).hexdigest() for make in GRAPHS.values()])
"""


def test_bytes_do_not_depend_on_the_process():
    def run(seed):
        env = {**os.environ, "PYTHONHASHSEED": seed}
        here = Path(__file__).parent
        return subprocess.run(
            [sys.executable, "-c", SCRIPT], cwd=here, env=env, capture_output=True, check=True
        ).stdout

    assert run("1") == run("2") != b""


def save_error(change):
    graph = captured()
    change(graph.graph_module.graph)
    with pytest.raises(SaveError) as caught:
        to_bytes(graph)
    return str(caught.value)


def user_function(x):
    return x


def test_a_users_function_cannot_travel():
    def change(graph):
        next(n for n in graph.nodes if n.name == "add").target = user_function

    message = save_error(change)
    assert "node 'add'" in message
    assert "user_function is not an operator the format can name" in message
    assert "from model.py:12: return x + y" in message


def test_an_unknown_argument_cannot_travel():
    def change(graph):
        node = next(n for n in graph.nodes if n.name == "add")
        node.args = (node.args[0], object())

    assert "an argument of type object has no form in the format" in save_error(change)


def test_a_module_call_cannot_travel():
    with pytest.raises(SaveError, match="lift the module's state to inputs"):
        to_bytes(only_attribute(torch.nn.ReLU(), "call_module"))


def test_a_fake_constant_cannot_travel():
    with pytest.raises(SaveError, match="a constant without data"):
        to_bytes(only_attribute(fake(3)))


ALONE = """
import sys
from fxstack_interchange import load
incumbent = ("torch._dynamo", "torch._inductor", "torch._functorch.aot_autograd")
print([m for m in sys.modules if m.startswith(incumbent)])
load(sys.argv[1])
print([m for m in sys.modules if m.startswith("fxstack") and not m.startswith("fxstack_interchange")])
"""


def test_importing_loads_no_incumbent_and_loading_no_other_package_of_the_project():
    """Loading makes a FakeTensorMode, for which torch imports parts of its own compiler."""
    path = GOLDEN / "joint-1.0.fxg"
    command = [sys.executable, "-c", ALONE, str(path)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["[]", "[]"]
