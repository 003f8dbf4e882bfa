"""Explanations name the user's line, the size, the rule, the chain and the cost."""

from joint_programs import rand
from joints import trace_joint

from fxstack_partition import PartitionOptions, corpus, explain, partition


def test_saved_values_come_with_size_line_and_rule():
    told = explain(partition(corpus.load("bert")))
    by_name = {item.name: item for item in told.saved}
    assert set(by_name) == set(partition(corpus.load("bert")).saved)
    gelu_input = next(item for item in told.saved if item.bytes == 2 * 64 * 768 * 4)
    assert gelu_input.rule.startswith("heavy: ")
    assert "modeling_bert.py:" in gelu_input.line
    sizes = [item.bytes for item in told.saved]
    assert sizes == sorted(sizes, reverse=True)


def test_recomputed_values_come_with_chain_and_cost():
    told = explain(partition(trace_joint(lambda x: x.sin().cos().exp(), rand(64))))
    exp = next(item for item in told.recomputed if item.name == "exp")
    assert exp.chain == ("arg0_1", "sin", "cos", "exp")
    assert exp.flops == 64
    assert exp.seconds > 0


def test_the_report_reads():
    joint = corpus.load("softmaxes")
    text = str(explain(partition(joint, "budget", PartitionOptions(budget=0.0))))
    assert text.startswith("saved: ")
    assert "[priced: costs memory to save and time to recompute]" in text
    assert "recomputed: " in text
    assert "us)" in text
    assert "make_corpus.py" in text
