"""Torch's global state, as the trace reads and changes it.

Grad mode, autocast, defaults (``state``), generators (``seeding``, ``generator_draws``), and what of torch's
own functions a graph relies on (``torch_names``, ``global_dependencies``). Begin with ``state``.
"""
