// CUDA's runtime for devices whose memory is the host's: copies copy, kernels are recorded and do nothing.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include "cuda_runtime_api.h"
extern int fake_devices, fake_capability;
void fake_record(const char *name, int64_t grid, int64_t threads, int64_t shared, int64_t stream,
    int64_t context);
void fake_set_device(int device);
static __thread int device; static __thread cudaError_t last;
static __thread cudaStream_t capturing; static __thread enum cudaStreamCaptureMode mode; static int captures; static int invalid;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
typedef struct { char *start; size_t size; int device, host; } Block;
static Block blocks[1 << 16]; static int block_count;
static cudaError_t fail(cudaError_t e) {
  if (e) last = e;
  if (e == cudaErrorStreamCaptureUnsupported) invalid = 1;
  return e;
}
static void *take(size_t size, int host) {
  size_t whole = (size + 4095) & ~4095ull;
  void *p = mmap(0, whole ? whole : 4096, PROT_READ | PROT_WRITE,
      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  pthread_mutex_lock(&lock);
  blocks[block_count++] = (Block){p, whole, device, host};
  pthread_mutex_unlock(&lock);
  return p;
}
static Block *find(const void *p) {
  for (int k = block_count; k-- > 0;) if (blocks[k].start && (char *)p >= blocks[k].start
      && (char *)p < blocks[k].start + blocks[k].size) return &blocks[k];
  return 0;
}
cudaError_t cudaGetDeviceCount(int *n) { *n = fake_devices; return 0; }
cudaError_t cudaGetDevice(int *d) { *d = device; return 0; }
cudaError_t cudaSetDevice(int d) { device = d; fake_set_device(d); return 0; }
cudaError_t cudaGetDeviceProperties(struct cudaDeviceProp *p, int d) {
  memset(p, 0, sizeof *p);
  strcpy(p->name, "NVIDIA H100 (stand-in)");
  p->totalGlobalMem = 80ull << 30;
  p->sharedMemPerBlock = 49152;
  p->regsPerBlock = 65536;
  p->warpSize = 32;
  p->maxThreadsPerBlock = 1024;
  p->maxThreadsDim[0] = p->maxThreadsDim[1] = 1024;
  p->maxThreadsDim[2] = 64;
  p->maxGridSize[0] = 2147483647;
  p->maxGridSize[1] = p->maxGridSize[2] = 65535;
  p->totalConstMem = 65536;
  p->major = fake_capability / 10;
  p->minor = fake_capability % 10;
  p->multiProcessorCount = 132;
  p->textureAlignment = 512;
  p->maxThreadsPerMultiProcessor = 2048;
  p->sharedMemPerMultiprocessor = 233472;
  p->regsPerMultiprocessor = 65536;
  p->sharedMemPerBlockOptin = 232448;
  p->l2CacheSize = 50 << 20;
  p->maxBlocksPerMultiProcessor = 32;
  p->concurrentKernels = 1;
  p->memoryBusWidth = 5120; p->cooperativeLaunch = 1; p->unifiedAddressing = 1; p->pciBusID = d;
  return 0;
}
cudaError_t cudaDeviceGetAttribute(int *v, enum cudaDeviceAttr a, int d) {
  int cuDeviceGetAttribute(int *, int, int);
  return cuDeviceGetAttribute(v, a, d);
}
cudaError_t cudaDeviceGetStreamPriorityRange(int *least, int *greatest) {
  *least = 0;
  *greatest = -5;
  return 0;
}
cudaError_t cudaDeviceGetPCIBusId(char *t, int n, int d) {
  snprintf(t, n, "0000:%02x:00.0", d);
  return 0;
}
cudaError_t cudaDeviceCanAccessPeer(int *can, int a, int b) { *can = 1; return 0; }
cudaError_t cudaDriverGetVersion(int *v) { *v = 13000; return 0; }
cudaError_t cudaRuntimeGetVersion(int *v) { *v = 13000; return 0; }
cudaError_t cudaDeviceSynchronize(void) {
  fake_record("<device synchronize>", 0, 0, 0, 0, device);
  return fail(capturing ? cudaErrorStreamCaptureUnsupported : 0);
}
cudaError_t cudaMalloc(void **p, size_t n) { fake_set_device(device); *p = take(n, 0); return 0; }
cudaError_t cudaMallocAsync(void **p, size_t n, cudaStream_t s) { *p = take(n, 0); return 0; }
cudaError_t cudaHostAlloc(void **p, size_t n, unsigned f) { *p = take(n, 1); return 0; }
static cudaError_t drop(void *p) {
  Block *b = p ? find(p) : 0;
  if (b) { munmap(b->start, b->size); b->start = 0; }
  return 0;
}
cudaError_t cudaFree(void *p) { return drop(p); }
cudaError_t cudaFreeAsync(void *p, cudaStream_t s) { return drop(p); }
cudaError_t cudaFreeHost(void *p) { return drop(p); }
cudaError_t cudaMemGetInfo(size_t *a, size_t *b) { *a = 70ull << 30; *b = 80ull << 30; return 0; }
cudaError_t cudaPointerGetAttributes(struct cudaPointerAttributes *a, const void *p) {
  Block *b = find(p);
  a->type = !b ? cudaMemoryTypeUnregistered : b->host ? cudaMemoryTypeHost : cudaMemoryTypeDevice;
  a->device = b ? b->device : -2; a->devicePointer = (void *)p; a->hostPointer = (void *)p;
  return 0;
}
cudaError_t on(cudaStream_t s, const char *what, int64_t grid, int64_t threads, int64_t shared) {
  if (capturing && !s) return fail(cudaErrorStreamCaptureImplicit);
  fake_set_device(device);
  fake_record(what, grid, threads, shared, (intptr_t)s, 0x1000 + device);
  return 0;
}
cudaError_t cudaMemcpyAsync(void *d, const void *s, size_t n, enum cudaMemcpyKind k, cudaStream_t st) {
  cudaError_t e = on(st, k == cudaMemcpyHostToDevice ? "<copy to device>" : k == cudaMemcpyDeviceToHost
      ? "<copy to host>" : "<copy>", n, 0, 0);
  if (!e && !(capturing && capturing == st)) memcpy(d, s, n);
  if (capturing && capturing == st && (k == cudaMemcpyHostToDevice || k == cudaMemcpyDeviceToHost)) {
    Block *b = find(k == cudaMemcpyHostToDevice ? s : d);
    if (!b || !b->host) return fail(cudaErrorStreamCaptureUnsupported);
  }
  return e;
}
cudaError_t cudaMemcpyPeerAsync(void *d, int dd, const void *s, int sd, size_t n, cudaStream_t st) {
  memcpy(d, s, n);
  return on(st, "<copy to peer>", n, 0, 0);
}
cudaError_t cudaMemcpy(void *d, const void *s, size_t n, enum cudaMemcpyKind k) {
  memcpy(d, s, n);
  return fail(capturing ? cudaErrorStreamCaptureUnsupported : 0);
}
cudaError_t cudaMemcpy2DAsync(void *d, size_t dp, const void *s, size_t sp, size_t w, size_t h,
    enum cudaMemcpyKind k, cudaStream_t st) {
  for (size_t r = 0; r < h; r++) memcpy((char *)d + r * dp, (char *)s + r * sp, w);
  return on(st, "<copy>", w * h, 0, 0);
  }
cudaError_t cudaMemset(void *d, int v, size_t n) { memset(d, v, n); return 0; }
cudaError_t cudaMemsetAsync(void *d, int v, size_t n, cudaStream_t s) {
  if (!capturing) memset(d, v, n);
  return on(s, "<set>", n, 0, 0);
}
static intptr_t numbers = 0x5000;
cudaError_t cudaStreamCreate(cudaStream_t *s) {
  *s = (cudaStream_t)__sync_add_and_fetch(&numbers, 16);
  return 0;
}
cudaError_t cudaStreamCreateWithPriority(cudaStream_t *s, unsigned f, int p) {
  return cudaStreamCreate(s);
}
cudaError_t cudaStreamGetPriority(cudaStream_t s, int *p) { *p = 0; return 0; }
cudaError_t cudaStreamSynchronize(cudaStream_t s) {
  fake_record("<stream synchronize>", 0, 0, 0, (intptr_t)s, device);
  int allowed = !capturing || (capturing != s && mode == cudaStreamCaptureModeRelaxed);
  return fail(allowed ? 0 : cudaErrorStreamCaptureUnsupported);
}
cudaError_t cudaStreamQuery(cudaStream_t s) {
  return fail(capturing ? cudaErrorStreamCaptureUnsupported : 0);
}
cudaError_t cudaStreamWaitEvent(cudaStream_t s, cudaEvent_t e, unsigned f) {
  return on(s, "<wait event>", (intptr_t)e, 0, 0);
}
cudaError_t cudaEventCreate(cudaEvent_t *e) {
  *e = (cudaEvent_t)__sync_add_and_fetch(&numbers, 16);
  return 0;
}
cudaError_t cudaEventCreateWithFlags(cudaEvent_t *e, unsigned f) { return cudaEventCreate(e); }
cudaError_t cudaEventRecord(cudaEvent_t e, cudaStream_t s) {
  return on(s, "<record event>", (intptr_t)e, 0, 0);
}
cudaError_t cudaEventRecordWithFlags(cudaEvent_t e, cudaStream_t s, unsigned f) {
  return on(s, "<record event>", (intptr_t)e, 0, 0);
}
cudaError_t cudaEventSynchronize(cudaEvent_t e) {
  fake_record("<event synchronize>", (intptr_t)e, 0, 0, 0, device);
  return fail(capturing ? cudaErrorStreamCaptureUnsupported : 0);
}
cudaError_t cudaEventQuery(cudaEvent_t e) {
  return fail(capturing ? cudaErrorStreamCaptureUnsupported : 0);
}
cudaError_t cudaEventElapsedTime(float *ms, cudaEvent_t a, cudaEvent_t b) {
  *ms = 0.0625f;
  return 0;
}
cudaError_t cudaStreamBeginCapture(cudaStream_t s, enum cudaStreamCaptureMode m) {
  if (capturing) return fail(cudaErrorIllegalState);
  capturing = s;
  captures++;
  invalid = 0;
  return on(s, "<begin capture>", 0, 0, 0);
}
cudaError_t cudaStreamEndCapture(cudaStream_t s, cudaGraph_t *g) {
  on(s, "<end capture>", 0, 0, 0);
  capturing = 0;
  if (invalid) { *g = 0; return fail(cudaErrorStreamCaptureInvalidated); }
  *g = (cudaGraph_t)(intptr_t)(0x100 + captures);
  return 0;
}
cudaError_t cudaStreamIsCapturing(cudaStream_t s, enum cudaStreamCaptureStatus *st) {
  *st = capturing && capturing == s;
  return 0;
}
int fake_capturing(void *s) { return capturing && capturing == s; }
cudaError_t cudaStreamGetCaptureInfo(cudaStream_t s, enum cudaStreamCaptureStatus *st,
    unsigned long long *id, cudaGraph_t *g, const cudaGraphNode_t **deps, const cudaGraphEdgeData **edges,
    size_t *n) {
  *st = capturing && capturing == s;
  if (id) *id = captures;
  if (g) *g = (cudaGraph_t)(intptr_t)(0x100 + captures);
  if (deps) *deps = 0;
  if (edges) *edges = 0;
  if (n) *n = 0;
  return 0;
  }
cudaError_t cudaThreadExchangeStreamCaptureMode(enum cudaStreamCaptureMode *m) {
  enum cudaStreamCaptureMode before = mode;
  mode = *m; *m = before;
  return 0;
}
cudaError_t cudaGraphInstantiateWithFlags(cudaGraphExec_t *e, cudaGraph_t g, unsigned long long f) {
  *e = (cudaGraphExec_t)g;
  return 0;
}
cudaError_t cudaGraphLaunch(cudaGraphExec_t e, cudaStream_t s) {
  return on(s, "<graph launch>", (intptr_t)e, 0, 0);
}
cudaError_t cudaGraphGetNodes(cudaGraph_t g, cudaGraphNode_t *nodes, size_t *n) {
  *n = 1;
  return 0;
}
const char *cudaGetErrorString(cudaError_t e) {
  return e == cudaErrorStreamCaptureUnsupported ? "operation not permitted when stream is capturing" : e
      ? "a CUDA error" : "no error";
}
const char *cudaGetErrorName(cudaError_t e) { return e ? "cudaError" : "cudaSuccess"; }
cudaError_t cudaGetLastError(void) { cudaError_t e = last; last = 0; return e; }
cudaError_t cudaPeekAtLastError(void) { return last; }
cudaError_t cudaFuncGetAttributes(struct cudaFuncAttributes *a, const void *f) {
  memset(a, 0, sizeof *a);
  a->maxThreadsPerBlock = 1024;
  a->numRegs = 32;
  a->ptxVersion = 90;
  a->binaryVersion = 90;
  a->maxDynamicSharedSizeBytes = 49152;
  return 0;
}
cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int *n, const void *f, int b, size_t s,
    unsigned fl) {
  *n = 2;
  return 0;
}
cudaError_t cudaGetSymbolAddress(void **p, const void *s) { *p = take(1 << 20, 0); return 0; }
cudaError_t cudaGetDriverEntryPointByVersion(const char *s, void **f, unsigned v, unsigned long long fl,
    enum cudaDriverEntryPointQueryResult *r) {
  char name[128]; snprintf(name, sizeof name, "%s_v2", s);
  *f = dlsym(RTLD_DEFAULT, name); if (!*f) *f = dlsym(RTLD_DEFAULT, s);
  if (r) *r = *f ? cudaDriverEntryPointSuccess : cudaDriverEntryPointSymbolNotFound; return 0; }
cudaError_t cudaDeviceGetDefaultMemPool(cudaMemPool_t *p, int d) {
  *p = (cudaMemPool_t)0x77;
  return 0;
}
// what the compiler of CUDA's language calls
typedef struct { unsigned x, y, z; } Dim;
static __thread struct { Dim grid, block; size_t shared; void *stream; } config;
typedef struct { const void *host; const char *name; } Known;
static Known known[1 << 19]; static int known_count;
void **__cudaRegisterFatBinary(void *b) { return calloc(1, 8); }
void __cudaRegisterFatBinaryEnd(void **h) {}
void __cudaUnregisterFatBinary(void **h) {}
char __cudaInitModule(void **h) { return 1; }
void __cudaRegisterFunction(void **h, const char *host, char *dev, const char *name, int l, void *a, void *b,
    void *c, void *d, int *e) {
  if (known_count < 1 << 19) known[known_count++] = (Known){host, name}; }
void __cudaRegisterVar() {}
unsigned __cudaPushCallConfiguration(Dim g, Dim b, size_t s, void *st) {
  config.grid = g;
  config.block = b;
  config.shared = s;
  config.stream = st;
  return 0;
}
cudaError_t __cudaPopCallConfiguration(Dim *g, Dim *b, size_t *s, void **st) {
  *g = config.grid;
  *b = config.block;
  *s = config.shared;
  *st = config.stream;
  return 0;
}
cudaError_t __cudaGetKernel(void **k, const void *host) { *k = (void *)host; return 0; }
static const char *name_of(const void *host) {
  for (int k = 0; k < known_count; k++) if (known[k].host == host) return known[k].name;
  return "?";
}
cudaError_t __cudaLaunchKernel(void *k, Dim g, Dim b, void **args, size_t s, cudaStream_t st) {
  return on(st, name_of(k), (int64_t)g.x * g.y * g.z, b.x * b.y * b.z, s);
}
cudaError_t cudaLaunchKernelExC(const cudaLaunchConfig_t *c, const void *k, void **args) {
  return on(c->stream, name_of(k), (int64_t)c->gridDim.x, c->blockDim.x, c->dynamicSmemBytes);
}
cudaError_t cudaLaunchHostFunc(cudaStream_t s, cudaHostFn_t f, void *d) { f(d); return 0; }
