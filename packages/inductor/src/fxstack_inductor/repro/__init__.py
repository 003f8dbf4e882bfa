"""Write a compiled graph as one standalone script: kernels, host program, inputs, check and timing.

``script`` composes the text from ``host`` (the host program), ``values`` (constants and inputs) and
``harness`` (the fixed part). Modules here import ``codegen.host``, ``targets.c`` and ``runtime``;
``harness`` imports only torch and the standard library. Begin with ``script.write_repro``.
"""
