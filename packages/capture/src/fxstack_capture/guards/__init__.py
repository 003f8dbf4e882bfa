"""Guards: the conditions under which a compiled entry may be used again.

The trace writes ``records``. ``tree.compile_guards`` compiles the records into one native tree.
``explain.first_failure`` describes a guard that does not hold. ``tensors.tensor_facts`` and
``torch_state.snapshot`` read the facts about tensors and about torch's global state that guards demand.
"""
