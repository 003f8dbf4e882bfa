/* The checks of guards/records that test one value. */
#include "guard_tree.h"
#include <string.h>
#include <structmember.h>

static int check_type_is(Test *t, const Value *v) {
    if (v->object == NULL) return t->object == (PyObject *)&PyLong_Type;
    return holds_object(t->object, t->weak, (PyObject *)Py_TYPE(v->object));
}

static int check_word_is(Test *t, const Value *v) {
    if (v->object == NULL) return 1;
    if (!PyLong_CheckExact(v->object)) return 0;
    int overflow;
    long long word = PyLong_AsLongLongAndOverflow(v->object, &overflow);
    return !overflow && word < (1LL << 62) && word > -(1LL << 62);
}

static int check_identity_is(Test *t, const Value *v) { return v->object && holds_object(t->object, t->weak, v->object); }

static int check_equals(Test *t, const Value *v) {
    if (v->object != NULL) return same_constant(t->object, v->object);
    int overflow;
    return PyLong_CheckExact(t->object) && PyLong_AsLongLongAndOverflow(t->object, &overflow) == v->number && !overflow;
}

static int check_length_is(Test *t, const Value *v) {
    Py_ssize_t length;
    return v->object && plain_length(v->object, &length) && length == t->number;
}

/* --- keys ---------------------------------------------------------------------------------------- */

/* The tree holds keys as pairs (key or weak reference, how). `how` says how the key is compared: constants by
 * value, all other keys by identity. */
enum { KEY_CONSTANT, KEY_IDENTITY, KEY_WEAK, KEY_ABSENT };

static inline int key_holds(PyObject *keys, Py_ssize_t i, PyObject *key) {
    PyObject *held = PyTuple_GET_ITEM(keys, 2 * i);
    if (held == key) return 1;
    long how = PyLong_AS_LONG(PyTuple_GET_ITEM(keys, 2 * i + 1));
    if (how == KEY_CONSTANT) return same_constant(held, key);
    return how == KEY_WEAK && holds_object(held, 1, key);
}

typedef int (*KeyVisitor)(PyObject *keys, Py_ssize_t count, Py_ssize_t at, PyObject *key);

static int visit_ordered(PyObject *keys, Py_ssize_t count, Py_ssize_t at, PyObject *key) {
    return at < count && key_holds(keys, at, key);
}

static int visit_any(PyObject *keys, Py_ssize_t count, Py_ssize_t at, PyObject *key) {
    if (at < count && key_holds(keys, at, key)) return 1;
    for (Py_ssize_t i = 0; i < count; i++)
        if (key_holds(keys, i, key)) return 1;
    return 0;
}

static int visit_ordered_dict(PyObject *dict, PyObject *keys, Py_ssize_t count, KeyVisitor visit) {
    PyObject *iterator = PyODict_Type.tp_iter(dict), *key = NULL;
    int ok = iterator != NULL;
    for (Py_ssize_t i = 0; ok && (key = Py_TYPE(iterator)->tp_iternext(iterator)) != NULL; i++) {
        ok = visit(keys, count, i, key);
        Py_DECREF(key);
    }
    Py_XDECREF(iterator);
    if (PyErr_Occurred()) return PyErr_Clear(), 0;
    return ok;
}

static int visit_keys(PyObject *o, PyObject *keys, Py_ssize_t count, KeyVisitor visit) {
    Py_ssize_t position = 0, i = 0;
    PyObject *key, *value;
    Py_hash_t hash;
    if (PyODict_Check(o)) return visit_ordered_dict(o, keys, count, visit);
    if (PyDict_Check(o)) {
        while (PyDict_Next(o, &position, &key, &value))
            if (!visit(keys, count, i++, key)) return 0;
        return 1;
    }
    if (!PyAnySet_Check(o)) return 0;
    while (_PySet_NextEntry(o, &position, &key, &hash))
        if (!visit(keys, count, i++, key)) return 0;
    return 1;
}

static int check_keys_are(Test *t, const Value *v) {
    Py_ssize_t length, count = PyTuple_GET_SIZE(t->object) / 2;
    if (v->object == NULL || !plain_length(v->object, &length) || length != count) return 0;
    return visit_keys(v->object, t->object, count, t->number ? visit_ordered : visit_any);
}

static int check_has_key(Test *t, const Value *v) {
    PyObject *o = v->object, *key = t->weak ? weak_target(t->object) : t->object;
    Py_ssize_t hint = 0;
    int has;
    if (key == Py_None && t->weak) return 0; /* The class has been freed. */
    if (o != NULL && PyDict_Check(o)) has = dict_find(o, key, t->number2, &hint) != NULL;
    else if (o != NULL && PyAnySet_Check(o)) has = set_has(o, key, t->number2);
    else return 0;
    return has == t->number;
}

/* HasKey of an instance dictionary. The test reads the instance, so that no dictionary is created. */
static int check_has_attr(Test *t, const Value *v) {
    if (v->object == NULL) return 0;
    Node step = {.object = t->object, .hash = t->number2, .hint = 0};
    Value unused;
    return instance_attr_find(&step, v, &unused) == t->number;
}

static inline int is_empty_dict(PyObject *object) { return PyDict_Check(object) && PyDict_GET_SIZE(object) == 0; }

/* Tests the names in an instance dictionary. The first t->number names must be absent. The values of all other
 * names must be empty dicts. */
static int look_at_members(Test *t, const Value *v, int note) {
    Node *names = t->program;
    if (v->object == NULL) return 0;
    for (int64_t i = 0; i < t->number2; i++) {
        Value found;
        int there = instance_attr_find(&names[i], v, &found);
        if (there != (i >= t->number) || (there && !is_empty_dict(found.object))) return 0;
        if (note) names[i].known = there ? found.object : NULL;
    }
    return 1;
}

static int check_members_are(Test *t, const Value *v) { return look_at_members(t, v, 0); }
static int note_members(Test *t, const Value *v) { return look_at_members(t, v, 1); }

/* note_members has recorded the members, and the dictionary is unchanged. Test only whether the dicts among the
 * members are still empty. */
static int check_members_again(Test *t, const Value *v) {
    Node *names = t->program;
    for (int64_t i = t->number; i < t->number2; i++)
        if (!is_empty_dict(names[i].known)) return 0;
    return 1;
}

static int is_within(PyObject *marks, PyObject *allowed) {
    PyObject *item, *iterator = PyAnySet_CheckExact(marks) ? PyObject_GetIter(marks) : NULL;
    int within = iterator != NULL;
    while (within && (item = PyIter_Next(iterator)) != NULL) {
        within = PyLong_CheckExact(item) && PySet_Contains(allowed, item) == 1;
        Py_DECREF(item);
    }
    Py_XDECREF(iterator);
    PyErr_Clear();
    return within;
}

/* Tests each attribute that t->program names. The tensor must lack the attribute, or its value must be a set of
 * integers that is a subset of the corresponding set in t->object. A tensor without instance attributes has no
 * marks. */
static int check_marks_within(Test *t, const Value *v) {
    if (likely(v->object != NULL && is_bare_instance(v->object))) return 1;
    if (!is_tensor(v->object)) return 0;
    Node *names = t->program;
    for (int64_t i = 0; i < t->number; i++) {
        Value found;
        if (!instance_attr_find(&names[i], v, &found)) continue;
        Py_INCREF(found.object);
        int within = is_within(found.object, PyTuple_GET_ITEM(t->object, i));
        Py_DECREF(found.object);
        if (!within) return 0;
    }
    return 1;
}

static int check_slot_unset(Test *t, const Value *v) {
    PyMemberDescrObject *descriptor = (PyMemberDescrObject *)t->object;
    if (v->object == NULL || !PyObject_TypeCheck(v->object, PyDescr_TYPE(descriptor))) return 0;
    return *(PyObject **)((char *)v->object + descriptor->d_member->offset) == NULL;
}

static int check_cell_empty(Test *t, const Value *v) {
    return v->object && PyCell_Check(v->object) && PyCell_GET(v->object) == NULL;
}

/* --- others -------------------------------------------------------------------------------------- */

static int range_field(PyObject *range, const char *name, PyObject *expected) {
    PyObject *value = PyObject_GetAttrString(range, name);
    if (value == NULL) return PyErr_Clear(), 0;
    int same = same_constant(value, expected);
    Py_DECREF(value);
    return same;
}

static int check_range_is(Test *t, const Value *v) {
    if (v->object == NULL || !PyRange_Check(v->object)) return 0;
    return range_field(v->object, "start", PyTuple_GET_ITEM(t->object, 0)) &&
           range_field(v->object, "stop", PyTuple_GET_ITEM(t->object, 1)) &&
           range_field(v->object, "step", PyTuple_GET_ITEM(t->object, 2));
}

/* In `held`, the MRO follows the values: the class and its bases, in order. It is empty if the guard does not
 * check the MRO. */
static int has_bases(PyTypeObject *type, PyObject *held, Py_ssize_t first) {
    Py_ssize_t count = PyTuple_GET_SIZE(held) / 2 - first;
    if (count == 0) return 1;
    PyObject *mro = type->tp_mro;
    if (mro == NULL || PyTuple_GET_SIZE(mro) != count) return 0;
    for (Py_ssize_t i = 0; i < count; i++) {
        long how = PyLong_AS_LONG(PyTuple_GET_ITEM(held, 2 * (first + i) + 1));
        if (!holds_object(PyTuple_GET_ITEM(held, 2 * (first + i)), how == KEY_WEAK, PyTuple_GET_ITEM(mro, i))) return 0;
    }
    return 1;
}

/* Any change of the class or its bases changes the version tag. If the tag is unchanged, no lookup is necessary. */
static int check_class_unchanged(Test *t, const Value *v) {
    if (v->object == NULL || !PyType_Check(v->object)) return 0;
    PyTypeObject *type = (PyTypeObject *)v->object;
    if (likely(t->number2 == (int64_t)(intptr_t)type && t->number != 0 && type->tp_version_tag == t->number)) return 1;
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(t->object); i++) {
        PyObject *found = _PyType_Lookup(type, PyTuple_GET_ITEM(t->object, i));
        PyObject *held = PyTuple_GET_ITEM(t->other, 2 * i);
        long how = PyLong_AS_LONG(PyTuple_GET_ITEM(t->other, 2 * i + 1));
        if (how == KEY_ABSENT) {
            if (found != NULL) return 0;
        } else if (found == NULL || !holds_object(held, how == KEY_WEAK, found)) {
            return 0;
        }
    }
    if (!has_bases(type, t->other, PyTuple_GET_SIZE(t->object))) return 0;
    /* The lookups have assigned a tag. It is 0 only if CPython ran out of tags. */
    t->number = type->tp_version_tag;
    t->number2 = (int64_t)(intptr_t)type;
    return 1;
}

/* --- building ------------------------------------------------------------------------------------ */

/* Holds a dict key. A constant is held by value, any other key by identity and weakly if possible. */
static PyObject *hold_key(Tree *tree, PyObject *key, int *how) {
    int weak = 0;
    *how = KEY_CONSTANT;
    if (is_constant(key)) return key;
    PyObject *held = tree_hold_weakly(tree, key, &weak);
    *how = weak ? KEY_WEAK : KEY_IDENTITY;
    return held;
}

/* Holds the value of a class attribute, given as (value,), by identity and weakly if possible. None stands for a
 * missing attribute. */
static PyObject *hold_attribute(Tree *tree, PyObject *item, int *how) {
    int weak = 0;
    *how = KEY_ABSENT;
    if (!PyTuple_Check(item)) return item;
    PyObject *held = tree_hold_weakly(tree, PyTuple_GET_ITEM(item, 0), &weak);
    *how = weak ? KEY_WEAK : KEY_IDENTITY;
    return held;
}

static PyObject *hold_all(Tree *tree, PyObject *items, PyObject *(*hold)(Tree *, PyObject *, int *)) {
    Py_ssize_t n = PyTuple_GET_SIZE(items);
    PyObject *held = PyTuple_New(2 * n);
    for (Py_ssize_t i = 0; held && i < n; i++) {
        int how;
        PyObject *kept = hold(tree, PyTuple_GET_ITEM(items, i), &how);
        if (kept == NULL) return Py_DECREF(held), NULL;
        PyTuple_SET_ITEM(held, 2 * i, Py_NewRef(kept));
        PyTuple_SET_ITEM(held, 2 * i + 1, PyLong_FromLong(how));
    }
    PyObject *result = held ? tree_hold(tree, held) : NULL;
    Py_XDECREF(held);
    return result;
}

static int build_weak(Tree *tree, Test *t, PyObject *args) {
    t->object = tree_hold_weakly(tree, PyTuple_GET_ITEM(args, 0), &t->weak);
    return t->object ? 0 : -1;
}

static int build_held(Tree *tree, Test *t, PyObject *args) {
    t->object = tree_hold(tree, PyTuple_GET_ITEM(args, 0));
    return t->object ? 0 : -1;
}

static int build_nothing(Tree *tree, Test *t, PyObject *args) { return (void)tree, (void)t, (void)args, 0; }

static int build_slot(Tree *tree, Test *t, PyObject *args) {
    PyObject *descriptor = PyTuple_GET_ITEM(args, 0);
    if (!Py_IS_TYPE(descriptor, &PyMemberDescr_Type) || ((PyMemberDescrObject *)descriptor)->d_member->type != T_OBJECT_EX)
        return PyErr_Format(PyExc_TypeError, "%R is not a member of __slots__", descriptor), -1;
    return build_held(tree, t, args);
}

static int build_length(Tree *tree, Test *t, PyObject *args) {
    t->number = PyLong_AsLongLong(PyTuple_GET_ITEM(args, 0));
    return PyErr_Occurred() ? -1 : 0;
}

static int build_keys(Tree *tree, Test *t, PyObject *args) {
    t->object = hold_all(tree, PyTuple_GET_ITEM(args, 0), hold_key);
    t->number = PyObject_IsTrue(PyTuple_GET_ITEM(args, 1));
    return t->object ? 0 : -1;
}

static int build_has_key(Tree *tree, Test *t, PyObject *args) {
    PyObject *key = PyTuple_GET_ITEM(args, 0);
    int by_identity = PyType_Check(key) || PyFunction_Check(key);
    if (!by_identity && !is_constant(key)) return PyErr_Format(PyExc_TypeError, "the key %R is not a constant", key), -1;
    t->number = PyObject_IsTrue(PyTuple_GET_ITEM(args, 1));
    t->number2 = PyObject_Hash(key);
    if (t->number2 == -1) return -1;
    t->object = by_identity ? tree_hold_weakly(tree, key, &t->weak) : tree_hold(tree, key);
    return t->object ? 0 : -1;
}

/* The attributes to look up, as nodes in t->program. They are freed with the test. */
static Node *make_names(Test *t, int64_t count) {
    t->program = PyMem_Calloc(count + 1, sizeof(Node));
    return t->program ? t->program : (Node *)PyErr_NoMemory();
}

static int fill_names(Node *nodes, PyObject *names) {
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(names); i++) {
        PyObject *name = PyTuple_GET_ITEM(names, i);
        if (!PyUnicode_CheckExact(name)) return PyErr_Format(PyExc_TypeError, "%R is not a name", name), -1;
        nodes[i].object = name;
        nodes[i].hash = PyObject_Hash(name);
    }
    return 0;
}

static int build_members(Tree *tree, Test *t, PyObject *args) {
    PyObject *absent = PyTuple_GET_ITEM(args, 0), *empty = PyTuple_GET_ITEM(args, 1);
    if (!PyTuple_Check(absent) || !PyTuple_Check(empty) || tree_hold(tree, args) == NULL)
        return PyErr_Occurred() ? -1 : (PyErr_SetString(PyExc_TypeError, "MembersAre takes two tuples of names"), -1);
    t->number = PyTuple_GET_SIZE(absent);
    t->number2 = t->number + PyTuple_GET_SIZE(empty);
    Node *names = make_names(t, t->number2);
    return names && fill_names(names, absent) == 0 && fill_names(names + t->number, empty) == 0 ? 0 : -1;
}

/* Arguments: (names, sets), two tuples of equal length. */
static int build_marks(Tree *tree, Test *t, PyObject *args) {
    PyObject *names = PyTuple_GET_ITEM(args, 0), *sets = PyTuple_GET_ITEM(args, 1);
    if (!PyTuple_Check(names) || !PyTuple_Check(sets) || PyTuple_GET_SIZE(names) != PyTuple_GET_SIZE(sets))
        return PyErr_SetString(PyExc_TypeError, "MarksWithin takes a tuple of names and a tuple of as many frozensets"), -1;
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(sets); i++)
        if (!PyFrozenSet_CheckExact(PyTuple_GET_ITEM(sets, i))) return PyErr_SetString(PyExc_TypeError, "each set of marks must be a frozenset"), -1;
    t->object = tree_hold(tree, sets);
    if (t->object == NULL || tree_hold(tree, names) == NULL) return -1;
    t->number = PyTuple_GET_SIZE(names);
    Node *nodes = make_names(t, t->number);
    return nodes && fill_names(nodes, names) == 0 ? 0 : -1;
}

static int build_class(Tree *tree, Test *t, PyObject *args) {
    t->object = tree_hold(tree, PyTuple_GET_ITEM(args, 0));
    t->other = t->object ? hold_all(tree, PyTuple_GET_ITEM(args, 1), hold_attribute) : NULL;
    return t->other ? 0 : -1;
}

/* Whether the test depends only on the object, and never changes its result. This is so for identity, for the
 * value of a constant, and for a class that its objects cannot change. */
static int is_of_constant(const Test *t) {
    /* The class of a module may change. */
    if (t->run == check_type_is && (t->weak || t->object == (PyObject *)&PyModule_Type)) return 0;
    if (t->run == check_type_is) return !(((PyTypeObject *)t->object)->tp_flags & Py_TPFLAGS_HEAPTYPE);
    return t->run == check_identity_is || t->run == check_equals || t->run == check_word_is;
}

static const struct {
    const char *kind;
    TestFunction run;
    int (*build)(Tree *, Test *, PyObject *);
    int arity;
    Dictionary depends_on;
} table[] = {
    {"TypeIs", check_type_is, build_weak, 1, DICT_NONE},
    {"IdentityIs", check_identity_is, build_weak, 1, DICT_NONE},
    {"Equals", check_equals, build_held, 1, DICT_NONE},
    {"WordIs", check_word_is, build_nothing, 0, DICT_NONE},
    {"LengthIs", check_length_is, build_length, 1, DICT_NONE},
    {"KeysAre", check_keys_are, build_keys, 2, DICT_OWN},
    {"HasKey", check_has_key, build_has_key, 2, DICT_OWN},
    {"HasAttr", check_has_attr, build_has_key, 2, DICT_OF_INSTANCE},
    {"MembersAre", check_members_are, build_members, 2, DICT_OF_INSTANCE},
    {"MarksWithin", check_marks_within, build_marks, 2, DICT_NONE},
    {"SlotUnset", check_slot_unset, build_slot, 1, DICT_NONE},
    {"CellEmpty", check_cell_empty, build_nothing, 0, DICT_NONE},
    {"RangeIs", check_range_is, build_held, 1, DICT_NONE},
    {"ClassUnchanged", check_class_unchanged, build_class, 2, DICT_NONE},
    {"SubclassIs", check_subclass_is, build_subclass, 2, DICT_NONE},
    {"TensorIs", check_tensor_is, build_tensor, 10, DICT_NONE},
    {"TorchStateIs", check_torch_state, build_state, 3, DICT_NONE},
};

int test_build(Tree *tree, Test *test, const char *kind, PyObject *args) {
    for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
        if (strcmp(kind, table[i].kind) != 0) continue;
        if (PyTuple_GET_SIZE(args) != table[i].arity)
            return PyErr_Format(PyExc_TypeError, "%s takes %d arguments", kind, table[i].arity), -1;
        test->run = table[i].run;
        test->depends_on = table[i].depends_on;
        if (test->run == check_members_are) test->first = note_members, test->again = check_members_again;
        if (table[i].build(tree, test, args) < 0) return -1;
        test->of_constant = is_of_constant(test);
        test->of_class = test->run == check_class_unchanged;
        test->of_registrations = test->run == check_subclass_is;
        return 0;
    }
    return PyErr_Format(PyExc_ValueError, "unknown check %s", kind), -1;
}

void test_release(Test *test) {
    if (test->tensor) PyMem_Free(test->tensor->sizes);
    PyMem_Free(test->tensor);
    PyMem_Free(test->numbers);
    PyMem_Free(test->program);
    PyMem_Free(test->memory);
}
