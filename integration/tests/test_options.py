"""Each option of each stage reaches the stage through ``fxstack.compile``, by its name and under the stage's name."""

import dataclasses
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

import fxstack
from fxstack import api, pipeline
from fxstack.cli.options import describe_options
from fxstack.settings import OPTIONS, STAGES, stages_of
from fxstack_interchange import InputKind

PAGE = (Path(__file__).parents[2] / "docs/options.md").read_text()
FIELDS = [(stage, name) for stage, names in OPTIONS.items() for name in names]
VALUES = {
    "dynamic": True,
    "reorderable_functions": frozenset({print}),
    "ignored_functions": frozenset({print}),
    "guard_filter_fn": lambda entries: [True] * len(entries),
    "saved_tensor_hooks": "eager",
    "whole_attention": ("cpu",),
    "solver": "networkx",
    "dropout": "aten",
    "static_inputs": frozenset({InputKind.CONSTANT_TENSOR}),
    "budget": 0.3,
    "time_overhead": 0.25,
    "rewriting": 0.5,
    "cost": "products",
    "device": "h100",
    "cache_dir": "folder",
    "repro_dir": "folder",
    "compiler": "cc",
    "target": "cuda",
    "host": "python",
}
"""Values of options whose type alone does not say another value."""


def other_value(stage, name):
    """Return a value that an option takes and does not have by default."""
    default = getattr(STAGES[stage](), name)
    kinds = {bool: lambda: not default, int: lambda: default + 1, str: lambda: f"{default}x"}
    return VALUES[name] if name in VALUES else kinds.get(type(default), lambda: lambda *_: None)()


@pytest.fixture
def records_of(monkeypatch):
    """Return a function from the arguments of ``compile`` to the records that the stages get, without compiling."""

    def records_of(**arguments):
        records = {}

        def optimize(backend, *, options, **_others):
            records["capture"] = options
            backend(torch.fx.symbolic_trace(lambda x: x + 1), ())
            return lambda fn: fn

        def aot(graph_module, inputs, *, partitioner, inference_compiler, options, **_others):
            records["functionalize"] = options
            partitioner(None)
            return inference_compiler(graph_module, inputs)

        def partition(_joint, partitioner, options):
            records["partitioner"], records["partition"] = partitioner, options
            return SimpleNamespace(forward=None, backward=None)

        def compile_graph(_graph_module, _inputs, options, **_others):
            records["inductor"] = options
            return lambda: None

        monkeypatch.setattr(api.fxstack_capture, "optimize", optimize)
        monkeypatch.setattr(pipeline, "program_store", lambda *_: None)
        for event in ("keep", "on_partition", "on_compiled"):  # listeners would read the graphs
            monkeypatch.setattr(pipeline.CompileLog, event, lambda *_: None)
        for stage in (aot, partition, compile_graph):
            monkeypatch.setattr(pipeline, stage.__name__, stage)
        fxstack.compile(lambda x: x, **arguments)
        return records

    return records_of


def is_default(value, record, name):
    return value == getattr(record, name)


@pytest.mark.parametrize(("stage", "name"), FIELDS)
def test_every_option_reaches_its_stage(records_of, stage, name):
    value = other_value(stage, name)
    assert not is_default(value, STAGES[stage](), name)
    options = [{stage: {name: value}}]
    if stages_of(name) == [stage]:
        options.append({name: value})
    else:
        with pytest.raises(
            fxstack.OptionError, match=f"functionalize and inductor have an option {name!r}. Write {{"
        ):
            records_of(options={name: value})
    for spelling in options:
        assert getattr(records_of(options=spelling)[stage], name) == value


@pytest.mark.parametrize(("stage", "name"), [("partition", "partitioner"), *FIELDS])
def test_every_option_is_listed(stage, name):
    (described,) = [option for option in describe_options() if (option.stage, option.name) == (stage, name)]
    assert described.meaning
    assert f"\n| `{name}` |" in PAGE.partition(f"\n## {stage}\n")[2].partition("\n## ")[0]
    assert name in fxstack.list_options()


def test_only_the_option_that_was_given_changes(records_of):
    plain, changed = records_of(), records_of(options={"inductor": {"verify": False}})
    assert changed["inductor"] == dataclasses.replace(plain["inductor"], verify=False)
    assert changed["capture"] == plain["capture"] and changed["partition"] == plain["partition"]


@pytest.mark.parametrize("options", [{"partitioner": "save_all"}, {"partition": {"partitioner": "save_all"}}])
def test_the_partitioner_is_an_option_of_partition(records_of, options):
    assert records_of(options=options)["partitioner"] == "save_all"


@pytest.mark.parametrize("options", [{"budget": 0.3}, {"partition": {"budget": 0.3}}])
def test_a_budget_chooses_the_partitioner(records_of, options):
    assert records_of(options=options)["partitioner"] == "budget"
    assert records_of(options={"budget": None})["partitioner"] == "min_cut"


def test_an_option_precedes_the_argument_and_the_mode(records_of):
    assert records_of(fullgraph=True, dynamic=False)["capture"].fullgraph
    assert not records_of(fullgraph=True, options={"fullgraph": False})["capture"].fullgraph
    assert records_of(dynamic=False, options={"capture": {"dynamic": True}})["capture"].dynamic is True
    assert records_of(mode="max-autotune")["inductor"].autotune
    for options in ({"autotune": False}, {"inductor": {"autotune": False}}):
        assert not records_of(mode="max-autotune", options=options)["inductor"].autotune


def test_attention_stays_whole_where_inductor_has_kernels(records_of):
    assert records_of()["functionalize"].whole_attention == ("cuda",)
    assert records_of(options={"target": "cuda"})["functionalize"].whole_attention == ("cuda", "cpu")
    assert records_of(options={"whole_attention": ()})["functionalize"].whole_attention == ()


@pytest.mark.parametrize(
    ("options", "error", "text"),
    [
        (
            {"bugdet": 0.3},
            ValueError,
            r"unknown option 'bugdet'. Did you mean 'budget' of partition\? Stages: capture, f",
        ),
        (
            {"partition": {"bugdet": 0.3}},
            ValueError,
            "unknown option 'bugdet' of partition. Did you mean 'budget' of",
        ),
        (
            {"inductor": {"budget": 0.3}},
            ValueError,
            "unknown option 'budget' of inductor. Did you mean 'budget' of part",
        ),
        ({"inductor": {"max_autotune": True}}, ValueError, "unknown option 'max_autotune' of inductor"),
        (
            {"partitions": {"budget": 0.3}},
            ValueError,
            "unknown option 'partitions'.* Stages: .*partition, inductor",
        ),
        (
            {"budget": 0.3, "partition": {"budget": 0.3}},
            ValueError,
            "option 'budget' of partition is given twice",
        ),
        ({"partition": 0.3}, TypeError, "option 'partition' must be a dict of options, not 0.3"),
        ({"inductor": {"fuse": 1}}, TypeError, "option 'fuse' must be bool, not 1 of type int"),
        ({"fuse": "no"}, TypeError, "option 'fuse' must be bool, not 'no' of type str"),
    ],
)
def test_wrong_options(options, error, text):
    with pytest.raises(error, match=text):
        fxstack.compile(lambda x: x, options=options)
