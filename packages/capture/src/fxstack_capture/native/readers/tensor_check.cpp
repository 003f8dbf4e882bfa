// Tensor properties, read directly from c10::TensorImpl: about ten nanoseconds for each tensor.
//
// Compiled at first use against the installed torch (guards/tensor_build.py), because the layout of
// TensorImpl depends on the torch version. It includes only c10 headers, because the full headers take twenty
// seconds to compile. The few ATen functions below are declared by hand. The linker checks their names, and a
// test at load time checks their values.
#include <Python.h>

#include <ATen/PythonTorchFunctionTLS.h>
#include <ATen/SavedTensorHooks.h>
#include <c10/core/AutogradState.h>
#include <c10/core/DefaultDtype.h>
#include <c10/core/TensorImpl.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <c10/core/impl/TorchDispatchModeTLS.h>

#include <cstring>

#include "tensor_api.h"

namespace at {
class TensorBase {
 public:
  bool is_leaf() const;
};
class Context {
 public:
  bool deterministicAlgorithms() const;
  bool deterministicAlgorithmsWarnOnly() const;
  bool deterministicFillUninitializedMemory() const;
};
Context& globalContext();
int get_num_threads();
namespace autocast {
c10::ScalarType get_autocast_dtype(c10::DeviceType device);
bool is_autocast_cache_enabled();
}  // namespace autocast
}  // namespace at

// Functions of torch's C shim. They are weak because an older torch may lack them.
extern "C" {
__attribute__((weak)) int32_t aoti_record_function_start(const char*, void*, void* const*, uint64_t, void**);
__attribute__((weak)) int32_t aoti_record_function_end(void*);
}

namespace {

// torch.Tensor: the object header, then an at::Tensor, which is one pointer.
void* payload(PyObject* tensor) { return reinterpret_cast<char*>(tensor) + sizeof(PyObject); }
c10::TensorImpl* impl_of(PyObject* tensor) { return *static_cast<c10::TensorImpl**>(payload(tensor)); }

// torch.dtype, torch.device and torch.layout: the object header, then the value.
template <typename T>
T value_of(PyObject* object) {
  return *reinterpret_cast<T*>(reinterpret_cast<char*>(object) + sizeof(PyObject));
}

bool is_named(PyObject* object, const char* name) { return std::strcmp(Py_TYPE(object)->tp_name, name) == 0; }

int resolve(TensorDemand* d) {
  if (!is_named(d->dtype, "torch.dtype") || !is_named(d->device, "torch.device") || !is_named(d->layout, "torch.layout"))
    return 0;
  d->dtype_code = static_cast<int>(value_of<c10::ScalarType>(d->dtype));
  const auto device = value_of<c10::Device>(d->device);
  d->device_type = static_cast<int>(device.type());
  d->device_index = device.index();
  d->layout_code = static_cast<int>(value_of<c10::Layout>(d->layout));
  d->all_static = 1;
  for (int i = 0; i < d->ndim; i++)
    if (d->sizes[i] == ANY_NUMBER || (d->has_strides && d->strides[i] == ANY_NUMBER)) d->all_static = 0;
  d->resolved = 1;
  return 1;
}

// A loop in both cases: there are few numbers, and a call of memcmp takes longer.
bool same_numbers(c10::IntArrayRef found, const int64_t* demanded, bool all_static) {
  if (all_static) {
    int64_t differs = 0;
    for (size_t i = 0; i < found.size(); i++) differs |= demanded[i] ^ found[i];
    return differs == 0;
  }
  for (size_t i = 0; i < found.size(); i++)
    if (demanded[i] != ANY_NUMBER && demanded[i] != found[i]) return false;
  return true;
}

bool requires_grad(c10::TensorImpl* t) {
  auto* meta = t->autograd_meta();
  return meta != nullptr && meta->requires_grad();
}

int check(const TensorDemand* d, PyObject* tensor) try {
  auto* t = impl_of(tensor);
  if (t->key_set().raw_repr() != d->keyset || static_cast<int>(t->dtype().toScalarType()) != d->dtype_code) return 0;
  const auto device = t->device();
  if (static_cast<int>(device.type()) != d->device_type || device.index() != d->device_index) return 0;
  if (t->dim() != d->ndim || requires_grad(t) != static_cast<bool>(d->requires_grad)) return 0;
  if (!same_numbers(t->sizes(), d->sizes, d->all_static)) return 0;
  if (d->has_strides && !same_numbers(t->strides(), d->strides, d->all_static)) return 0;
  if (d->layout_code != static_cast<int>(c10::kStrided) && static_cast<int>(t->layout()) != d->layout_code) return 0;
  if (d->storage_offset != ANY_NUMBER && t->storage_offset() != d->storage_offset) return 0;
  // Without requires_grad the tensor has no grad_fn, so it is a leaf.
  if (d->is_leaf < 0) return 1;
  const bool leaf = !d->requires_grad || static_cast<at::TensorBase*>(payload(tensor))->is_leaf();
  return leaf == static_cast<bool>(d->is_leaf);
} catch (...) {
  return 0;
}

int at_dim(c10::IntArrayRef numbers, Py_ssize_t dim, int64_t* out) {
  const auto n = static_cast<Py_ssize_t>(numbers.size());
  if (dim < -n || dim >= n) return 0;
  *out = numbers[dim < 0 ? dim + n : dim];
  return 1;
}

int size(PyObject* tensor, Py_ssize_t dim, int64_t* out) try {
  return at_dim(impl_of(tensor)->sizes(), dim, out);
} catch (...) {
  return 0;
}

int stride(PyObject* tensor, Py_ssize_t dim, int64_t* out) try {
  return at_dim(impl_of(tensor)->strides(), dim, out);
} catch (...) {
  return 0;
}

int storage_offset(PyObject* tensor, int64_t* out) try {
  *out = impl_of(tensor)->storage_offset();
  return 1;
} catch (...) {
  return 0;
}

void* storage(PyObject* tensor) {
  auto* t = impl_of(tensor);
  return t->has_storage() ? t->unsafe_storage().unsafeGetStorageImpl() : nullptr;
}

int memory(PyObject* tensor, uintptr_t* begin, uintptr_t* end) {
  auto* t = impl_of(tensor);
  if (!t->has_storage()) return 0;
  const auto* storage = t->unsafe_storage().unsafeGetStorageImpl();
  const auto bytes = storage->sym_nbytes().maybe_as_int().value_or(0);
  const void* data = bytes > 0 ? storage->data() : nullptr;
  *begin = reinterpret_cast<uintptr_t>(data != nullptr ? data : storage);
  *end = *begin + (data != nullptr ? bytes : 1);
  return 1;
}

void state(TorchNumbers* out) {
  using at::autocast::get_autocast_dtype;
  using at::impl::PythonTorchFunctionTLS;
  const auto keys = c10::impl::tls_local_dispatch_key_set();
  const auto& autograd = c10::AutogradState::get_tls_state();
  const auto& context = at::globalContext();
  std::memset(out, 0, sizeof *out);
  out->included = keys.included_.raw_repr();
  out->excluded = keys.excluded_.raw_repr();
  int64_t* n = out->numbers;
  *n++ = autograd.get_grad_mode() | autograd.get_inference_mode() << 1 | autograd.get_fw_grad_mode() << 2;
  *n++ = static_cast<int64_t>(c10::get_default_dtype_as_scalartype());
  *n++ = static_cast<int64_t>(get_autocast_dtype(c10::DeviceType::CPU));
  *n++ = static_cast<int64_t>(get_autocast_dtype(c10::DeviceType::CUDA));
  *n++ = at::autocast::is_autocast_cache_enabled();
  *n++ = context.deterministicAlgorithms() | context.deterministicAlgorithmsWarnOnly() << 1 |
      context.deterministicFillUninitializedMemory() << 2;
  *n++ = at::get_num_threads();
  *n++ = PythonTorchFunctionTLS::get_disabled_state();
  const auto modes = PythonTorchFunctionTLS::stack_len() + c10::impl::TorchDispatchModeTLS::stack_len();
  const bool functorch = keys.included_.has(c10::DispatchKey::FuncTorchDynamicLayerFrontMode);
  out->exact = modes == 0 && !functorch && at::SavedTensorDefaultHooks::get_tls_state().stack.empty();
}

int has_saved_hooks() { return !at::SavedTensorDefaultHooks::get_tls_state().stack.empty(); }

void* begin_region(const char* name) {
  void* region = nullptr;
  if (!aoti_record_function_start || !aoti_record_function_end) return nullptr;
  return aoti_record_function_start(name, nullptr, nullptr, 0, &region) ? nullptr : region;
}

void end_region(void* region) { aoti_record_function_end(region); }

const TensorApi api = {TENSOR_API_VERSION, resolve, check, size, stride, storage_offset, storage, memory, state,
                       begin_region, end_region, has_saved_hooks};

PyModuleDef definition = {PyModuleDef_HEAD_INIT, "fxstack_tensor_check", nullptr, -1, nullptr, nullptr, nullptr, nullptr, nullptr};

}  // namespace

PyMODINIT_FUNC PyInit_fxstack_tensor_check() {
  PyObject* module = PyModule_Create(&definition);
  if (module == nullptr) return nullptr;
  PyObject* capsule = PyCapsule_New(const_cast<TensorApi*>(&api), TENSOR_API_CAPSULE, nullptr);
  if (PyModule_AddObjectRef(module, "api", capsule) < 0) Py_CLEAR(module);
  Py_XDECREF(capsule);
  return module;
}
