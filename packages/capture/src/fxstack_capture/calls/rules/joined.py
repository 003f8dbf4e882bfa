"""The rules of all modules, joined into one table."""

from fxstack_capture.calls.rules.builtins import (
    builtin_functions,
    classes,
    dict_methods,
    evaluation,
    function_objects,
    inspection,
    listed_names,
    object_protocol,
    printing,
    running_frames,
    size_arithmetic,
    tracebacks,
)
from fxstack_capture.calls.rules.library import (
    cached_functions,
    class_factories,
    context_variables,
    finalizers,
    installed_packages,
    logging_calls,
    numpy_functions,
    numpy_random,
    operator_functions,
    random_numbers,
    regular_expressions,
    warning_calls,
)
from fxstack_capture.calls.rules.torch import (
    annotations,
    checkpointing,
    compiling,
    higher_order,
    hook_handles,
    legacy_tensors,
    modules,
    parameters,
    process_groups,
    transforms,
)
from fxstack_capture.calls.rules.torch import compiler_names as torch_names
from fxstack_capture.calls.rules.torch import overrides as torch_overrides
from fxstack_capture.calls.rules.torch import wrappers as torch_wrappers
from fxstack_capture.calls.table import RuleTable

RULES: RuleTable = RuleTable(
    (
        annotations.RULES,
        builtin_functions.RULES,
        classes.RULES,
        cached_functions.RULES,
        checkpointing.RULES,
        class_factories.RULES,
        compiling.RULES,
        context_variables.RULES,
        object_protocol.RULES,
        parameters.RULES,
        dict_methods.RULES,
        evaluation.RULES,
        finalizers.RULES,
        function_objects.RULES,
        installed_packages.RULES,
        higher_order.RULES,
        hook_handles.RULES,
        inspection.RULES,
        legacy_tensors.RULES,
        listed_names.RULES,
        logging_calls.RULES,
        modules.RULES,
        numpy_functions.RULES,
        numpy_random.RULES,
        operator_functions.RULES,
        printing.RULES,
        process_groups.RULES,
        random_numbers.RULES,
        regular_expressions.RULES,
        running_frames.RULES,
        size_arithmetic.RULES,
        torch_names.RULES,
        torch_overrides.RULES,
        torch_wrappers.RULES,
        warning_calls.RULES,
        tracebacks.RULES,
        transforms.RULES,
    )
)
