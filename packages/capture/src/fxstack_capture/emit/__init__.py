"""From the outcome of a trace to the code that replaces a frame.

``frame`` writes a replacement; ``loads`` reloads values by their sources; ``rebuild`` makes new values;
``effects`` replays side effects; ``endings`` ends a frame at a break, an error or a fallback; ``resume``
makes the functions that continue a frame. The folder imports ``bytecode``, ``objects`` and ``trace``. Begin
with ``frame``.
"""
