"""The layout of instructions, jumps and exception tables in code objects.

``units`` reads the instructions of a code object, ``flow`` describes control flow, ``assemble`` and ``layout``
write code, ``null`` has the marker of an empty slot. The differences between Python versions stand in
``versions``, which decodes code into steps of the interpreter. Begin with ``units`` for reading and
``assemble`` for writing.
"""
