"""The trace of a captured graph: one pass that makes an inference graph or a joint graph.

``trace`` is the pass; ``session`` holds the modes that are on during it; ``tracer`` and ``recording`` record
ATen operators; ``joint`` traces the backward through autograd; ``finalize`` closes the graph. The folder
imports ``aliasing``, ``operators`` and ``metadata``. Begin with ``trace``.
"""
