"""Guards: the conditions under which a compiled entry may be used for another call.

The trace writes ``records``. ``tree.compile_guards`` compiles the records into one native tree.
``explain.first_failure`` describes a guard that does not hold. ``records.tensors.tensor_facts`` reads the
facts about a tensor, and ``torch_state.snapshot`` reads torch's global state.
"""
