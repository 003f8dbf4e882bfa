"""Guards: what must hold for a compiled entry to be used again.

``records`` are written while tracing; ``tree.compile_guards`` compiles them into one native tree;
``explain.first_failure`` says in words which one does not hold; ``tensors.tensor_facts`` and
``torch_state.snapshot`` read what guards demand of tensors and of torch's global state.
"""
