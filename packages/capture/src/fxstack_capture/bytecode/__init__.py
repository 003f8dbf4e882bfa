"""Everything that knows the layout of an instruction.

``decode`` reads a code object as a ``program`` of steps; ``operations`` and ``flow`` describe instructions,
``assemble`` and ``layout`` write them. The differences between Python versions stand in ``versions``. Begin
with ``decode`` for reading and ``assemble`` for writing.
"""
