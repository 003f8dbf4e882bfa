"""What users are told about compilation.

``records`` are the data of ``explain``; ``recompiling`` says why a frame is compiled again; ``mistakes``
reports defects of the compiler once; ``verifying`` compares the graph with the compiled code. Begin with
``records``.
"""
