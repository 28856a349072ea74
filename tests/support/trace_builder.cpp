#include "support/trace_builder.h"

#include <fmt/format.h>
#include <stdlib.h>

#include <bit>
#include <cmath>
#include <stdexcept>

#include "load/trace_reader.h"

namespace ttrace::test {
namespace {

// Rounds to `fraction_bits` and lays out sign, exponent and fraction. Finite values in the normal range.
std::uint64_t small_float(double value, int exponent_bits, int fraction_bits) {
  const std::uint64_t sign = std::signbit(value) ? 1ull << (exponent_bits + fraction_bits) : 0;
  const std::uint64_t all_ones = (1ull << exponent_bits) - 1;
  if (std::isinf(value)) return sign | all_ones << fraction_bits;
  if (std::isnan(value)) return sign | all_ones << fraction_bits | ((1ull << fraction_bits) - 1);
  const int bias = (1 << (exponent_bits - 1)) - 1;
  int exponent = 0;
  std::frexp(value, &exponent);
  exponent = std::max(exponent - 1, 1 - bias);
  const auto units = static_cast<std::uint64_t>(std::nearbyint(std::ldexp(std::fabs(value), fraction_bits - exponent)));
  // A subnormal has no implicit bit, and rounding up to the next power of two carries into the exponent.
  if (units < (1ull << fraction_bits)) return sign | units;
  return sign | ((static_cast<std::uint64_t>(exponent + bias - 1) << fraction_bits) + units);
}

template <typename T>
void append(std::string& bytes, T value) {
  bytes.append(reinterpret_cast<const char*>(&value), sizeof value);
}

}  // namespace

TemporaryDirectory::TemporaryDirectory() {
  std::string pattern = (std::filesystem::temp_directory_path() / "ttrace-test-XXXXXX").string();
  if (::mkdtemp(pattern.data()) == nullptr) throw std::runtime_error("no temporary directory: " + pattern);
  path_ = pattern;
}

TemporaryDirectory::~TemporaryDirectory() {
  std::error_code ignored;
  std::filesystem::remove_all(path_, ignored);
}

void append_element(std::string& bytes, double value, Dtype dtype) {
  switch (dtype) {
    case Dtype::kFloat64:
      return append(bytes, value);
    case Dtype::kFloat32:
      return append(bytes, static_cast<float>(value));
    case Dtype::kFloat16:
      return append(bytes, static_cast<std::uint16_t>(small_float(value, 5, 10)));
    case Dtype::kBFloat16:
      return append(bytes, static_cast<std::uint16_t>(small_float(value, 8, 7)));
    case Dtype::kFloat8E4M3:
      return append(bytes, static_cast<std::uint8_t>(small_float(value, 4, 3)));
    case Dtype::kFloat8E5M2:
      return append(bytes, static_cast<std::uint8_t>(small_float(value, 5, 2)));
    case Dtype::kInt16:
      return append(bytes, static_cast<std::int16_t>(value));
    case Dtype::kInt32:
      return append(bytes, static_cast<std::int32_t>(value));
    case Dtype::kInt64:
      return append(bytes, static_cast<std::int64_t>(value));
    case Dtype::kInt8:
    case Dtype::kUInt8:
    case Dtype::kBool:
      return append(bytes, static_cast<std::uint8_t>(static_cast<std::int64_t>(value)));
  }
}

TraceBuilder& TraceBuilder::run_id(const std::string& id) {
  run_.run_id = id;
  return *this;
}

TraceBuilder& TraceBuilder::axes(const std::string& text) {
  std::int64_t world_size = 1;
  const std::size_t first_factoring = std::min(text.find('/'), text.size());
  for (std::size_t at = 0; (at = text.find('=', at)) < first_factoring; ++at) {
    world_size *= std::max<std::int64_t>(1, std::strtol(text.c_str() + at + 1, nullptr, 10));
  }
  run_.world_size = static_cast<std::int32_t>(world_size);
  run_.mesh = parse_mesh(text, run_.world_size, "test");
  return *this;
}

TraceBuilder& TraceBuilder::compute_dtype(const std::string& name) {
  run_.compute_dtype = name;
  return *this;
}

TraceBuilder& TraceBuilder::provenance(const std::string& json) {
  run_.provenance = json;
  return *this;
}

TraceBuilder& TraceBuilder::without_rank(std::int32_t rank) {
  missing_.insert(rank);
  return *this;
}

TraceBuilder& TraceBuilder::crashed_rank(std::int32_t rank) {
  crashed_.insert(rank);
  return *this;
}

TraceBuilder& TraceBuilder::tensor(const std::string& name, Kind kind, const Shape& shape, ElementValue values,
                                   Dtype dtype) {
  TensorSpec spec;
  spec.id.name = name;
  spec.id.kind = kind;
  spec.id.microbatch = is_parameter_kind(kind) || kind == Kind::kScalar ? kNoMicrobatch : 0;
  spec.dtype = dtype;
  spec.shape = shape;
  spec.values = std::move(values);
  return tensor(std::move(spec));
}

TraceBuilder& TraceBuilder::tensor(TensorSpec spec) {
  tensors_.push_back(std::move(spec));
  return *this;
}

void TraceBuilder::write_rank(std::int32_t rank) {
  RunDescription run = run_;
  run.rank = rank;
  run.coordinates = coordinates_of(run.mesh, rank);
  TraceWriter writer(directory_.path(), run);
  for (const TensorSpec& spec : tensors_) {
    if (!spec.ranks.empty() && !spec.ranks.contains(rank)) continue;
    std::string bytes;
    for (std::int64_t i = 0; i < element_count(spec.shape); ++i) {
      append_element(bytes, spec.values(rank, i), spec.dtype);
    }
    writer.record(spec.id, spec.module_class, {bytes.data(), spec.dtype, spec.shape, {}}, spec.mapping);
  }
  if (!crashed_.contains(rank)) writer.close(/*complete=*/true);
}

std::filesystem::path TraceBuilder::write() {
  for (std::int32_t rank = 0; rank < run_.world_size; ++rank) {
    if (!missing_.contains(rank)) write_rank(rank);
  }
  return directory_.path();
}

Trace TraceBuilder::read() { return read_trace(write()); }

}  // namespace ttrace::test
