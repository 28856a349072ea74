#include "judge/gathered.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string_view>
#include <utility>

#include "base/count_of.h"
#include "base/describe.h"
#include "base/factor.h"
#include "base/tensor_name.h"
#include "judge/later_sums.h"

namespace ttrace {
namespace {

// The modules that hold parameters, themselves or inside.
class WithParameters {
 public:
  explicit WithParameters(const std::vector<Finding>& findings) {
    for (const Finding& finding : findings) {
      if (!is_parameter_kind(finding.id.kind) || is_buffer_kind(finding.id.kind)) continue;
      std::string path(owner_of(finding.id.name.get()));
      while (modules_.insert(path).second && path != kRootModule) path = std::string(owner_of(path));
    }
  }

  bool contains(std::string_view module) const { return modules_.contains(std::string(module)); }

  // Returns the outermost module without parameters that the module is, or is inside of.
  std::string outermost_without(std::string_view module) const {
    std::string path(module);
    for (std::string owner(owner_of(path)); owner != kRootModule && !contains(owner); owner = owner_of(path))
      path = owner;
    return path;
  }

 private:
  std::set<std::string> modules_;
};

// A rank's copy of a whole tensor, by itself.
TensorPair copy_of(const TensorPair& pair, const Piece& piece, double scale, LogicalTensor& copy) {
  copy = *pair.candidate;
  copy.scale = scale;
  copy.pieces = [piece] { return std::vector{piece}; };
  return {pair.reference, &copy};
}

Finding judge_copy(const TensorPair& pair, const Piece& piece, double scale, const ToleranceFile* tolerance) {
  LogicalTensor copy;
  const TensorPair alone = copy_of(pair, piece, scale, copy);
  CompareOptions options;
  options.checksums = false;  // they were verified when the pair was compared first
  return judge(alone, compare(std::span(&alone, 1), options).at(0), tolerance);
}

// Returns what the ranks have of a tensor of which each has the whole; nothing where one has a part, or a rule says what
// they have.
std::vector<Piece> whole_copies_of(const LogicalTensor& tensor) {
  if (tensor.annotated || tensor.rows || tensor.sketched) return {};
  std::vector<Piece> pieces = tensor.pieces();
  std::set<std::int32_t> ranks;
  for (Piece& piece : pieces) {
    if (piece.logical != whole_box(tensor.shape) || !ranks.insert(piece.rank).second) return {};
    piece.replica = piece.term = 0;
  }
  return pieces;
}

// True where there are copies, and each is this multiple of the reference's, times the scale.
bool are_copies(const TensorPair& pair, double scale, double multiple, const ToleranceFile* tolerance) {
  const std::vector<Piece> copies = whole_copies_of(*pair.candidate);
  return copies.size() > 1 && std::all_of(copies.begin(), copies.end(), [&](const Piece& piece) {
           const Finding judged = judge_copy(pair, piece, scale, tolerance);
           return multiple == 1 ? judged.verdict == Verdict::kPass
                                : judged.verdict == Verdict::kFail && whole_multiple_of(judged) == multiple;
         });
}

// True for the loss of a model, of which there may be several.
bool is_loss_of_model(const TensorId& id) {
  return id.kind == Kind::kScalar && id.microbatch != kNoMicrobatch &&
         last_component(TensorName(id.name.get()).path) == "loss";
}

// Returns the multiple of the reference's that most gradients are which the steps of an iteration take; nothing where
// these are none. Updates do not tell: Adam's first is right whatever multiple its gradient is.
std::optional<double> multiple_of_gradients(const std::vector<Finding>& findings, std::int32_t iteration) {
  const auto is_of = [iteration](const Finding& finding, Kind kind) {
    return finding.id.kind == kind && finding.id.iteration == iteration;
  };
  const bool has_main = std::any_of(findings.begin(), findings.end(),
                                    [&](const Finding& finding) { return is_of(finding, Kind::kMainGrad); });
  std::map<double, std::int64_t> counts;  // 0: of no multiple
  std::int64_t all = 0;
  for (const Finding& finding : findings) {
    const bool is_told = is_wrong(finding) || finding.verdict == Verdict::kPass;
    if (!is_told || !is_of(finding, has_main ? Kind::kMainGrad : Kind::kParamGrad)) continue;
    const double multiple = is_wrong(finding) ? whole_multiple_of(finding) : 1;
    ++counts[is_wrong(finding) && multiple == 1 ? 0 : multiple];
    ++all;
  }
  for (const auto& [multiple, count] : counts) {
    if (multiple != 0 && 2 * count > all) return multiple;
  }
  return std::nullopt;
}

// A loss that every rank has whole, or a part of it.
struct WholeLoss {
  double scale = 1;     // recorded = scale * the reference's
  double multiple = 1;  // ... * this, which is wrong
  bool in_part = false;
};

std::map<MicrobatchKey, WholeLoss> find_whole_losses(const std::vector<Finding>& findings, const PairsById& pairs,
                                                     const ToleranceFile* tolerance) {
  std::map<MicrobatchKey, WholeLoss> losses;
  for (const Finding& finding : findings) {
    if (!is_loss_of_model(finding.id) || finding.verdict != Verdict::kFail || !finding.difference) continue;
    const auto pair = pairs.find(finding.id);
    const std::optional<double> multiple = multiple_of_gradients(findings, finding.id.iteration);
    if (pair == pairs.end() || !multiple) continue;
    const double scale = pair->second->candidate->scale;
    const bool is_whole = are_copies(*pair->second, scale, *multiple, tolerance);
    // What ranks add up of their own may be beside what each has whole, where most of what steps take is right.
    const bool may_be_in_part = *multiple == 1 && whole_copies_of(*pair->second->candidate).size() > 1;
    if (!is_whole && !may_be_in_part) continue;
    losses[{finding.id.iteration, finding.id.microbatch}] = {scale, *multiple, !is_whole};
  }
  return losses;
}

// Losses of which each rank has a part whole, as gradients of theirs show in some micro-batch, are neither copies nor terms of
// a sum: their place is a guess.
void call_guessed(const std::map<MicrobatchKey, WholeLoss>& losses, std::vector<Finding>& findings) {
  for (Finding& finding : findings) {
    const auto loss = losses.find({finding.id.iteration, finding.id.microbatch});
    if (!is_loss_of_model(finding.id) || finding.verdict != Verdict::kFail || loss == losses.end()) continue;
    finding.whole_in_part = loss->second.in_part;
    finding.guessed = finding.guessed || finding.whole_in_part;
  }
}

// True for the loss, and what may be on its way there or back.
bool may_be_of_loss(const Finding& finding, const WithParameters& with_parameters) {
  const Kind kind = finding.id.kind;
  const bool is_gradient = kind == Kind::kGradOutput || kind == Kind::kGradInput || kind == Kind::kParamGrad;
  if (is_gradient || is_loss_of_model(finding.id)) return true;
  const bool is_number = finding.difference->elements == 1;
  return kind == Kind::kOutput && (is_number || !with_parameters.contains(TensorName(finding.id.name.get()).path));
}

// The rows of a rank's copy, sorted; nothing where there are none.
std::vector<std::string_view> sorted_rows(const Piece& piece, const LogicalTensor& tensor) {
  if (tensor.shape.empty() || tensor.shape[0] < 2 || piece.offset != 0) return {};
  const auto size = static_cast<std::size_t>(piece.entry->bytes / static_cast<std::uint64_t>(tensor.shape[0]));
  const auto* data = reinterpret_cast<const char*>(piece.elements());
  std::vector<std::string_view> rows;
  for (std::int64_t row = 0; row < tensor.shape[0]; ++row)
    rows.emplace_back(data + row * static_cast<std::int64_t>(size), size);
  std::sort(rows.begin(), rows.end());
  return rows;
}

// True where every rank has the first one's rows, in whatever order.
bool have_same_rows(const LogicalTensor& tensor, const std::vector<Piece>& copies) {
  const std::vector<std::string_view> rows = sorted_rows(copies[0], tensor);
  return !rows.empty() && std::all_of(copies.begin(), copies.end(),
                                      [&](const Piece& piece) { return sorted_rows(piece, tensor) == rows; });
}

// Tensors of which ranks have copies that are unlike, or were taken for terms of a sum.
struct Unlike {
  Finding* finding = nullptr;
  const TensorPair* pair = nullptr;
  std::vector<Piece> copies;
  std::string module;  // the outermost without parameters around it
};

std::vector<Unlike> find_unlike(std::vector<Finding>& findings, const PairsById& pairs) {
  const WithParameters with_parameters(findings);
  std::vector<Unlike> unlike;
  for (Finding& finding : findings) {
    const auto pair = pairs.find(finding.id);
    if (finding.verdict != Verdict::kFail || !finding.difference || pair == pairs.end()) continue;
    const std::string_view path = TensorName(finding.id.name.get()).path;
    const std::string_view module = is_buffer_kind(finding.id.kind) ? owner_of(path) : path;
    if (finding.id.kind == Kind::kScalar || with_parameters.contains(module)) continue;
    if (is_parameter_kind(finding.id.kind) && !is_buffer_kind(finding.id.kind)) continue;
    std::vector<Piece> copies = whole_copies_of(*pair->second->candidate);
    if (copies.size() < 2) continue;
    unlike.push_back({&finding, pair->second, std::move(copies), with_parameters.outermost_without(module)});
  }
  return unlike;
}

// Returns what is said of the first rank's copy where it is right, of a gradient with its loss scale or without.
std::optional<Finding> judge_first(const Unlike& unlike, const ToleranceFile* tolerance) {
  for (const double scale : {unlike.pair->candidate->scale, 1.0}) {
    Finding judged = judge_copy(*unlike.pair, unlike.copies[0], scale, tolerance);
    if (judged.verdict == Verdict::kPass) return judged;
  }
  return std::nullopt;
}

// Puts what is said of a copy in the place of what was said of all.
void replace(Finding& finding, Finding judged) {
  judged.order = finding.order;
  judged.cycle = finding.cycle;
  finding = std::move(judged);
}

}  // namespace

void pass_whole_losses(std::span<const TensorPair> pairs, const ToleranceFile* tolerance,
                       std::vector<Finding>& findings, std::vector<std::string>& notes) {
  if (std::none_of(findings.begin(), findings.end(), is_wrong)) return;
  const PairsById pairs_by_id = index_pairs(pairs);
  const std::map<MicrobatchKey, WholeLoss> losses = find_whole_losses(findings, pairs_by_id, tolerance);
  std::set<MicrobatchKey> compared;  // of which the loss is
  for (const Finding& finding : findings) {
    if (is_loss_of_model(finding.id)) compared.insert({finding.id.iteration, finding.id.microbatch});
  }
  const std::int32_t end = end_of_right_training(findings);
  const WithParameters with_parameters(findings);
  std::int64_t count = 0;
  std::string first;
  for (Finding& finding : findings) {
    const MicrobatchKey key(finding.id.iteration, finding.id.microbatch);
    const auto loss = losses.find(key);
    const auto pair = pairs_by_id.find(finding.id);
    if (finding.verdict != Verdict::kFail || !finding.difference || pair == pairs_by_id.end() ||
        !may_be_of_loss(finding, with_parameters)) {
      continue;
    }
    if (loss == losses.end() && (compared.contains(key) || finding.id.iteration >= end)) continue;
    const double scale = loss == losses.end() ? pair->second->candidate->scale : loss->second.scale;
    if (!are_copies(*pair->second, scale, 1, tolerance)) continue;
    if (count++ == 0) first = to_string(finding.id);
    const std::vector<Piece> copies = whole_copies_of(*pair->second->candidate);
    replace(finding, judge_copy(*pair->second, copies[0], scale, tolerance));
  }
  if (count == 0) return;
  call_guessed(losses, findings);
  notes.push_back(
      fmt::format("{} on the way to the loss and back, the first {}: each rank has the loss of all samples, which it "
                  "gathered, or that part of it, times the loss scale, and no term of a sum; what steps take "
                  "of it says so. Compared as copies",
                  count_of(count, "tensor"), first));
}

void pass_other_orders(std::span<const TensorPair> pairs, const ToleranceFile* tolerance,
                       std::vector<Finding>& findings, std::vector<std::string>& notes) {
  if (!is_training_right(findings)) return;
  std::vector<Unlike> unlike = find_unlike(findings, index_pairs(pairs));
  std::set<std::string> modules;  // that were given the samples in other orders
  for (const Unlike& each : unlike) {
    const bool is_given = each.finding->id.kind == Kind::kInput && each.finding->floating;
    if (is_given && have_same_rows(*each.pair->candidate, each.copies) && judge_first(each, tolerance)) {
      modules.insert(each.module);
    }
  }
  std::int64_t count = 0;
  std::string first;
  for (const Unlike& each : unlike) {
    std::optional<Finding> judged = modules.contains(each.module) ? judge_first(each, tolerance) : std::nullopt;
    const bool is_buffer = is_buffer_kind(each.finding->id.kind);
    if (!judged || (is_buffer && !have_same_rows(*each.pair->candidate, each.copies))) continue;
    if (count++ == 0) first = to_string(each.finding->id);
    replace(*each.finding, *std::move(judged));
  }
  if (count == 0) return;
  notes.push_back(fmt::format(
      "{} of {}, the first {}: a rank has the samples that it gathered in another order than the first rank, with "
      "the same bits in each row, and what steps take is right; compared on the first rank alone",
      count_of(count, "tensor"), comma_list(std::vector<std::string>(modules.begin(), modules.end())), first));
}

}  // namespace ttrace
