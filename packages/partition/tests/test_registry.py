"""Partitioners by name: built in, registered, or passed as functions."""

import subprocess
import sys
from importlib.metadata import entry_points

import pytest
from joint_programs import rand
from joints import trace_joint

import fxstack_partition
from fxstack_partition import UnknownPartitionerError, partition, register, save_all
from fxstack_partition.registry import ENTRY_POINT_GROUP, REGISTRY, Registry


def joint():
    return trace_joint(lambda x: x.sin(), rand(3))


def test_a_function_is_a_partitioner():
    assert partition(joint(), save_all).saved == partition(joint(), "save_all").saved


def test_a_registered_function_is_found_by_name():
    registry = Registry()
    assert registry.register("mine")(save_all) is save_all
    assert registry.get("mine") is save_all
    assert "mine" in registry.names()


def test_built_ins_are_known():
    assert {"min_cut", "save_all"} <= set(REGISTRY.names())


def test_an_unknown_name_is_an_error_that_lists_the_known_ones():
    with pytest.raises(UnknownPartitionerError, match="'nope'; known are .*min_cut, sac, save_all"):
        partition(joint(), "nope")


@pytest.mark.skipif(not entry_points(group=ENTRY_POINT_GROUP), reason="installed before entry points")
def test_built_ins_are_entry_points_too():
    assert entry_points(group=ENTRY_POINT_GROUP)["save_all"].load() is save_all


def test_importing_loads_no_incumbent_and_no_sibling():
    script = (
        "import sys, fxstack_partition\n"
        "bad = ('torch._dynamo', 'torch._inductor', 'torch._functorch.aot_autograd',"
        " 'torch._functorch.partitioners', 'torch._functorch.compilers', 'fxstack_inductor',"
        " 'fxstack_functionalize')\n"
        "print([m for m in sys.modules if m.startswith(bad)])"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_all_public_names_exist():
    assert all(hasattr(fxstack_partition, name) for name in fxstack_partition.__all__)
    assert callable(register)
