"""What a user gets wrong on the first day, and what the error says."""

from dataclasses import replace

import pytest
import torch
from joints import trace_joint

from fxstack_partition import PartitionError, PartitionOptions, partition


def joint():
    return trace_joint(lambda x: (x @ x).sin().sum(), torch.randn(4, 4, requires_grad=True))


@pytest.mark.parametrize(
    ("wrong", "error", "text"),
    [
        ({"budget": float("nan")}, ValueError, "a number of bytes .int., not nan"),
        ({"budget": True}, TypeError, "budget is a number, not True"),
        ({"budget": "half"}, TypeError, "budget is a number, not 'half'"),
        ({"budget": -3}, ValueError, "a budget of -3 bytes is negative"),
        ({"time_overhead": float("nan")}, ValueError, "time_overhead is a fraction .* not nan"),
        ({"time_overhead": -0.1}, ValueError, "time_overhead is a fraction .* not -0.1"),
        ({"budget": 0.5, "time_overhead": 0.1}, ValueError, "budget or time_overhead, not both"),
        ({"device": "abacus"}, LookupError, "no device is called 'abacus'; known are cpu, a100"),
        ({"cost": "money"}, ValueError, "counted in 'seconds' or 'products', not in 'money'"),
    ],
)
def test_options(wrong, error, text):
    with pytest.raises(error, match=text):
        PartitionOptions(**wrong)


@pytest.mark.parametrize("seconds", [float("nan"), float("inf"), -1.0])
def test_seconds(seconds):
    options = PartitionOptions(seconds=lambda node: seconds if node.name == "sin" else None)
    with pytest.raises(ValueError, match=f"returned {seconds!r} for 'sin'"):
        partition(joint(), "budget", options)


@pytest.mark.parametrize("name", [None, 3, ["min_cut"]])
def test_partitioners(name):
    with pytest.raises(TypeError, match="a partitioner is a name or a function"):
        partition(joint(), name)


def test_graphs():
    with pytest.raises(TypeError, match="expected a joint StageGraph, got Graph; JointGraph.from_aot"):
        partition(joint().graph_module.graph)


@pytest.mark.parametrize("result", [None, (1, 2)])
def test_results(result):
    with pytest.raises(PartitionError, match="returned .*, which is no Partition; build one"):
        partition(joint(), lambda _joint, _options: result)


def test_what_a_partitioner_raises_is_raised():
    def broken(_joint, _options):
        raise OverflowError("mine")

    with pytest.raises(OverflowError, match="mine"):
        partition(joint(), broken)


@pytest.mark.parametrize(
    ("saved", "text"),
    [
        (("nowhere",), "'nowhere' breaks rule 'saved': is in Partition.saved, but is no value"),
        ((), "'backward' breaks rule 'saved': receives 2 saved values, of which 0 are named"),
    ],
)
def test_saved_names(saved, text):
    with pytest.raises(PartitionError, match=text):
        partition(joint(), lambda g, o: replace(partition(g, "min_cut", o), saved=saved))
