/* The checks of guards/records that compare several values by identity and aliasing. Sizes: shape_program.c. */
#include "guard_tree.h"
#include <stdlib.h>
#include <string.h>

/* The registers that a relation reads. program[0] is the count. */
static const int *register_list(const Test *t, int *count) {
    const int *list = t->program;
    *count = list[0];
    return list + 1;
}

static int relate_same_object(Test *t, const Value *registers) {
    int n;
    const int *list = register_list(t, &n);
    for (int i = 1; i < n; i++)
        if (registers[list[i]].object != registers[list[0]].object) return 0;
    return registers[list[0]].object != NULL;
}

/* Whether all pointers are different, by a small hash table on the stack. NULL differs from every pointer. */
static int all_different(void *const *pointers, int n) {
    enum { LIMIT = 4096 };
    void *table[2 * LIMIT];
    if (n <= 8 || n > LIMIT) {
        for (int i = 0; i < n; i++)
            for (int j = 0; j < i; j++)
                if (pointers[i] != NULL && pointers[i] == pointers[j]) return 0;
        return 1;
    }
    size_t size = 16;
    while (size < 2 * (size_t)n) size *= 2;
    memset(table, 0, size * sizeof *table);
    for (int i = 0; i < n; i++) {
        if (pointers[i] == NULL) continue;
        size_t at = (((uintptr_t)pointers[i] >> 4) * 0x9E3779B97F4A7C15ull >> 20) & (size - 1);
        while (table[at] != NULL && table[at] != pointers[i]) at = (at + 1) & (size - 1);
        if (table[at] != NULL) return 0;
        table[at] = pointers[i];
    }
    return 1;
}

/* If all pointers are the same as in the last run, the result of that run is still valid. */
static int relate_all_distinct(Test *t, const Value *registers) {
    int n, known = 1;
    const int *list = register_list(t, &n);
    void **pointers = t->memory;
    for (int i = 0; i < n; i++) {
        void *object = registers[list[i]].object;
        known &= pointers[i] == object;
        pointers[i] = object;
    }
    if (known && t->number) return 1;
    return (int)(t->number = all_different(pointers, n));
}

typedef struct {
    uintptr_t begin, end;
    int index; /* Position in the list of registers. */
} Memory;

static int by_begin(const void *left, const void *right) {
    uintptr_t a = ((const Memory *)left)->begin, b = ((const Memory *)right)->begin;
    return (a > b) - (a < b);
}

static int is_apart(const Memory *used, int n) {
    for (int i = 1; i < n; i++)
        if (used[i - 1].end > used[i].begin) return 0;
    return 1;
}

/* Different storages can share memory (two tensors from one NumPy array). `used` keeps the sorted order of the
 * last run. For the parameters of a model, this order is usually still correct, so no sort is needed. */
static int relate_no_overlap(Test *t, const Value *registers) {
    int n;
    const int *list = register_list(t, &n);
    Memory *used = t->memory;
    for (int i = 0; i < n; i++) {
        Memory *m = &used[i];
        PyObject *object = registers[list[m->index]].object;
        if (is_tensor(object) && tensors->memory(object, &m->begin, &m->end)) continue;
        m->begin = m->end = 0;
    }
    if (is_apart(used, n)) return 1;
    qsort(used, n, sizeof *used, by_begin);
    return is_apart(used, n);
}

static int relate_shares_storage(Test *t, const Value *registers) {
    int n;
    const int *list = register_list(t, &n);
    void *first = NULL;
    for (int i = 0; i < n; i++) {
        PyObject *object = registers[list[i]].object;
        void *storage = is_tensor(object) ? tensors->storage(object) : NULL;
        if (storage == NULL || (i > 0 && storage != first)) return 0;
        first = storage;
    }
    return 1;
}

static int *registers_of(PyObject *numbers, int limit) {
    Py_ssize_t n = PyTuple_GET_SIZE(numbers);
    int *list = PyMem_Malloc((n + 1) * sizeof *list);
    if (list == NULL) return (int *)PyErr_NoMemory();
    list[0] = (int)n;
    for (Py_ssize_t i = 0; i < n; i++) {
        long r = PyLong_AsLong(PyTuple_GET_ITEM(numbers, i));
        if (r < 0 || r >= limit) {
            if (!PyErr_Occurred()) PyErr_SetString(PyExc_ValueError, "no such register");
            PyMem_Free(list);
            return NULL;
        }
        list[i + 1] = (int)r;
    }
    return list;
}

static const struct {
    const char *kind;
    RelationFunction run;
    size_t memory; /* Bytes for each register. */
} table[] = {
    {"SameObject", relate_same_object, 0},
    {"AllDistinct", relate_all_distinct, sizeof(void *)},
    {"NoOverlap", relate_no_overlap, sizeof(Memory)},
    {"SharesStorage", relate_shares_storage, 0},
};

static int give_memory(Test *test, size_t size) {
    int n;
    register_list(test, &n);
    if (size == 0) return 0;
    test->memory = PyMem_Calloc(n + 1, size);
    if (test->memory == NULL) return PyErr_NoMemory(), -1;
    if (test->relation == relate_no_overlap)
        for (int i = 0; i < n; i++) ((Memory *)test->memory)[i].index = i;
    return 0;
}

int relation_build(Tree *tree, Test *test, const char *kind, PyObject *arguments) {
    if (strcmp(kind, "ShapeHolds") == 0) return shape_build(tree, test, arguments);
    PyObject *numbers;
    if (!PyArg_ParseTuple(arguments, "O!", &PyTuple_Type, &numbers)) return -1;
    for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
        if (strcmp(kind, table[i].kind) != 0) continue;
        test->relation = table[i].run;
        test->program = registers_of(numbers, tree->register_count);
        return test->program ? give_memory(test, table[i].memory) : -1;
    }
    return PyErr_Format(PyExc_ValueError, "unknown relation %s", kind), -1;
}
