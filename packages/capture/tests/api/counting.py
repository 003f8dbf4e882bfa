"""A backend that runs the graphs as they are and remembers what it was given."""


class Counting:
    """``graphs`` and ``inputs`` of every compilation, and how many ``calls`` the results have had."""

    def __init__(self):
        self.graphs, self.inputs, self.calls = [], [], 0

    def __call__(self, graph_module, example_inputs):
        self.graphs.append(graph_module)
        self.inputs.append(example_inputs)

        def run(*args):
            self.calls += 1
            return graph_module(*args)

        return run
