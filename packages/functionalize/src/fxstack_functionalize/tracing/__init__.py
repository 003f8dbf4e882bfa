"""One trace of a captured graph: the modes that are on during it, and the steps of the trace.

``session`` holds the modes; ``interpret`` runs the captured graph under them; ``joint`` traces the backward
through autograd; ``finalize`` closes the graph. ``fxstack_functionalize.passes`` lists the steps,
``fxstack_functionalize.trace`` runs them. Begin with ``session``.
"""
