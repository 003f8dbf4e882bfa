/* Roots of a tree whose checks hold as long as a few words of memory are unchanged. Such roots are namespaces of
 * modules, classes, and functions.
 *
 * Values that a program reads from torch, NumPy and the standard library are in dictionaries, classes and
 * functions that rarely change. The tree refers to these objects directly (pinned). All tests of such a root
 * depend only on
 *
 * - the version number of a dictionary (dict_states.c), if the tests need only keys and constant values;
 * - the version tag of a class, which any change of the class or its bases changes;
 * - the number of registrations with abstract base classes (abc_subclass.c), if the tests need only subclass
 *   checks;
 * - the pointers to the code and the defaults of a function, if the tests need only their identities.
 *
 * All words are in one array, with the values that they had when the root's checks held. One comparison takes
 * less than a nanosecond. Only if a word of a root differs, the root is checked by its names. After that, its
 * words are recorded again. */
#include "guard_tree.h"

/* No word has this value: version numbers count from 1, tags have 32 bits, pointers are aligned. */
#define NEVER UINT64_MAX

static inline uint64_t read_word(const Word *word) {
    return word->narrow ? *(const unsigned int *)word->at : *(const uint64_t *)word->at;
}

static PyObject *pinned_object(const Node *node) {
    if (node->root == ROOT_PINNED) return node->object;
    return node->root == ROOT_PINNED_WEAKLY ? weak_target(node->object) : NULL;
}

/* Writes the addresses of the words on which a root depends. Returns their number. 0: the root also depends on
 * data without such words. */
static int words_of_function(const Node *node, PyObject *function, Word *words) {
    if (node->test_count > 0) return 0;
    for (int i = 0; i < node->child_count; i++) {
        Py_ssize_t offset = function_field(&node->children[i]);
        if (offset < 0 || i == MAX_ROOT_WORDS || !is_constant_leaf(&node->children[i])) return 0;
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
    if (node->skip_dict != DICT_OWN || node->open_tests > 0 || node->open_children > 0 || dict_version(dict) == 0) return 0;
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

int root_words_build(Tree *tree) {
    tree->words = PyMem_Calloc(tree->root_count * MAX_ROOT_WORDS + 1, sizeof *tree->words);
    if (tree->words == NULL) return PyErr_NoMemory(), -1;
    for (int i = 0; i < tree->root_count; i++) {
        Word *words = tree->words + tree->word_count;
        int count = words_of(&tree->roots[i], words);
        tree->roots[i].has_words = count > 0;
        for (int j = 0; j < count; j++) words[j].root = i;
        tree->word_count += count;
    }
    return 0;
}

/* Returns the first word from `from` on whose value has changed. word_count if there is none. */
int root_words_differ(const Tree *tree, int from) {
    const Word *words = tree->words;
    for (; from < tree->word_count; from++)
        if (unlikely(read_word(&words[from]) != words[from].value)) break;
    return from;
}

/* Reads the current values of all words of one root. Returns the index of the first word of this root. */
int root_words_read(const Tree *tree, int first, uint64_t *values) {
    int root = tree->words[first].root, count = 0;
    while (first > 0 && tree->words[first - 1].root == root) first--;
    for (int i = first; i < tree->word_count && tree->words[i].root == root; i++) values[count++] = read_word(&tree->words[i]);
    return first;
}

/* Records the values of the words when the root's checks held. A class without a tag (0) can change without
 * getting a tag, so its word gets NEVER. */
void root_words_remember(Tree *tree, int first, const uint64_t *values) {
    int root = tree->words[first].root;
    for (int i = first; i < tree->word_count && tree->words[i].root == root; i++)
        tree->words[i].value = tree->words[i].narrow && values[i - first] == 0 ? NEVER : values[i - first];
}
