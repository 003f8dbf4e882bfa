// A CUDA driver for devices whose memory is the host's: machine code is loaded and launched by name alone, and recorded.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
enum { MOST = 1 << 16, MOST_PARAMETERS = 256 };
typedef struct {
  int64_t function, grid, threads, shared, stream, context, thread, time, image, count;
  int64_t parameters[MOST_PARAMETERS];
  char name[360];
} Call;
Call fake_calls[MOST];
int fake_count, fake_status, fake_devices = 2, fake_capability = 90;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static __thread void *current;
typedef struct { int64_t number; const char *start; } Image;
typedef struct { char name[512]; int shared, count, sizes[MOST_PARAMETERS]; int64_t image; } Function;

static Call *next_call(const char *name, int64_t grid, int64_t threads, int64_t shared, int64_t stream,
    int64_t context) {
  struct timespec now;
  clock_gettime(CLOCK_REALTIME, &now);
  Call *call = &fake_calls[fake_count++ % MOST];
  *call = (Call){0, grid, threads, shared, stream, context, (int64_t)pthread_self(),
      now.tv_sec * 1000000000ll + now.tv_nsec};
  snprintf(call->name, sizeof call->name, "%s", name);
  return call;
}
void fake_record(const char *name, int64_t grid, int64_t threads, int64_t shared, int64_t stream,
    int64_t context) {
  pthread_mutex_lock(&lock);
  next_call(name, grid, threads, shared, stream, context);
  pthread_mutex_unlock(&lock);
}
void fake_set_device(int device) { current = (void *)(intptr_t)(0x1000 + device); }

int cuInit(unsigned flags) { return 0; }
int cuDriverGetVersion(int *version) { *version = 13000; return 0; }
int cuDeviceGet(int *device, int index) { *device = index; return index >= fake_devices ? 101 : 0; }
int cuDeviceGetCount(int *count) { *count = fake_devices; return 0; }
int cuDeviceGetAttribute(int *value, int attribute, int device) {
  switch (attribute) {
    case 75: *value = fake_capability / 10; break;
    case 76: *value = fake_capability % 10; break;
    case 16: *value = 132; break;
    case 10: *value = 32; break;
    case 8: *value = 49152; break;
    case 97: case 81: *value = 232448; break;
    case 82: case 12: *value = 65536; break;
    case 39: *value = 2048; break;
    case 1: *value = 1024; break;
    case 38: *value = 50 << 20; break;
    case 13: case 36: *value = 1500000; break;
    case 37: *value = 5120; break;
    default: *value = 1;
  }
  return 0;
}
int cuDevicePrimaryCtxRetain(void **context, int device) {
  *context = (void *)(intptr_t)(0x1000 + device);
  return 0;
}
int cuDevicePrimaryCtxGetState(int device, unsigned *flags, int *active) {
  *flags = 0;
  *active = 1;
  return 0;
}
int cuCtxSetCurrent(void *context) { current = context; return 0; }
int cuCtxGetCurrent(void **context) { *context = current; return 0; }
int cuCtxGetDevice(int *device) {
  *device = current ? (int)((intptr_t)current - 0x1000) : 0;
  return current ? 0 : 201;
}
static __thread void *pushed[16]; static __thread int depth;
int cuCtxPushCurrent_v2(void *context) { pushed[depth++] = current; current = context; return 0; }
int cuCtxPopCurrent_v2(void **context) { *context = current; current = pushed[--depth]; return 0; }
// The machine code is an ELF file: its sections, and of each kernel the sizes of its parameters.
typedef struct { uint32_t name, type; uint64_t flags, address, offset, size, rest[3]; } Section;
static const Section *sections(const char *elf, int *count) {
  *count = *(uint16_t *)(elf + 0x3c);
  return (const Section *)(elf + *(uint64_t *)(elf + 0x28));
}
static size_t image_size(const char *elf) {
  int count;
  const Section *all = sections(elf, &count);
  size_t end = (const char *)(all + count) - elf;
  for (int k = 0; k < count; k++)
    if (all[k].type != 8 && all[k].offset + all[k].size > end) end = all[k].offset + all[k].size;
  size_t headers = *(uint64_t *)(elf + 0x20) + *(uint16_t *)(elf + 0x38) * 56ul;
  return headers > end ? headers : end;
}
static void read_parameters(Function *function, const char *elf) {
  int count;
  char wanted[544];
  snprintf(wanted, sizeof wanted, ".nv.info.%s", function->name);
  const Section *all = sections(elf, &count), *names = all + *(uint16_t *)(elf + 0x3e);
  for (int k = 0; k < count; k++) {
    if (strcmp(elf + names->offset + all[k].name, wanted)) continue;
    const char *p = elf + all[k].offset, *end = p + all[k].size;
    while (p < end) {  // kind of the value, attribute, and its length or value
      int length = p[0] == 4 ? *(uint16_t *)(p + 2) : 0;
      if (p[0] == 4 && p[1] == 0x17) {  // number of the entry, ordinal, offset, flags
        int ordinal = *(uint16_t *)(p + 8);
        if (ordinal < MOST_PARAMETERS) function->sizes[ordinal] = *(uint32_t *)(p + 12) >> 18;
        if (ordinal >= function->count) function->count = ordinal + 1;
      }
      p += 4 + length;
    }
  }
}
int cuModuleLoadData(void **module, const char *image) {
  static int64_t numbers;
  if (!current) return 201;
  if (memcmp(image, "\x7f" "ELF", 4)) return 200;
  size_t size = image_size(image);
  Image *made = malloc(sizeof(Image));
  *made = (Image){__sync_add_and_fetch(&numbers, 1), memcpy(malloc(size), image, size)};
  *module = made;
  const char *folder = getenv("FAKE_CUDA_IMAGES");
  if (!folder) return 0;
  char path[4096];
  snprintf(path, sizeof path, "%s/%ld", folder, (long)made->number);
  FILE *file = fopen(path, "wb");
  if (!file) return 1;
  fwrite(image, 1, size, file);
  return fclose(file) ? 1 : 0;
}
int cuModuleUnload(void *module) { return 0; }
int cuModuleGetFunction(void **function, Image *module, const char *name) {
  Function *made = calloc(1, sizeof(Function));
  snprintf(made->name, sizeof made->name, "%s", name);
  made->image = module->number;
  read_parameters(made, module->start);
  *function = made;
  return 0;
}
int cuFuncSetAttribute(Function *function, int attribute, int value) {
  if (attribute == 8) { if (value > 232448) return 1; function->shared = value; }
  return 0;
}
int cuFuncGetAttribute(int *value, int attribute, void *function) {
  *value = attribute == 4 ? 32 : attribute == 0 ? 1024 : 0;
  return 0;
}
int cuFuncSetCacheConfig(void *f, int c) { return 0; }
int cuGetErrorString(int code, const char **text) { *text = "a CUDA error"; return 0; }
int cuGetErrorName(int code, const char **text) { *text = "CUDA_ERROR"; return 0; }
int cuOccupancyMaxActiveClusters(int *count, void *f, void *config) { *count = 16; return 0; }
int cuOccupancyMaxActiveBlocksPerMultiprocessor(int *count, void *f, int b, size_t s) {
  *count = 2;
  return 0;
}
int cuTensorMapEncodeTiled() { return 0; }
int cuPointerGetAttribute(void *data, int attribute, uint64_t pointer) {
  if (attribute == 3 /* device pointer */) *(uint64_t *)data = pointer;
  else *(int *)data = 0;
  return 0;
  }
static int launched(Function *f, const unsigned *grid, unsigned threads, unsigned shared, void *stream,
    void **params) {
  if (!current) return 201;
  if (fake_status) return fake_status;
  if (shared > 49152 && f->shared < (int)shared) return 1;
  pthread_mutex_lock(&lock);
  int64_t programs = (int64_t)grid[0] * grid[1] * grid[2];
  Call *call = next_call(f->name, programs, threads, shared, (intptr_t)stream, (intptr_t)current);
  call->image = f->image;
  int64_t *to = call->parameters;  // the grid, and then the kernel's own
  for (int k = 0; k < 3; k++) *to++ = grid[k];
  for (int k = 0; params && k < f->count && k < MOST_PARAMETERS - 3; k++)
    memcpy(to++, params[k], f->sizes[k] < 8 ? f->sizes[k] : 8);
  call->count = to - call->parameters;
  pthread_mutex_unlock(&lock);
  return 0;
}
int cuLaunchKernel(Function *f, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz,
                   unsigned shared, void *stream, void **params, void **extra) {
  return launched(f, (unsigned[]){gx, gy, gz}, bx * by * bz, shared, stream, params);
}
int cuLaunchKernelEx(const unsigned *config, Function *f, void **params, void **extra) {
  return launched(f, config, config[3] * config[4] * config[5], config[6], *(void **)(config + 8), params);
}
int fake_capturing(void *stream);
int cuStreamIsCapturing(void *stream, int *status) { *status = fake_capturing(stream); return 0; }
int cuLaunchCooperativeKernel(Function *f, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by,
    unsigned bz, unsigned shared, void *stream, void **params) {
  return launched(f, (unsigned[]){gx, gy, gz}, bx * by * bz, shared, stream, params);
}
int cuGetProcAddress_v2(const char *symbol, void **found, int version, uint64_t flags, int *status) {
  *found = dlsym(RTLD_DEFAULT, symbol);
  if (status) *status = *found ? 0 : 1;
  return *found ? 0 : 500;
}
int cuGetProcAddress(const char *symbol, void **found, int version, uint64_t flags) {
  return cuGetProcAddress_v2(symbol, found, version, flags, 0);
}
int cuStreamWriteValue32_v2() { return 0; }
int cuMemGetInfo_v2(size_t *a, size_t *b) { *a = 70ull << 30; *b = 80ull << 30; return 0; }
int cuCtxSetLimit() { return 0; }
int cuCtxGetLimit(size_t *v) { *v = 1 << 20; return 0; }
int cuModuleLoad(void **module, const char *path) {
  FILE *file = fopen(path, "rb");
  if (!file) return 301;
  fseek(file, 0, SEEK_END);
  long size = ftell(file);
  char *image = malloc(size);
  rewind(file);
  int status = fread(image, 1, size, file) == (size_t)size ? cuModuleLoadData(module, image) : 301;
  fclose(file);
  free(image);
  return status;
}
int cuModuleLoadDataEx() { return 0; }
int cuLinkCreate_v2() { return 0; }
int cuStreamSynchronize() { return 0; }
int cuLinkComplete() { return 0; }
int cuLinkAddData_v2() { return 0; }
int cuLinkDestroy() { return 0; }
int cuFuncGetModule() { return 0; }
int cuCtxGetFlags() { return 0; }
int cuStreamGetCtx() { return 0; }
int cuMemHostGetDevicePointer_v2() { return 0; }
