// What CUDA's headers need of its compiler's own, for a C compiler.
#pragma once
#define __host__
#define __device__
#define __global__
#define __shared__
#define __constant__
#define __noinline__
#define __align__(n) __attribute__((aligned(n)))
#define __builtin_align__(n) __align__(n)
#define __device_builtin__
#define __device_builtin_texture_type__
#define __device_builtin_surface_type__
#define __cudart_builtin__
#define CUDARTAPI
#define CUDARTAPI_CDECL
