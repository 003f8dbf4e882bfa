"""Run the captured graph once and record the functional or joint ATen graph.

The folder may import ``metadata``, ``operators``, ``random``, ``aliasing`` and ``shell``, not ``runtime``,
``hooks``, ``subclasses`` or ``disk``. Begin with ``trace``, which restarts a trace when an assumption fails.
``session`` sets up the modes of one trace, ``interpret`` runs the nodes, ``recording`` and ``tracer`` write
the graph; ``functional``, ``joint`` and ``finalize`` complete it.
"""
