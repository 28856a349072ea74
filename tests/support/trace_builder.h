// Makes real traces for tests, through the writer.
//
//   const Trace trace = TraceBuilder()
//                           .axes("tp=2")
//                           .tensor("decoder.final_norm", Kind::kOutput, {4, 8},
//                                   [](std::int32_t rank, std::int64_t i) { return rank + 0.5 * i; })
//                           .read();
//
// The files live in a temporary directory that goes with the builder; a Trace keeps its own mappings.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "base/trace.h"
#include "record/trace_writer.h"
#include "support/temporary_directory.h"

namespace ttrace::test {

// The value of the element with row-major index `i` in what `rank` holds.
using ElementValue = std::function<double(std::int32_t rank, std::int64_t i)>;

struct TensorSpec {
  TensorId id;
  Dtype dtype = Dtype::kFloat32;
  Shape shape;
  ElementValue values;
  std::set<std::int32_t> ranks;  // that record it; empty: all
  std::string module_class = "torch.nn.modules.linear.Linear";
  std::string mapping{};  // as in base/mapping.h; empty: none
};

class TraceBuilder {
 public:
  TraceBuilder& run_id(const std::string& id);
  TraceBuilder& axes(const std::string& text);  // also sets the world size to their product
  TraceBuilder& compute_dtype(const std::string& name);
  TraceBuilder& provenance(const std::string& json);
  TraceBuilder& without_rank(std::int32_t rank);  // its file is not written
  TraceBuilder& crashed_rank(std::int32_t rank);  // its file is not closed

  // A tensor of every rank, of micro-batch 0 (of none for parameter kinds and scalars), iteration 0.
  TraceBuilder& tensor(const std::string& name, Kind kind, const Shape& shape, ElementValue values,
                       Dtype dtype = Dtype::kFloat32);
  TraceBuilder& tensor(TensorSpec spec);

  std::filesystem::path write();  // the trace's directory; once
  Trace read();                   // write() and read_trace()

 private:
  void write_rank(std::int32_t rank);

  TemporaryDirectory directory_;
  RunDescription run_{.run_id = "run-1"};
  std::set<std::int32_t> missing_, crashed_;
  std::vector<TensorSpec> tensors_;
};

// The element's bytes in the trace. Rounds to nearest even; fp8 holds small integers and halves only.
void append_element(std::string& bytes, double value, Dtype dtype);

}  // namespace ttrace::test
