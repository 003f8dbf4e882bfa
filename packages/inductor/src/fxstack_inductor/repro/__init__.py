"""A compiled graph as one script that runs alone.

``script`` writes kernels, host program and inputs, ``harness`` the check and the clock that are part of each
script. The folder imports ``targets``. Begin with ``script``.
"""
