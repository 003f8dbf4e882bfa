"""``fxstack minify``: reduce a program that is wrong or fails on fxstack to a script of at most 30 lines.

``checking`` compares each compiled graph with eager in the process of the program; ``compare`` says what differs.
A graph that fails is a ``cases.Case``. ``reduction`` makes the case smaller by the operations of ``surgery``, while
the script that ``script`` writes for it still fails; each trial is a forked process (``trials``). ``stages`` finds the
first stage that fails; ``programs`` reduces the program itself where all graphs agree. Begin with ``command``.
"""
