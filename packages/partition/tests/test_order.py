"""The backward's order: correct, with recomputation late, and measured by its simulated peak."""

from joint_programs import PROGRAMS, rand, residual_chain
from joints import trace_joint

from fxstack_partition import analyze, partition
from fxstack_partition.order import demand_order, peak_bytes


def size(node):
    value = node.meta["val"]
    return value.numel() * value.element_size() if hasattr(value, "numel") else 0


def brute_force_peak(order, held, kept):
    """Alive at a step: held or computed, and still to be used or kept. No views in these graphs."""
    peak = 0
    for index in range(len(order)):
        available = [*held, *order[: index + 1]]
        later = {arg for node in order[index:] for arg in node.all_input_nodes}
        alive = [n for n in available if n in later or n in kept or n is order[index]]
        held_before = [n for n in held if n not in {a for m in order for a in m.all_input_nodes}]
        peak = max(peak, sum(map(size, {*alive, *held_before})))
    return peak


def test_peak_matches_a_direct_simulation():
    joint = trace_joint(lambda x: (x.sin() * x).cos().sin(), rand(16))
    facts = analyze(joint)
    order = [n for n in facts.nodes if n.op == "call_function"]
    held = [*facts.primals, *facts.tangents]
    kept = [*facts.forward_outputs, *facts.gradients]
    assert peak_bytes(order, held, kept, size) == brute_force_peak(order, held, set(kept))


def test_recomputation_comes_just_before_its_use():
    part = partition(trace_joint(lambda x: (x.sin() * x).cos().sin(), rand(16)))
    names = [n.name for n in part.backward.graph_module.graph.nodes]
    assert set(part.recomputed) <= set(names)
    nodes = {n.name: n for n in part.backward.graph_module.graph.nodes}
    for name in part.recomputed:
        first = min(names.index(user.name) for user in nodes[name].users)
        between = names[names.index(name) + 1 : first]
        assert all(b in part.recomputed or nodes[b].all_input_nodes for b in between)


def test_demand_order_is_topological():
    for fn, inputs in PROGRAMS.values():
        facts = analyze(trace_joint(fn, *inputs()))
        needed = frozenset(n for n in facts.nodes if n.op == "call_function")
        order = demand_order(facts.nodes[:-1], needed)
        seen = set()
        for node in order:
            assert all(arg in seen or arg not in needed for arg in node.all_input_nodes)
            seen.add(node)
        assert seen == needed


def test_the_chosen_order_is_no_worse_than_the_joint_graphs():
    joint = trace_joint(residual_chain, rand(4, 6), rand(6, 6))
    part = partition(joint)
    graph = part.backward.graph_module.graph
    order = [n for n in graph.nodes if n.op == "call_function"]
    held = graph.find_nodes(op="placeholder")
    kept = graph.output_node().all_input_nodes
    position = {n.name: i for i, n in enumerate(joint.graph_module.graph.nodes)}
    naive = sorted(order, key=lambda n: position[n.name])
    assert peak_bytes(order, held, kept, size) <= peak_bytes(naive, held, kept, size)
