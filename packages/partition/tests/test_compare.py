"""Comparisons: one row for each partitioner and budget, with figures that agree with the parts."""

from fxstack_partition import PartitionOptions, compare, corpus, partition, save_all, simulate


def test_rows_agree_with_single_runs():
    joint = corpus.load("softmaxes")
    table = compare(joint, ["save_all", "min_cut", "budget"], budgets=[0.0, 1.0])
    labels = [row.label for row in table.rows]
    assert labels == ["save_all", "min_cut", "budget 0", "budget 1"]
    lowest = partition(joint, "budget", PartitionOptions(budget=0.0))
    assert table.rows[2].peak == simulate(lowest).peak
    assert table.rows[0].recomputed_flops == 0
    assert table.rows[2].recomputed_flops > table.rows[1].recomputed_flops > 0
    assert table.rows[2].step_seconds > table.rows[0].step_seconds


def test_the_table_reads():
    text = str(compare(corpus.load("mlp_symbolic"), ["min_cut", save_all]))
    lines = text.splitlines()
    assert lines[0] == "122 nodes"
    assert lines[1].split()[:2] == ["partitioner", "saved"]
    assert [line.split()[0] for line in lines[2:]] == ["min_cut", "save_all"]


def test_an_impossible_budget_is_a_row_that_says_so():
    table = compare(corpus.load("mlp_symbolic"), ["budget"], budgets=[1])
    assert "cannot be met" in table.rows[0].error
    assert "cannot be met" in str(table)


def test_without_budgets_the_options_count():
    table = compare(corpus.load("softmaxes"), ["budget"], (), PartitionOptions(budget=0.0))
    assert [row.label for row in table.rows] == ["budget"]
    assert table.rows[0].recomputed_flops > 0
