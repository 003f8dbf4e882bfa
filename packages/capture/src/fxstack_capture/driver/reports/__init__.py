"""Reports to users about compilation.

``records`` holds the data of ``explain``. ``recompiling`` reports why a frame is compiled again. ``mistakes``
reports each defect of the compiler once. ``verifying`` compares the graph with the compiled code. Begin with
``records``.
"""
