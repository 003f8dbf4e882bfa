/* The accesses of sources.py, one function for each. A function finds a value, or reports that it is missing. No
 * function runs Python code. */
#include "guard_tree.h"
#include <string.h>
#include <structmember.h>

static inline int borrowed(Value *to, PyObject *object) {
    *to = (Value){object, 0, 0};
    return object != NULL;
}

static inline int owned(Value *to, PyObject *object) {
    if (unlikely(object == NULL)) PyErr_Clear();
    *to = (Value){object, 0, 1};
    return object != NULL;
}

/* --- objects ------------------------------------------------------------------------------------- */

static int step_instance_dict(Node *node, const Value *from, Value *to) {
    return borrowed(to, from->object ? instance_dict(from->object) : NULL);
}

static PyObject *find_inline(Node *node, PyObject *object, PyDictValues *values) {
    PyDictKeysObject *keys = instance_keys(object);
    if (likely(node->hint < keys->dk_nentries) && likely(DK_UNICODE_ENTRIES(keys)[node->hint].me_key == node->object))
        return values->values[node->hint];
    Py_ssize_t i = keys_find(keys, node->object, node->hash);
    return i < 0 ? NULL : values->values[node->hint = i];
}

static int step_instance_attr(Node *node, const Value *from, Value *to) {
    if (from->object == NULL) return 0;
    PyObject *dict;
    PyDictValues *values = instance_values(from->object, &dict);
    if (values != NULL) return borrowed(to, find_inline(node, from->object, values));
    return dict ? borrowed(to, dict_find(dict, node->object, node->hash, &node->hint)) : 0;
}

static int step_slot_attr(Node *node, const Value *from, Value *to) {
    PyObject *object = from->object, *descriptor = node->object;
    if (object == NULL || !PyObject_TypeCheck(object, ((PyDescrObject *)descriptor)->d_type)) return 0;
    if (Py_IS_TYPE(descriptor, &PyMemberDescr_Type)) {
        PyMemberDef *member = ((PyMemberDescrObject *)descriptor)->d_member;
        if (member->type == T_OBJECT_EX) return borrowed(to, *(PyObject **)((char *)object + member->offset));
        return owned(to, PyMember_GetOne((char *)object, member));
    }
    PyGetSetDef *getset = ((PyGetSetDescrObject *)descriptor)->d_getset;
    return owned(to, getset->get(object, getset->closure));
}

static int step_builtin_attr(Node *node, const Value *from, Value *to) {
    return from->object ? owned(to, PyObject_GetAttr(from->object, node->object)) : 0;
}

/* The function attributes that guards read most often. They are read without the attribute protocol. */
#define FUNCTION_FIELD(NAME, FIELD)                                                                        \
    static int step_##NAME(Node *node, const Value *from, Value *to) {                                      \
        if (from->object == NULL || !PyFunction_Check(from->object)) return step_builtin_attr(node, from, to); \
        PyObject *value = ((PyFunctionObject *)from->object)->FIELD;                                        \
        return borrowed(to, value ? value : Py_None);                                                       \
    }
FUNCTION_FIELD(code, func_code)
FUNCTION_FIELD(defaults, func_defaults)
FUNCTION_FIELD(kwdefaults, func_kwdefaults)
FUNCTION_FIELD(closure, func_closure)
FUNCTION_FIELD(globals, func_globals)

static const struct {
    const char *name;
    StepFunction step;
    size_t offset;
} function_fields[] = {
    {"__code__", step_code, offsetof(PyFunctionObject, func_code)},
    {"__defaults__", step_defaults, offsetof(PyFunctionObject, func_defaults)},
    {"__kwdefaults__", step_kwdefaults, offsetof(PyFunctionObject, func_kwdefaults)},
    {"__closure__", step_closure, offsetof(PyFunctionObject, func_closure)},
    {"__globals__", step_globals, offsetof(PyFunctionObject, func_globals)},
};

Py_ssize_t function_field(const Node *node) {
    for (size_t i = 0; i < sizeof function_fields / sizeof *function_fields; i++)
        if (node->root == ROOT_STEP && node->step == function_fields[i].step) return function_fields[i].offset;
    return -1;
}

static StepFunction builtin_attr_step(PyObject *name) {
    for (size_t i = 0; i < sizeof function_fields / sizeof *function_fields; i++)
        if (PyUnicode_CompareWithASCIIString(name, function_fields[i].name) == 0) return function_fields[i].step;
    return step_builtin_attr;
}

static int step_class_attr(Node *node, const Value *from, Value *to) {
    if (from->object == NULL || !PyType_Check(from->object)) return 0;
    return borrowed(to, _PyType_Lookup((PyTypeObject *)from->object, node->object));
}

static int step_type_of(Node *node, const Value *from, Value *to) {
    return borrowed(to, from->object ? (PyObject *)Py_TYPE(from->object) : (PyObject *)&PyLong_Type);
}

static int step_cell(Node *node, const Value *from, Value *to) {
    return from->object && PyCell_Check(from->object) ? borrowed(to, PyCell_GET(from->object)) : 0;
}

/* --- containers ---------------------------------------------------------------------------------- */

static int item_of(PyObject *o, Py_ssize_t index, Value *to) {
    Py_ssize_t length;
    if (o == NULL || !plain_length(o, &length)) return 0;
    if (index < 0) index += length;
    if (index < 0 || index >= length) return 0;
    if (PyTuple_Check(o)) return borrowed(to, PyTuple_GET_ITEM(o, index));
    if (PyList_Check(o)) return borrowed(to, PyList_GET_ITEM(o, index));
    if (PyObject_TypeCheck(o, deque_type)) return owned(to, deque_type->tp_as_sequence->sq_item(o, index));
    return 0;
}

static int step_item(Node *node, const Value *from, Value *to) { return item_of(from->object, node->index, to); }

int step_item_at(const Value *of, const Value *at, Value *to) {
    Py_ssize_t index = at->number;
    if (at->object != NULL) {
        if (!PyLong_CheckExact(at->object)) return 0;
        index = PyLong_AsSsize_t(at->object);
        if (index == -1 && PyErr_Occurred()) return PyErr_Clear(), 0;
    }
    return item_of(of->object, index, to);
}

static int step_key(Node *node, const Value *from, Value *to) {
    if (from->object == NULL || !PyDict_Check(from->object)) return 0;
    return borrowed(to, dict_find(from->object, node->object, node->hash, &node->hint));
}

static int step_key_at(Node *node, const Value *from, Value *to) {
    PyObject *key;
    if (from->object == NULL || !entry_at(from->object, node->index, &key, NULL)) return 0;
    return owned(to, key);
}

static int step_value_at(Node *node, const Value *from, Value *to) {
    PyObject *key, *value;
    if (from->object == NULL || !PyDict_Check(from->object) || !entry_at(from->object, node->index, &key, &value)) return 0;
    Py_DECREF(key);
    return owned(to, value);
}

static int step_upcoming(Node *node, const Value *from, Value *to) {
    return from->object ? owned(to, upcoming_item(from->object, node->index)) : 0;
}

static int step_cached(Node *node, const Value *from, Value *to) {
    PyObject *found = from->object ? cached_result(from->object, node->object) : NULL;
    if (found == NULL) PyErr_Clear();
    return borrowed(to, found);
}

static int step_converted(Node *node, const Value *from, Value *to) {
    if (likely(from->object != NULL)) return owned(to, PyObject_CallOneArg(node->object, from->object));
    PyObject *number = PyLong_FromLongLong(from->number); /* An unboxed size. */
    int found = number != NULL && owned(to, PyObject_CallOneArg(node->object, number));
    Py_XDECREF(number);
    return found;
}

/* --- tensors ------------------------------------------------------------------------------------- */

static int step_size(Node *node, const Value *from, Value *to) {
    *to = (Value){NULL, 0, 0};
    return is_tensor(from->object) && tensors->size(from->object, node->index, &to->number);
}

static int step_stride(Node *node, const Value *from, Value *to) {
    *to = (Value){NULL, 0, 0};
    return is_tensor(from->object) && tensors->stride(from->object, node->index, &to->number);
}

static int step_storage_offset(Node *node, const Value *from, Value *to) {
    *to = (Value){NULL, 0, 0};
    return is_tensor(from->object) && tensors->storage_offset(from->object, &to->number);
}

/* Finds the number n for which scale * n + offset equals the number. */
static int step_affine(Node *node, const Value *from, Value *to) {
    int64_t shifted, scale = node->index, offset = node->hash;
    *to = (Value){NULL, 0, 0};
    if (from->object != NULL || __builtin_sub_overflow(from->number, offset, &shifted) || shifted % scale != 0) return 0;
    to->number = shifted / scale;
    return 1;
}

/* --- building ------------------------------------------------------------------------------------ */

typedef enum { TAKES_NOTHING, TAKES_NAME, TAKES_KEY, TAKES_INDEX, TAKES_DESCRIPTOR, TAKES_FUNCTION, TAKES_OBJECT, TAKES_LINE } Takes;

static const struct {
    const char *kind;
    StepFunction step;
    Takes takes;
} table[] = {
    {"InstanceDict", step_instance_dict, TAKES_NOTHING},
    {"InstanceAttr", step_instance_attr, TAKES_NAME},
    {"SlotAttr", step_slot_attr, TAKES_DESCRIPTOR},
    {"BuiltinAttr", step_builtin_attr, TAKES_NAME},
    {"ClassAttr", step_class_attr, TAKES_NAME},
    {"TypeOf", step_type_of, TAKES_NOTHING},
    {"Item", step_item, TAKES_INDEX},
    {"Key", step_key, TAKES_KEY},
    {"KeyAt", step_key_at, TAKES_INDEX},
    {"ValueAt", step_value_at, TAKES_INDEX},
    {"Upcoming", step_upcoming, TAKES_INDEX},
    {"Cached", step_cached, TAKES_OBJECT},
    {"Converted", step_converted, TAKES_FUNCTION},
    {"Cell", step_cell, TAKES_NOTHING},
    {"Size", step_size, TAKES_INDEX},
    {"Stride", step_stride, TAKES_INDEX},
    {"StorageOffset", step_storage_offset, TAKES_NOTHING},
    {"Affine", step_affine, TAKES_LINE},
};

static int take_key(Tree *tree, Node *node, PyObject *key) {
    if (!is_constant(key)) return PyErr_Format(PyExc_TypeError, "the key %R is not a constant", key), -1;
    node->hash = PyObject_Hash(key);
    if (node->hash == -1) return -1;
    node->object = tree_hold(tree, key);
    return node->object ? 0 : -1;
}

static int take_name(Tree *tree, Node *node, PyObject *name) {
    if (!PyUnicode_CheckExact(name)) return PyErr_Format(PyExc_TypeError, "%R is not an attribute name", name), -1;
    Py_INCREF(name);
    PyUnicode_InternInPlace(&name);
    int result = take_key(tree, node, name);
    Py_DECREF(name);
    return result;
}

static int take_descriptor(Tree *tree, Node *node, PyObject *descriptor) {
    int readable = Py_IS_TYPE(descriptor, &PyMemberDescr_Type) ||
                   (Py_IS_TYPE(descriptor, &PyGetSetDescr_Type) && ((PyGetSetDescrObject *)descriptor)->d_getset->get);
    if (!readable) return PyErr_Format(PyExc_TypeError, "%R is neither a slot nor a C-level attribute", descriptor), -1;
    node->object = tree_hold(tree, descriptor);
    return node->object ? 0 : -1;
}

/* Whether it is a method of a number, such as (2.5).__mul__. The headers of Python 3.13 do not declare the class
 * of such methods. */
static int is_operator_of_number(PyObject *function) {
    if (strcmp(Py_TYPE(function)->tp_name, "method-wrapper") != 0 || (Py_TYPE(function)->tp_flags & Py_TPFLAGS_HEAPTYPE)) return 0;
    PyObject *self = PyObject_GetAttrString(function, "__self__");
    if (self == NULL) return PyErr_Clear(), 0;
    int number = PyFloat_CheckExact(self) || PyLong_CheckExact(self);
    Py_DECREF(self);
    return number;
}

static int take(Tree *tree, Node *node, Takes takes, PyObject *argument) {
    switch (takes) {
    case TAKES_NOTHING: return 0;
    case TAKES_NAME: return take_name(tree, node, argument);
    case TAKES_KEY: return PyUnicode_CheckExact(argument) ? take_name(tree, node, argument) : take_key(tree, node, argument);
    case TAKES_DESCRIPTOR: return take_descriptor(tree, node, argument);
    case TAKES_FUNCTION:
        if (!PyCFunction_Check(argument) && !Py_IS_TYPE(argument, &PyMethodDescr_Type) && !is_operator_of_number(argument))
            return PyErr_Format(PyExc_TypeError, "%R is not a C function", argument), -1;
        /* fall through */
    case TAKES_OBJECT:
        node->object = tree_hold(tree, argument);
        return node->object ? 0 : -1;
    case TAKES_LINE: /* (scale, offset) */
        if (!PyArg_ParseTuple(argument, "nn", &node->index, &node->hash)) return -1;
        return node->index > 0 ? 0 : (PyErr_SetString(PyExc_ValueError, "the scale must be positive"), -1);
    case TAKES_INDEX: node->index = PyLong_AsSsize_t(argument); return PyErr_Occurred() ? -1 : 0;
    }
    return -1;
}

int step_build(Tree *tree, Node *node, const char *kind, PyObject *argument) {
    for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
        if (strcmp(kind, table[i].kind) != 0) continue;
        node->step = table[i].step;
        if (take(tree, node, table[i].takes, argument) < 0) return -1;
        if (node->step == step_builtin_attr) node->step = builtin_attr_step(node->object);
        return 0;
    }
    return PyErr_Format(PyExc_ValueError, "unknown step %s", kind), -1;
}

int instance_attr_find(Node *node, const Value *from, Value *to) { return step_instance_attr(node, from, to); }

int is_instance_attr(const Node *node) { return node->root == ROOT_STEP && node->step == step_instance_attr; }

int is_key(const Node *node) { return node->root == ROOT_STEP && node->step == step_key; }
