"""C text of reductions and scans.

``combine`` has the statements of each reduction, ``lanes`` reduces rows of known length, ``columns`` reduces
across memory (``wide_rows``: few columns), ``scan`` carries running values. Modules here import ``ir`` and modules
of ``codegen.c``. Begin with ``combine``.
"""
