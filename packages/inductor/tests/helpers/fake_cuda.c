// A CUDA driver that records instead of doing: what launches look like, without a GPU.
#include <stdint.h>
#include <string.h>

enum { MOST = 64, PARAMS = 16 };
typedef struct {
  int64_t function, grid, threads, shared, stream, context;
  int64_t params[PARAMS];
} Call;

Call fake_calls[MOST];
int fake_count, fake_status, fake_limit, loaded, shared_asked;
static void *current;

int cuDriverGetVersion(int *version) { *version = 13000; return 0; }
int cuInit(unsigned flags) { return 0; }
int cuDeviceGet(int *device, int index) { *device = index; return 0; }
int cuDevicePrimaryCtxRetain(void **context, int device) { *context = (void *)(intptr_t)(0x1000 + device); return 0; }
int cuCtxSetCurrent(void *context) { current = context; return 0; }
int cuCtxPushCurrent_v2(void *context) { current = context; return 0; }
int cuCtxPopCurrent_v2(void **context) { *context = current; current = 0; return 0; }
int cuModuleLoadData(void **module, const char *image) {
  if (memcmp(image, "\x7f" "ELF", 4)) return 200;
  *module = (void *)(intptr_t)(0x2000 + ++loaded);
  return 0;
}
int cuModuleGetFunction(void **function, void *module, const char *name) {
  *function = (char *)module + 0x1000;
  return strlen(name) ? 0 : 500;
}
int cuFuncSetAttribute(void *function, int attribute, int value) { shared_asked = attribute == 8 ? value : -1; return 0; }
int cuGetErrorString(int code, const char **text) { *text = code == 200 ? "device kernel image is invalid" : "invalid argument"; return 0; }

// The context must be current, as for the real driver; cuCtxPop has left none.
int cuLaunchKernel(void *function, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by,
                   unsigned bz, unsigned shared, void *stream, void **params, void **extra) {
  if (!current) return 201;
  if (fake_status) return fake_status;
  Call *call = &fake_calls[fake_count++ % MOST];
  *call = (Call){(intptr_t)function, gx, bx, shared, (intptr_t)stream, (intptr_t)current};
  for (int k = 0; k < fake_limit; k++) call->params[k] = *(int64_t *)params[k];
  return 0;
}
