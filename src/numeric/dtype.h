// Element types that a trace can hold.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace ttrace {

// The values are stored in trace files and are the values of `ttrace_dtype` in ttrace.h: never renumber.
enum class Dtype : std::uint8_t {
  kFloat64 = 1,
  kFloat32 = 2,
  kFloat16 = 3,
  kBFloat16 = 4,
  kFloat8E4M3 = 5,  // OCP e4m3fn: no infinity, one NaN pattern per sign
  kFloat8E5M2 = 6,
  kInt8 = 7,
  kInt16 = 8,
  kInt32 = 9,
  kInt64 = 10,
  kUInt8 = 11,
  kBool = 12,  // one byte an element, 0 or 1
};
inline constexpr std::uint8_t kDtypeFirst = 1;
inline constexpr std::uint8_t kDtypeLast = 12;

// PyTorch's names without the prefix: `bfloat16`, `float8_e4m3fn`, `int64`, `bool`.
std::string_view name_of(Dtype dtype);
std::optional<Dtype> dtype_from_name(std::string_view name);

std::int64_t size_of(Dtype dtype);  // bytes an element
bool is_floating(Dtype dtype);

// Machine epsilon: the distance from 1 to the next larger value (`torch.finfo(dtype).eps`), so 2^-7 for
// bfloat16. 0 for integers and bool, whose arithmetic is exact.
double epsilon_of(Dtype dtype);

// The one with the larger epsilon: what is computed in one of them and stored in the other was rounded to it.
Dtype coarser(Dtype a, Dtype b);

}  // namespace ttrace
