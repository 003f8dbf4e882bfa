"""Everything that knows the layout of an instruction.

``units`` reads the instructions of a code object, ``decode`` makes a ``program`` of steps of them; ``opcode`` holds
the facts of an opcode, ``flow`` describes control flow, ``assemble`` and ``layout`` write code. The differences between
Python versions stand in ``versions``. Begin with ``decode`` for reading and ``assemble`` for writing.
"""
