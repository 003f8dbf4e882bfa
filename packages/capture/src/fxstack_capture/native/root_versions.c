/* Roots of a tree that hold as long as a few words of memory are as they were: namespaces of modules, classes, and functions.
 *
 * What a program reads of torch, NumPy and the standard library lies in dictionaries, classes and functions that hardly ever change,
 * and that the tree refers to by themselves (pinned). All that is asked of such a root follows from
 *   - the number of the state of a dictionary (dict_states.c), where only keys and constant values are asked for;
 *   - the version tag of a class, which any change of it or of its bases changes;
 *   - the number of registrations with abstract classes (abstract.c), where only what they say of a class is asked for;
 *   - the pointers to the code and the defaults of a function, where only their identities are asked for.
 * The words of all of them lie in one array, with what they were when the root's own checks held. Comparing them takes less than a
 * nanosecond each; only the roots whose words differ are looked at, by name, and their words are remembered anew. */
#include "object_compat.h"
#include "tree.h"

#define NEVER UINT64_MAX /* no word is this: numbers of states count from 1, tags have 32 bits, pointers are aligned */

static inline uint64_t read_word(const Word *word) {
    return word->narrow ? *(const unsigned int *)word->at : *(const uint64_t *)word->at;
}

static PyObject *pinned_object(const Node *node) {
    if (node->root == ROOT_PINNED) return node->object;
    return node->root == ROOT_PINNED_WEAKLY ? weak_target(node->object) : NULL;
}

/* How many words decide about a root; 0: it is not stable. Writes their addresses. */
static int words_of_function(const Node *node, PyObject *function, Word *words) {
    if (node->test_count > 0) return 0;
    for (int i = 0; i < node->child_count; i++) {
        Py_ssize_t offset = function_field(&node->children[i]);
        if (offset < 0 || i == STABLE_WORDS || !is_constant_leaf(&node->children[i])) return 0;
        words[i] = (Word){(char *)function + offset, NEVER, 0, 0};
    }
    return node->child_count;
}

static int words_of_class(const Node *node, PyObject *cls, Word *words) {
    int count = 0, of_class = 0, of_registrations = 0;
    for (int i = 0; i < node->test_count; i++) {
        if (!node->tests[i].of_class && !node->tests[i].of_registrations) return 0;
        of_class |= node->tests[i].of_class;
        of_registrations |= node->tests[i].of_registrations;
    }
    if (node->child_count > 0 || (of_registrations && registrations_word == NULL)) return 0;
    if (of_class) words[count++] = (Word){&((PyTypeObject *)cls)->tp_version_tag, NEVER, 1, 0};
    if (of_registrations) words[count++] = (Word){registrations_word, NEVER, 0, 0};
    return count;
}

static int words_of_dict(const Node *node, PyObject *dict, Word *words) {
    if (node->settles != DICT_OWN || node->open_tests > 0 || node->open_children > 0 || dict_version(dict) == 0) return 0;
    words[0] = (Word){(void *)dict_state_at(dict), NEVER, 0, 0};
    return 1;
}

static int words_of(const Node *node, Word *words) {
    PyObject *object = pinned_object(node);
    if (object == NULL || object == Py_None || node->register_index >= 0) return 0;
    if (PyFunction_Check(object)) return words_of_function(node, object, words);
    if (PyType_Check(object)) return words_of_class(node, object, words);
    return PyDict_CheckExact(object) ? words_of_dict(node, object, words) : 0;
}

int stable_build(Tree *tree) {
    tree->words = PyMem_Calloc(tree->root_count * STABLE_WORDS + 1, sizeof *tree->words);
    if (tree->words == NULL) return PyErr_NoMemory(), -1;
    for (int i = 0; i < tree->root_count; i++) {
        Word *words = tree->words + tree->word_count;
        int count = words_of(&tree->roots[i], words);
        tree->roots[i].stable = count > 0;
        for (int j = 0; j < count; j++) words[j].root = i;
        tree->word_count += count;
    }
    return 0;
}

/* The first of the words from `from` on that is not as it was; word_count: none. */
int stable_differs(const Tree *tree, int from) {
    const Word *words = tree->words;
    for (; from < tree->word_count; from++)
        if (unlikely(read_word(&words[from]) != words[from].value)) break;
    return from;
}

/* What the words of one root are, from the first of them on. */
int stable_read(const Tree *tree, int first, uint64_t *values) {
    int root = tree->words[first].root, count = 0;
    while (first > 0 && tree->words[first - 1].root == root) first--;
    for (int i = first; i < tree->word_count && tree->words[i].root == root; i++) values[count++] = read_word(&tree->words[i]);
    return first;
}

/* The root's checks hold, and held when its words were these. A class without a tag (0) can change without getting one. */
void stable_remember(Tree *tree, int first, const uint64_t *values) {
    int root = tree->words[first].root;
    for (int i = first; i < tree->word_count && tree->words[i].root == root; i++)
        tree->words[i].value = tree->words[i].narrow && values[i - first] == 0 ? NEVER : values[i - first];
}
