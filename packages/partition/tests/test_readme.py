"""What the README shows works."""

from pathlib import Path

from joint_programs import rand
from joints import compare, trace_joint

from fxstack_partition import PartitionOptions, analyze, extract, partition


def test_a_partitioner_of_ones_own():
    def inputs_only(joint, options):
        facts = analyze(joint)
        return extract(facts, facts.primals)

    joint = trace_joint(lambda x, w: (x @ w).sin().exp(), rand(3, 4), rand(4, 5))
    part = partition(joint, inputs_only)
    assert set(part.saved) == {"arg0_1", "arg1_1"}
    assert "mm" in part.recomputed
    compare(joint, part, (rand(3, 4), rand(4, 5)))


def test_the_second_example(capsys):
    page = (Path(__file__).parents[1] / "README.md").read_text()
    block = page.split("```python\n")[2].split("```")[0]
    exec(block, {"partition": partition, "PartitionOptions": PartitionOptions})
    shown = capsys.readouterr().out
    assert "budget 0.5" in shown
    assert "recomputed: " in shown
