"""The layout of instructions, jumps and exception tables in code objects.

``units`` reads the instructions of a code object. ``flow`` describes control flow. ``build``, ``assemble``
and ``layout`` write code. ``null`` has the marker of an empty slot. Begin with ``units`` for reading and
``assemble`` for writing.

The properties of opcodes are in ``fxstack_interchange.bytecode``. ``versions`` decodes code into steps of the
interpreter.
"""
