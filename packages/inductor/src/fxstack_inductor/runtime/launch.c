// Launches of compiled kernels through the CUDA driver: from ctypes, and from native host programs (codegen/device.h).
#include <stdarg.h>
#include <stdint.h>

typedef int (*launch_fn)(void *function, unsigned gx, unsigned gy, unsigned gz, unsigned bx,
                         unsigned by, unsigned bz, unsigned shared, void *stream, void **params,
                         void **extra);
typedef int (*set_context_fn)(void *context);

typedef struct {
  void *function;
  void *context;
  launch_fn launch;
  set_context_fn set_context;
  int32_t *error;
  uint32_t threads, shared;
  uint32_t arguments;   // what the caller gives: pointers and 64-bit integers
  uint32_t parameters;  // what the kernel takes: the rest are Triton's scratch pointers, null
} Kernel;

enum { MOST = 256, INVALID_CONTEXT = 201 };

// The first error is kept in *error; the caller looks at it when it has launched everything.
static void fx_launch(const Kernel *kernel, void *stream, int64_t grid, const int64_t *values, int32_t *error) {
  static const int64_t nothing = 0;
  void *params[MOST];
  if (grid <= 0) return;
  for (uint32_t k = 0; k < kernel->parameters; k++)
    params[k] = (void *)(k < kernel->arguments ? &values[k] : &nothing);
  int status = kernel->launch(kernel->function, (unsigned)grid, 1, 1, kernel->threads, 1, 1,
                              kernel->shared, stream, params, 0);
  if (status == INVALID_CONTEXT) {  // a thread that has not used the device yet
    kernel->set_context(kernel->context);
    status = kernel->launch(kernel->function, (unsigned)grid, 1, 1, kernel->threads, 1, 1,
                            kernel->shared, stream, params, 0);
  }
  if (status && !*error) *error = status;
}

void fxstack_launch(const Kernel *kernel, void *stream, int64_t grid, ...) {
  int64_t values[MOST];
  va_list rest;
  va_start(rest, grid);
  for (uint32_t k = 0; k < kernel->arguments; k++) values[k] = va_arg(rest, int64_t);
  va_end(rest);
  fx_launch(kernel, stream, grid, values, kernel->error);
}
