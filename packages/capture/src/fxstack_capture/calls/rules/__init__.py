"""All rules of Python's own library, joined into one table."""

from fxstack_capture.calls.rules import (
    annotations,
    builtin_functions,
    checkpointing,
    class_factories,
    context_variables,
    dict_methods,
    function_objects,
    higher_order,
    inspection,
    legacy_tensors,
    logging_calls,
    modules,
    numpy_functions,
    object_protocol,
    parameters,
    printing,
    random_numbers,
    torch_names,
    torch_wrappers,
    tracebacks,
    transforms,
    warning_calls,
)
from fxstack_capture.calls.table import RuleTable

RULES: RuleTable = RuleTable(
    (
        annotations.RULES,
        builtin_functions.RULES,
        checkpointing.RULES,
        class_factories.RULES,
        context_variables.RULES,
        object_protocol.RULES,
        parameters.RULES,
        dict_methods.RULES,
        function_objects.RULES,
        higher_order.RULES,
        inspection.RULES,
        legacy_tensors.RULES,
        logging_calls.RULES,
        modules.RULES,
        numpy_functions.RULES,
        printing.RULES,
        random_numbers.RULES,
        torch_names.RULES,
        torch_wrappers.RULES,
        warning_calls.RULES,
        tracebacks.RULES,
        transforms.RULES,
    )
)
