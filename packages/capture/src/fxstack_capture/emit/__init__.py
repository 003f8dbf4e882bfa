"""Emit the replacement code of a frame from the outcome of a trace.

``frame`` writes a replacement. ``loads`` reloads values by their sources. ``rebuild`` makes new values.
``effects`` replays side effects. ``endings`` ends a frame at a graph break, an error or a fallback.
``resume`` makes the resume functions. The folder imports ``bytecode``, ``objects`` and ``trace``. Begin with
``frame``.
"""
