// cuBLAS and cuDNN, which need a device: calls are recorded and compute nothing.
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include "cuda_runtime_api.h"
cudaError_t on(cudaStream_t s, const char *what, int64_t grid, int64_t threads, int64_t shared);
// cuBLAS: products are recorded on the stream of their handle
int cublasCreate_v2(void **h) { *h = malloc(64); return 0; }
int cublasGetMathMode(void *h, int *m) { *m = 0; return 0; }
int cublasGetPointerMode_v2(void *h, int *m) { *m = 0; return 0; }
static __thread cudaStream_t cublas_stream;
int cublasSetStream_v2(void *h, cudaStream_t s) { cublas_stream = s; return 0; }
int cublasLtMatmulDescCreate(void **p) { *p = calloc(1, 4096); return 0; }
int cublasLtMatrixLayoutCreate(void **p) { *p = calloc(1, 4096); return 0; }
int cublasLtMatmulPreferenceCreate(void **p) { *p = calloc(1, 4096); return 0; }
int cublasLtMatmulAlgoGetHeuristic(void *h, void *d, void *a, void *b, void *c, void *e, void *p, int n,
    void *r, int *found) {
  *found = 1;
  memset(r, 0, 96);
  return 0;
}
int cublasLtMatmul(void *h, void *d, void *al, void *a, void *la, void *b, void *lb, void *be, void *c,
    void *lc, void *e, void *le, void *algo, void *w, size_t n, cudaStream_t s) {
  return on(s, "cublasLtMatmul", 0, 0, 0);
}
#define PRODUCT(name) int name() { return on(cublas_stream, #name, 0, 0, 0); }
PRODUCT(cublasGemmEx)
PRODUCT(cublasGemmStridedBatchedEx)
PRODUCT(cublasSgemm_v2)
PRODUCT(cublasDgemm_v2)
PRODUCT(cublasSgemmStridedBatched)
PRODUCT(cublasDgemmStridedBatched)
PRODUCT(cublasSgemmEx)
PRODUCT(cublasSgemv_v2)
PRODUCT(cublasDgemv_v2)
PRODUCT(cublasSdot_v2)
PRODUCT(cublasDdot_v2)
PRODUCT(cublasDotEx)
// cuDNN: one plan for everything, of no memory
typedef struct { int type; } Descriptor;
static __thread cudaStream_t cudnn_stream;
int cudnnCreate(void **h) { *h = calloc(1, 64); return 0; }
int cudnnDestroy(void *h) { return 0; }
int cudnnSetStream(void *h, cudaStream_t s) { cudnn_stream = s; return 0; }
int cudnnGetStream(void *h, cudaStream_t *s) { *s = cudnn_stream; return 0; }
int cudnnBackendCreateDescriptor(int type, Descriptor **d) {
  *d = calloc(1, 4096);
  (*d)->type = type;
  return 0;
}
int cudnnBackendDestroyDescriptor(Descriptor *d) { free(d); return 0; }
int cudnnBackendInitialize(Descriptor *d) { return 0; }
int cudnnBackendFinalize(Descriptor *d) { return 0; }
int cudnnBackendSetAttribute(Descriptor *d, int name, int type, int64_t n, const void *p) {
  return 0;
}
int cudnnBackendGetAttribute(Descriptor *d, int name, int type, int64_t wanted, int64_t *n, void *p) {
  int one = name == 202 || name == 300 || type == 3 || type == 23;
  if (n) *n = one;
  if (p && one && (type == 3 || type == 23)) memset(p, 0, type == 3 ? 8 : 4);
  return 0;
}
int cudnnBackendExecute(void *h, Descriptor *plan, Descriptor *pack) {
  return on(cudnn_stream, "cudnn", 0, 0, 0);
}
int cudnnGetBatchNormalizationForwardTrainingExWorkspaceSize(void *a, int b, int c, void *d, void *e,
    void *f, void *g, void *h, size_t *n) {
  *n = 0;
  return 0;
}
int cudnnGetBatchNormalizationBackwardExWorkspaceSize(void *a, int b, int c, void *d, void *e, void *f,
    void *g, void *h, void *i, void *j, size_t *n) {
  *n = 0;
  return 0;
}
int cudnnGetBatchNormalizationTrainingExReserveSpaceSize(void *a, int b, int c, void *d, void *e, size_t *n) {
  *n = 0;
  return 0;
}
#define CUDNN(name) int name() { return on(cudnn_stream, #name, 0, 0, 0); }
CUDNN(cudnnBatchNormalizationBackwardEx)
CUDNN(cudnnBatchNormalizationForwardInference)
CUDNN(cudnnBatchNormalizationForwardTrainingEx)
#define MAKE(name) int name(void **p) { *p = calloc(1, 4096); return 0; }
MAKE(cudnnCreateActivationDescriptor)
MAKE(cudnnCreateTensorDescriptor)
MAKE(cudnnCreateFilterDescriptor)
MAKE(cudnnCreateConvolutionDescriptor)
MAKE(cudnnCreateDropoutDescriptor)
