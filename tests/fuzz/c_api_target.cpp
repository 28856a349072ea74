// A recording program that does anything the C API lets it do. What was taken must be in the trace.
#include <fuzzer/FuzzedDataProvider.h>

#include <algorithm>
#include <string>
#include <vector>

#include "base/error.h"
#include "load/trace_reader.h"
#include "support/temporary_directory.h"
#include "target.h"
#include "ttrace/ttrace.h"

namespace ttrace::fuzz {
namespace {

std::string take_text(FuzzedDataProvider& input, const char* usual) {
  if (input.ConsumeIntegral<std::uint8_t>() < 160) return usual;
  std::string text = input.ConsumeRandomLengthString(60);
  return text.substr(0, text.find('\0'));
}

// Elements behind every pointer that a recording is given: shapes and strides stay within.
constexpr std::int64_t kElements = 64;
// ... of a tensor whose strides are 0 there may be more.
constexpr std::int64_t kMostReadElements = 1 << 16;

// False where reading the tensor would leave what its pointer promises, and nothing can refuse it.
bool fits(const std::vector<std::int64_t>& shape, const std::vector<std::int64_t>& strides, bool contiguous) {
  if (std::any_of(shape.begin(), shape.end(), [](std::int64_t size) { return size <= 0; })) return true;
  std::int64_t last = 0, elements = 1;
  for (const std::int64_t size : shape) {
    if (__builtin_mul_overflow(elements, size, &elements)) return true;  // refused
  }
  if (elements > (contiguous ? kElements : kMostReadElements)) return false;
  for (std::size_t i = 0; i < shape.size(); ++i) last += (shape[i] - 1) * strides[i];
  return contiguous || last < kElements;
}

bool record_one(ttrace_recorder* recorder, FuzzedDataProvider& input) {
  static const std::vector<double> data(kElements, 1.5);
  const std::string name = take_text(input, "mlp"), module = take_text(input, "Linear"), mapping = take_text(input, "");
  ttrace_identity id{};
  id.struct_size = input.ConsumeBool() ? sizeof id : input.ConsumeIntegralInRange<std::size_t>(0, sizeof id);
  id.iteration = input.ConsumeIntegral<std::int8_t>();
  id.microbatch = input.ConsumeIntegral<std::int8_t>();
  id.chunk = input.ConsumeIntegral<std::int8_t>();
  id.pass = static_cast<ttrace_pass>(input.ConsumeIntegralInRange<int>(0, 3));
  id.kind = static_cast<ttrace_kind>(input.ConsumeIntegralInRange<int>(0, 17));
  id.name = name.c_str();
  id.module_class = module.c_str();
  std::vector<std::int64_t> shape(input.ConsumeIntegralInRange<std::size_t>(0, 9)), strides;
  for (std::int64_t& size : shape) {
    size = input.ConsumeIntegral<std::int8_t>() % 9;
    strides.push_back(input.ConsumeIntegralInRange<std::int64_t>(0, 4));
  }
  if (!shape.empty() && input.ConsumeIntegral<std::uint8_t>() > 240) shape[0] = input.ConsumeIntegral<std::int64_t>();
  ttrace_tensor tensor{};
  tensor.struct_size = sizeof tensor;
  tensor.data = data.data();
  tensor.dtype = static_cast<ttrace_dtype>(input.ConsumeIntegralInRange<int>(0, 13));
  tensor.ndim = static_cast<std::int32_t>(shape.size());
  tensor.shape = shape.data();
  const bool contiguous = input.ConsumeBool();
  tensor.strides = contiguous ? nullptr : strides.data();
  tensor.mapping = mapping.empty() ? nullptr : mapping.c_str();
  if (!fits(shape, strides, contiguous)) return false;
  return ttrace_record(recorder, &id, &tensor) == TTRACE_OK;
}

}  // namespace

Outcome fuzz_c_api(std::string_view bytes) {
  FuzzedDataProvider input(reinterpret_cast<const std::uint8_t*>(bytes.data()), bytes.size());
  const test::TemporaryDirectory directory;
  const std::string path = directory.path(), run_id = take_text(input, "run"), axes = take_text(input, ""),
                    coordinates = take_text(input, ""), dtype = take_text(input, "float32"),
                    provenance = take_text(input, "{}");
  ttrace_run run{};
  run.struct_size = input.ConsumeBool() ? sizeof run : input.ConsumeIntegralInRange<std::size_t>(0, sizeof run);
  run.directory = path.c_str();
  run.run_id = run_id.c_str();
  run.rank = input.ConsumeIntegralInRange<std::int32_t>(-1, 2);
  run.world_size = input.ConsumeIntegralInRange<std::int32_t>(-1, 3);
  run.axes = axes.empty() ? nullptr : axes.c_str();
  run.coordinates = coordinates.empty() ? nullptr : coordinates.c_str();
  run.compute_dtype = dtype.c_str();
  run.provenance = provenance.c_str();
  ttrace_recorder* recorder = nullptr;
  if (ttrace_open(&run, &recorder) != TTRACE_OK) {
    if (recorder != nullptr || *ttrace_last_error() == '\0') fail_promise("a failed open says nothing");
    throw InputError("refused");
  }
  std::size_t recorded = 0;
  while (input.remaining_bytes() > 0) {
    const auto call = input.ConsumeIntegral<std::uint8_t>() % 8;
    if (call == 0) {
      const std::string text = take_text(input, "{}");
      ttrace_describe(recorder, nullptr, text.c_str());
    } else if (call == 1) {
      const std::string text = take_text(input, "tp=2");
      ttrace_describe_axes(recorder, text.c_str(), nullptr);
    } else {
      recorded += record_one(recorder, input) ? 1 : 0;
    }
  }
  if (ttrace_close(recorder, 1) != TTRACE_OK) fail_promise("a recorder that lost nothing does not close");
  try {
    const Trace trace = read_trace(directory.path());
    if (trace.ranks.size() != 1 || trace.ranks[0].entries.size() != recorded || !trace.ranks[0].complete) {
      fail_promise("the trace lacks what was recorded");
    }
    for (const Entry& entry : trace.ranks[0].entries) {
      if (!verify_checksum(trace.ranks[0], entry)) fail_promise("a tensor is not as it was recorded");
    }
  } catch (const InputError& error) {
    fail_promise(std::string("what was recorded is refused: ") + error.what());
  }
  return Outcome::kSame;
}

}  // namespace ttrace::fuzz
