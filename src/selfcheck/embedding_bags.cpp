// EmbeddingBag: each row of the output is the sum, the mean or the largest of the rows of the weight that a bag of
// indices names, each multiplied by its own weight if the call has such. The trace does not record which of the three
// the module computes, nor whether one index stands for padding and is left out: the choice that most bags agree with
// counts.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <optional>

#include "align/holders.h"
#include "base/tensor_name.h"
#include "merge/values.h"
#include "selfcheck/relations.h"

namespace ttrace {
namespace {

struct BagCall {
  const LogicalTensor *indices = nullptr, *offsets = nullptr, *weights = nullptr;  // the last two may be null
  const LogicalTensor *table = nullptr, *output = nullptr;
};

const LogicalTensor* find_input(const Alignment& alignment, const TensorId& id,
                                std::initializer_list<std::string_view> members) {
  for (const std::string_view member : members) {
    const std::string name = TensorName(id.name).with_member(member);
    if (const LogicalTensor* found = find_tensor(alignment, id, Kind::kInput, name)) return found;
  }
  return nullptr;
}

enum class Mode { kSum, kMean, kLargest };
constexpr std::string_view kModeNames[] = {"sum", "mean", "largest"};

struct WrongElement {
  std::int64_t bag = 0, col = 0;
  double recorded = 0, computed = 0;
};

class Bags {
 public:
  explicit Bags(const BagCall& call)
      : width_(call.table->shape[1]),
        rows_(call.table->shape[0]),
        bags_(call.output->shape[0]),
        indices_(values_of(*call.indices)),
        table_(values_of(*call.table)),
        recorded_(values_of(*call.output)),
        epsilon_(epsilon_of(call.output->dtype)) {
    if (call.weights != nullptr) weights_ = values_of(*call.weights);
    if (call.offsets != nullptr) starts_ = values_of(*call.offsets);
    const auto length = bags_ == 0 ? 0.0 : static_cast<double>(indices_.size()) / static_cast<double>(bags_);
    for (std::int64_t bag = 0; call.offsets == nullptr && bag < bags_; ++bag) {
      starts_.push_back(static_cast<double>(bag) * length);
    }
    starts_.resize(static_cast<std::size_t>(bags_));  // a call with include_last_offset has one more
    starts_.push_back(static_cast<double>(indices_.size()));
  }

  // Returns why the indices cannot be looked up; empty if they can.
  std::string objection() const {
    for (std::size_t bag = 0; bag + 1 < starts_.size(); ++bag) {
      if (!(starts_[bag] >= 0 && starts_[bag] <= starts_[bag + 1]))
        return fmt::format("the offset of bag {} falls", bag);
    }
    for (const double index : indices_) {
      if (!(index >= 0 && index < static_cast<double>(rows_)))
        return fmt::format("index {:.0f} is beyond the {} rows of the weight", index, rows_);
    }
    return {};
  }

  std::int64_t most_frequent_index() const {
    std::map<std::int64_t, std::int64_t> counts;
    for (const double index : indices_) ++counts[static_cast<std::int64_t>(index)];
    const auto most = std::max_element(counts.begin(), counts.end(),
                                       [](const auto& a, const auto& b) { return a.second < b.second; });
    return most == counts.end() ? -1 : most->first;
  }

  // Returns of each bag that is wrong the first wrong element.
  std::vector<WrongElement> wrong_bags(Mode mode, std::int64_t padding) const {
    std::vector<WrongElement> wrong;
    for (std::int64_t bag = 0; bag < bags_; ++bag) {
      if (const auto element = wrong_element(bag, mode, padding)) wrong.push_back(*element);
    }
    return wrong;
  }

  std::int64_t count() const { return bags_; }
  std::int64_t width() const { return width_; }

 private:
  std::optional<WrongElement> wrong_element(std::int64_t bag, Mode mode, std::int64_t padding) const {
    for (std::int64_t col = 0; col < width_; ++col) {
      double sum = 0, magnitude = 0, largest = -std::numeric_limits<double>::infinity();
      std::int64_t count = 0;
      const auto at = static_cast<std::size_t>(bag);
      for (auto i = static_cast<std::size_t>(starts_[at]); i < static_cast<std::size_t>(starts_[at + 1]); ++i) {
        const auto row = static_cast<std::int64_t>(indices_[i]);
        if (row == padding) continue;
        const double value = table_[static_cast<std::size_t>(row * width_ + col)];
        const double weighted = weights_.empty() ? value : value * weights_[i];
        sum += weighted;
        magnitude += std::fabs(weighted);
        largest = std::max(largest, value);
        ++count;
      }
      // Each product and each addition rounds by half a unit.
      double allowed = static_cast<double>(2 * count + 1) * epsilon_ / 2 * magnitude;
      double computed = sum;
      if (mode == Mode::kMean && count > 0) {
        computed /= static_cast<double>(count);
        allowed /= static_cast<double>(count);
      }
      if (mode == Mode::kLargest) computed = count == 0 ? 0 : largest;
      const double recorded = recorded_[static_cast<std::size_t>(bag * width_ + col)];
      if (!(std::fabs(recorded - computed) <= (mode == Mode::kLargest ? epsilon_ * std::fabs(computed) : allowed))) {
        return WrongElement{bag, col, recorded, computed};
      }
    }
    return std::nullopt;
  }

  std::int64_t width_, rows_, bags_;
  Values indices_, table_, recorded_, weights_, starts_;
  double epsilon_;
};

void check_bags(const BagCall& call, std::vector<Finding>& findings) {
  const Bags bags(call);
  const LogicalTensor& output = *call.output;
  if (const std::string objection = bags.objection(); !objection.empty()) {
    findings.push_back(finding_about(output, Verdict::kFail, Reason::kLookupDiffers, objection));
    return;
  }
  std::optional<std::vector<WrongElement>> wrong;
  std::string claim;
  for (const Mode mode : {Mode::kSum, Mode::kMean, Mode::kLargest}) {
    for (const std::int64_t padding : {std::int64_t{-1}, bags.most_frequent_index()}) {
      std::vector<WrongElement> of_mode = bags.wrong_bags(mode, padding);
      if (wrong && wrong->size() <= of_mode.size()) continue;
      wrong = std::move(of_mode);
      claim = fmt::format("the {} of its weight's rows{}", kModeNames[static_cast<std::size_t>(mode)],
                          padding < 0 ? "" : fmt::format(" without row {}", padding));
    }
  }
  if (wrong->empty()) {
    findings.push_back(finding_about(output, Verdict::kPass, Reason::kNone, "is " + claim));
    return;
  }
  const WrongElement& first = wrong->front();
  Finding finding = finding_about(
      output, Verdict::kFail, Reason::kLookupDiffers,
      fmt::format("{} of {} bags are not {}; the first is bag {}, whose column {} is {:.6g}, not {:.6g}", wrong->size(),
                  bags.count(), claim, first.bag, first.col, first.recorded, first.computed));
  finding.ranks = ranks_holding(output, first.bag * bags.width() + first.col);
  findings.push_back(std::move(finding));
}

// Returns why the call cannot be checked; empty if it can.
std::string objection_to(const BagCall& call) {
  if (call.indices == nullptr) return "its indices were not recorded";
  if (call.table == nullptr) return "its weight was not recorded";
  for (const LogicalTensor* tensor : {call.indices, call.offsets, call.weights, call.table, call.output}) {
    if (tensor != nullptr && !fits_in_memory(*tensor)) return "its tensors have more than 2^27 elements";
  }
  const std::int64_t bags = call.output->shape.empty() ? -1 : call.output->shape[0];
  const bool fixed = call.offsets == nullptr && call.indices->shape.size() == 2 && call.indices->shape[0] == bags;
  const std::int64_t starts = call.offsets == nullptr ? -1 : element_count(call.offsets->shape);
  const bool fits = call.table->shape.size() == 2 && call.output->shape == Shape{bags, call.table->shape[1]} &&
                    (fixed || starts == bags || starts == bags + 1) && !is_floating(call.indices->dtype) &&
                    (call.weights == nullptr || call.weights->shape == call.indices->shape);
  if (fits) return {};
  return fmt::format("indices {}, offsets {}, weight {} and output {} do not fit together",
                     to_string(call.indices->shape), call.offsets ? to_string(call.offsets->shape) : "none",
                     to_string(call.table->shape), to_string(call.output->shape));
}

}  // namespace

void check_embedding_bags(const Alignment& alignment, std::vector<Finding>& findings) {
  for (const auto& [id, output] : alignment.tensors) {
    if (id.kind != Kind::kOutput || output.module_class.get().find("EmbeddingBag") == std::string::npos) continue;
    const TensorName name(id.name);
    if (!is_floating(output.dtype) || !name.member.empty()) continue;
    const BagCall call{find_input(alignment, id, {"", ":0", ":input"}), find_input(alignment, id, {":1", ":offsets"}),
                       find_input(alignment, id, {":2", ":per_sample_weights"}),
                       parameter_at(alignment, id, parameter_of(name.path, "weight")), &output};
    if (const std::string why = objection_to(call); !why.empty()) {
      findings.push_back(finding_about(output, Verdict::kUntrusted, Reason::kNotCheckable, why));
    } else {
      check_bags(call, findings);
    }
  }
}

}  // namespace ttrace
