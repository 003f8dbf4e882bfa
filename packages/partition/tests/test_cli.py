"""The command line: tables, pages, pictures, and errors in one line."""

import subprocess
import sys

from joint_programs import mlp, rand
from joints import trace_joint

from fxstack_interchange import save
from fxstack_partition import compare, corpus, partition
from fxstack_partition.__main__ import main
from fxstack_partition.report.html import to_html
from fxstack_partition.report.plots import cut_graph

PNG = b"\x89PNG"


def test_compare_writes_table_page_and_pictures(tmp_path, capsys):
    file = tmp_path / "mlp.fxg"
    save(trace_joint(mlp, rand(6, 5), rand(5, 7), rand(7, 3)), file)
    page, pictures = tmp_path / "page.html", tmp_path / "pictures"
    rest = ["--partitioners", "save_all", "budget", "--budgets", "0.0", "1.0"]
    assert main(["compare", str(file), *rest, "--html", str(page), "--png", str(pictures)]) == 0
    assert "budget 0" in capsys.readouterr().out
    assert "data:image/png;base64" in page.read_text()
    assert "saved values and reasons" in page.read_text()
    files = sorted(p.name for p in pictures.iterdir())
    assert files == ["mlp-pareto.png", "mlp-timeline.png"]
    assert all(p.read_bytes().startswith(PNG) for p in pictures.iterdir())


def test_explain_reads_the_corpus(capsys):
    assert main(["explain", "softmaxes"]) == 0
    assert "[heavy: is compute-heavy]" in capsys.readouterr().out


def test_corpus_lists_twenty_graphs(capsys):
    assert main(["corpus"]) == 0
    assert capsys.readouterr().out.split() == list(corpus.names())
    assert len(corpus.names()) == 20


def test_errors_are_one_line(capsys):
    assert main(["compare", "nothing"]) == 2
    assert capsys.readouterr().err.startswith("fxstack_partition: the corpus has no graph 'nothing'")
    assert main(["explain", "mlp_symbolic", "--partitioner", "nope"]) == 2
    assert "no partitioner is called 'nope'" in capsys.readouterr().err


def test_it_runs_as_a_module():
    command = [sys.executable, "-m", "fxstack_partition", "corpus"]
    assert "bert" in subprocess.run(command, capture_output=True, text=True, check=True).stdout


def test_text_from_graphs_is_escaped():
    joint = corpus.load("mlp_symbolic")
    page = to_html({"<script>": compare(joint, ["min_cut"])})
    assert "<script>" not in page
    assert "&lt;script&gt;" in page


def test_the_graph_around_the_cut():
    part = partition(trace_joint(mlp, rand(6, 5), rand(5, 7), rand(7, 3)))
    graph = cut_graph(part, 10)
    assert "saved mm" in graph
    assert {data["layer"] for _, data in graph.nodes(data=True)} == {0, 1, 2}


def test_files_and_names_are_checked_before_a_graph_is_compared(tmp_path, capsys):
    bad, folder = tmp_path / "bad.fxg.xz", tmp_path / "a" / "b"
    bad.write_bytes(b"damaged")
    part = partition(trace_joint(mlp, rand(6, 5), rand(5, 7), rand(7, 3)))
    save(part.forward, tmp_path / "forward.fxg")
    wrong = [["nothing"], [str(bad)], [str(tmp_path)], [str(tmp_path / "forward.fxg")]]
    wrong += [["--partitioners", "nope"], ["--html", str(tmp_path)], ["--png", str(bad)]]
    for one in wrong:
        assert main(["compare", "mlp_symbolic", *one]) == 2
        out = capsys.readouterr()
        assert (out.out, out.err.count("\n")) == ("", 1), one
    assert (
        main(["compare", "mlp_symbolic", "--partitioners", "save_all", "--html", str(folder / "x.html")]) == 0
    )
    assert "save_all" in (folder / "x.html").read_text()


def test_a_page_without_matplotlib_has_its_tables(monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    page = to_html({"mlp": compare(corpus.load("mlp_symbolic"), ["min_cut"])})
    assert "plots need matplotlib" in page
    assert "<td>min_cut</td>" in page
