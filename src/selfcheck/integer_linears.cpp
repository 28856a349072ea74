// Linears of integers: Y = X W^T in int32, of 8-bit operands, before Y is quantised again. The checksum modulo 127 of
// abft/quantised_gemm.h checks them without a threshold. It wants unsigned inputs: signed ones are shifted.
#include <fmt/format.h>

#include <algorithm>
#include <limits>

#include "abft/quantised_gemm.h"
#include "align/holders.h"
#include "base/tensor_name.h"
#include "merge/values.h"
#include "selfcheck/relations.h"

namespace ttrace {
namespace {

struct IntegerLinear {
  const LogicalTensor *input = nullptr, *weight = nullptr, *output = nullptr;
};

bool is_byte(Dtype dtype) { return dtype == Dtype::kInt8 || dtype == Dtype::kUInt8; }

abft::GemmShape shape_of(const IntegerLinear& linear) {
  const Shape& weight = linear.weight->shape;
  return {weight[1] == 0 ? 0 : element_count(linear.input->shape) / weight[1], weight[0], weight[1]};
}

// Returns why the linear cannot be checked; empty if it can.
std::string objection_to(const IntegerLinear& linear) {
  const Shape &x = linear.input->shape, &w = linear.weight->shape, &y = linear.output->shape;
  const bool chain = w.size() == 2 && !x.empty() && !y.empty() && x.back() == w[1] && y.back() == w[0] &&
                     Shape(x.begin(), x.end() - 1) == Shape(y.begin(), y.end() - 1);
  if (!chain)
    return fmt::format("input {}, weight {} and output {} do not chain", to_string(x), to_string(w), to_string(y));
  if (element_count(y) == 0 || w[1] == 0) return "its operands have no elements";
  for (const LogicalTensor* tensor : {linear.input, linear.weight, linear.output}) {
    if (!fits_in_memory(*tensor)) return "its operands have more than 2^27 elements, or rows that a router dealt out";
  }
  const abft::GemmShape shape = shape_of(linear);
  return abft::problem_of(shape, shape.m * shape.k, shape.k * (shape.n + 1), shape.m * (shape.n + 1));
}

template <class T>
std::vector<T> integers_of(const Values& values, std::int64_t shift = 0) {
  std::vector<T> integers;
  for (const double value : values) integers.push_back(static_cast<T>(static_cast<std::int64_t>(value) + shift));
  return integers;
}

// Turns W [n, k] into B [k, n].
Values transposed(const Values& weight, const abft::GemmShape& shape) {
  Values b(weight.size());
  for (std::int64_t row = 0; row < shape.n; ++row) {
    for (std::int64_t k = 0; k < shape.k; ++k) {
      b[static_cast<std::size_t>(k * shape.n + row)] = weight[static_cast<std::size_t>(row * shape.k + k)];
    }
  }
  return b;
}

class IntegerCheck {
 public:
  explicit IntegerCheck(const IntegerLinear& linear)
      : linear_(linear),
        shape_(shape_of(linear)),
        shift_(linear.input->dtype == Dtype::kInt8 ? 128 : 0),
        a_(integers_of<std::uint8_t>(values_of(*linear.input), shift_)),
        packed_(abft::pack_with_checksum(integers_of<std::int8_t>(transposed(values_of(*linear.weight), shape_)),
                                         shape_.k, shape_.n)),
        recorded_(values_of(*linear.output)) {}

  Finding finding() const {
    const LogicalTensor& output = *linear_.output;
    const std::vector<std::int64_t> rows = abft::corrupted_rows(with_checksums(), shape_.m, shape_.n);
    if (rows.empty()) {
      return finding_about(output, Verdict::kPass, Reason::kNone, "is its input times its weight, in integers");
    }
    std::int64_t col = 0;
    while (col + 1 < shape_.n && exact(rows[0], col) == recorded(rows[0], col)) ++col;
    Finding finding = finding_about(
        output, Verdict::kFail, Reason::kProductDiffers,
        fmt::format("is not its input times its weight: row {}, column {} is {}, not {}; {} of {} rows are wrong",
                    rows[0], col, recorded(rows[0], col), exact(rows[0], col), rows.size(), shape_.m));
    finding.ranks = ranks_holding(output, rows[0] * shape_.n + col);
    return finding;
  }

 private:
  std::int64_t recorded(std::int64_t row, std::int64_t col) const {
    return static_cast<std::int64_t>(recorded_[static_cast<std::size_t>(row * shape_.n + col)]);
  }
  std::int64_t weight(std::int64_t k, std::int64_t col) const {
    return packed_[static_cast<std::size_t>(k * (shape_.n + 1) + col)];
  }
  std::int64_t input(std::int64_t row, std::int64_t k) const {
    return a_[static_cast<std::size_t>(row * shape_.k + k)];
  }

  std::int64_t exact(std::int64_t row, std::int64_t col) const {
    std::int64_t sum = 0;
    for (std::int64_t k = 0; k < shape_.k; ++k) sum += (input(row, k) - shift_) * weight(k, col);
    return sum;
  }

  // Returns C_temp [m, n + 1] as the shifted input would give it: the recorded output plus the shift's share of each
  // column, and each row's checksum.
  std::vector<std::int32_t> with_checksums() const {
    std::vector<std::int64_t> share(static_cast<std::size_t>(shape_.n));
    for (std::int64_t k = 0; k < shape_.k; ++k) {
      for (std::int64_t col = 0; col < shape_.n; ++col) share[static_cast<std::size_t>(col)] += shift_ * weight(k, col);
    }
    std::vector<std::int32_t> c;
    for (std::int64_t row = 0; row < shape_.m; ++row) {
      // With the share added a corrupted value may leave int32; modulo 2^32 it still differs from the right one.
      for (std::int64_t col = 0; col < shape_.n; ++col) {
        c.push_back(static_cast<std::int32_t>(recorded(row, col) + share[static_cast<std::size_t>(col)]));
      }
      std::int64_t checksum = 0;
      for (std::int64_t k = 0; k < shape_.k; ++k) checksum += input(row, k) * weight(k, shape_.n);
      c.push_back(static_cast<std::int32_t>(checksum));
    }
    return c;
  }

  const IntegerLinear& linear_;
  abft::GemmShape shape_;
  std::int64_t shift_;
  std::vector<std::uint8_t> a_;
  std::vector<std::int8_t> packed_;
  Values recorded_;
};

}  // namespace

void check_integer_linears(const Alignment& alignment, std::vector<Finding>& findings) {
  for (const auto& [id, output] : alignment.tensors) {
    if (id.kind != Kind::kOutput || output.dtype != Dtype::kInt32) continue;
    const TensorName name(id.name);
    const IntegerLinear linear{find_tensor(alignment, id, Kind::kInput, id.name),
                               parameter_at(alignment, id, parameter_of(name.path, "weight")), &output};
    if (!name.member.empty() || linear.input == nullptr || linear.weight == nullptr) continue;
    if (!is_byte(linear.input->dtype) || linear.weight->dtype != Dtype::kInt8) continue;
    std::string why = objection_to(linear);
    if (parameter_at(alignment, id, parameter_of(name.path, "bias")) != nullptr) why = "it adds a bias in integers";
    findings.push_back(why.empty() ? IntegerCheck(linear).finding()
                                   : finding_about(output, Verdict::kUntrusted, Reason::kNotCheckable, why));
  }
}

}  // namespace ttrace
