// The instruction sets that kernels are compiled for, one copy each. To be included before Highway.
#pragma once

// Vectors of unknown width (SVE, RVV) cannot be members of an array; ARM falls back to NEON. A processor older than
// AVX2, of 2013, gets SSE2 where Highway knows that target, and one element at a time where it does not, as
// 1.0.3: copies for SSSE3 and SSE4 would double the time that kernels take to compile.
#ifdef __SANITIZE_ADDRESS__  // the kernels' tests take minutes one element at a time: AVX2, and what every processor has
#define HWY_DISABLED_TARGETS \
  (HWY_SVE | HWY_SVE2 | HWY_SVE_256 | HWY_SVE2_128 | HWY_RVV | HWY_SSSE3 | HWY_SSE4 | HWY_AVX3 | HWY_AVX3_DL)
#else
#define HWY_DISABLED_TARGETS (HWY_SVE | HWY_SVE2 | HWY_SVE_256 | HWY_SVE2_128 | HWY_RVV | HWY_SSSE3 | HWY_SSE4)
#endif
