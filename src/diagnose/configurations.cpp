#include "diagnose/configurations.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <optional>
#include <set>
#include <span>
#include <string_view>
#include <tuple>
#include <utility>

#include "base/tensor_name.h"

namespace ttrace {
namespace {

// Words in the names of attributes that say how a program runs, and not what it computes.
constexpr auto kOfLayout = std::to_array<std::string_view>({"parallel",
                                                            "rank",
                                                            "world",
                                                            "process_group",
                                                            "pipeline",
                                                            "pre_process",
                                                            "post_process",
                                                            "stage",
                                                            "overlap",
                                                            "fus",
                                                            "distributed",
                                                            "allreduce",
                                                            "all_reduce",
                                                            "communicat",
                                                            "p2p",
                                                            "bucket",
                                                            "shard",
                                                            "ddp",
                                                            "fsdp",
                                                            "gather",
                                                            "scatter",
                                                            "recompute",
                                                            "checkpoint",
                                                            "offload",
                                                            "device",
                                                            "async",
                                                            "stream",
                                                            "init",
                                                            "seed",
                                                            "file",
                                                            "path",
                                                            "name",
                                                            "directory",
                                                            "num_layers",
                                                            "n_layer",
                                                            "hidden_layers",
                                                            "batch_size",
                                                            "use_cache",
                                                            "implementation",
                                                            "backend",
                                                            "version",
                                                            "compile",
                                                            "timers",
                                                            "debug",
                                                            "verbose",
                                                            "inplace",
                                                            "return_",
                                                            "output_attentions",
                                                            "output_hidden_states",
                                                            "torchscript",
                                                            "cuda_graph",
                                                            "reduce_",
                                                            "microbatch",
                                                            "micro_batch",
                                                            "skip_bias"});
// The same as whole parts of a name between `_`.
constexpr auto kAxes = std::to_array<std::string_view>({"tp", "pp", "dp", "ep", "cp", "sp", "mp", "vp", "etp", "dcp"});
// Names of attributes by which a stage of a pipeline knows which one it is.
constexpr auto kOfStages = std::to_array<std::string_view>({"first", "last", "is_first", "is_last"});
// Words in the names of functions that do across ranks what the reference's does on one.
constexpr auto kOfFunctions = std::to_array<std::string_view>({"distributed", "parallel"});
// Words in the names of attributes that say in which dtype a module computes.
constexpr auto kOfPrecision =
    std::to_array<std::string_view>({"dtype", "fp32", "float32", "fp16", "bf16", "fp8", "float16", "bfloat16", "amp"});
// Words in the names of sizes, which ranks may hold uneven parts of; tensors have them for their shapes.
constexpr auto kOfSizes =
    std::to_array<std::string_view>({"size", "dim", "features", "embed", "channels", "heads", "hidden", "shape",
                                     "vocab", "experts", "length", "tokens", "capacity", "groups", "seq", "count"});
// Names of whole numbers that no rank has a part of.
constexpr auto kNeverSplit = std::to_array<std::string_view>(
    {"kernel_size", "stride", "dilation", "padding", "padding_idx", "top_k", "topk", "k", "moe_router_topk",
     "num_experts_per_tok", "window_size", "sliding_window", "base", "theta", "rope_theta", "rotary_base", "eps"});

bool has_word(std::string_view name, std::span<const std::string_view> words) {
  return std::ranges::any_of(words, [&](std::string_view word) { return name.find(word) != name.npos; });
}

bool is_one_of(std::string_view name, std::span<const std::string_view> names) {
  return std::ranges::find(names, name) != names.end();
}

bool is_of_axis(std::string_view name) {
  for (std::size_t begin = 0; begin <= name.size();) {
    const std::size_t end = std::min(name.find('_', begin), name.size());
    if (is_one_of(name.substr(begin, end - begin), kAxes)) return true;
    begin = end + 1;
  }
  return false;
}

template <typename Number>
std::optional<Number> number_of(std::string_view text) {
  Number number{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  return error == std::errc() && end == text.data() + text.size() ? std::optional(number) : std::nullopt;
}

// The whole numbers of `8` or `(3, 3)`; none of anything else.
std::vector<std::int64_t> whole_numbers_of(std::string_view text) {
  if (text.starts_with('(') && text.ends_with(')')) text = text.substr(1, text.size() - 2);
  std::vector<std::int64_t> numbers;
  while (!text.empty()) {
    const std::size_t end = std::min(text.find(','), text.size());
    const auto number = number_of<std::int64_t>(text.substr(0, end));
    if (!number) return {};
    numbers.push_back(*number);
    text.remove_prefix(std::min(end + 1, text.size()));
    if (text.starts_with(' ')) text.remove_prefix(1);
  }
  return numbers;
}

bool is_fraction(std::string_view text) { return number_of<double>(text) && !number_of<std::int64_t>(text); }

// What decides whether two values of an attribute may rightly differ.
struct Pairing {
  bool is_same_class = true, is_same_dtype = true;
  std::int64_t ranks = 1;  // of the larger side
};

// True where one side's whole numbers are the other's, or that divided among ranks.
bool is_part(const std::vector<std::int64_t>& a, const std::vector<std::int64_t>& b, std::int64_t ranks) {
  if (a.size() != b.size() || a.empty()) return false;
  return std::equal(a.begin(), a.end(), b.begin(), [&](std::int64_t one, std::int64_t other) {
    const auto [small, large] = std::minmax(one, other);
    return one == other || (small > 0 && large % small == 0 && ranks % (large / small) == 0);
  });
}

bool is_equal(const std::string& a, const std::string& b) {
  if (a == b) return true;
  const auto one = number_of<double>(a), other = number_of<double>(b);
  return one && other && *one == *other;  // 1 and 1.0
}

bool may_differ(std::string_view attribute, const std::string& a, const std::string& b, const Pairing& pairing) {
  if (has_word(attribute, kOfLayout) || is_of_axis(attribute)) return true;
  if (pairing.ranks > 1 && is_one_of(attribute, kOfStages)) return true;
  if (a.ends_with("()") && b.ends_with("()") && has_word(b, kOfFunctions)) return true;
  if (!pairing.is_same_dtype && has_word(attribute, kOfPrecision)) return true;
  if (!pairing.is_same_class) return !is_fraction(a) || !is_fraction(b);
  const auto one = whole_numbers_of(a), other = whole_numbers_of(b);
  if (one.empty() || other.empty() || is_one_of(attribute, kNeverSplit) || pairing.ranks == 1) return false;
  return has_word(attribute, kOfSizes) || is_part(one, other, pairing.ranks);
}

std::string lower_case_name(std::string_view attribute) {
  std::string name(last_component(attribute));
  std::ranges::transform(name, name.begin(),
                         [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c; });
  return name;
}

// What the ranks say of one module: each of them, and the ranks that say so.
struct Said {
  std::map<std::string, std::map<std::string, std::set<std::int32_t>>> attributes;  // value, ranks
  std::set<std::string> classes;
};

std::string module_named(const Entry& entry) {
  const std::string path(TensorName(entry.id.name).path);
  return is_parameter_kind(entry.id.kind) ? std::string(owner_of(path)) : path;
}

std::string module_of(const TensorId& id) {
  return is_parameter_kind(id.kind) ? std::string(owner_of(TensorName(id.name).path))
                                    : std::string(TensorName(id.name).path);
}

class Statements {
 public:
  explicit Statements(const Trace& trace) {
    for (const RankTrace& rank : trace.ranks) {
      if (rank.configurations) by_rank_[rank.rank] = rank.configurations.get();
    }
  }

  bool empty() const { return by_rank_.empty(); }

  // Of models that are called without gradients.
  std::map<std::string, Said> without_grad() const {
    std::map<std::string, Said> all;
    for (const auto& [rank, configurations] : by_rank_) {
      for (const auto& [module, known] : configurations->without_grad) {
        Said& said = all[module];
        said.classes.insert(known->module_class);
        for (const auto& [attribute, value] : known->attributes) said.attributes[attribute][value].insert(rank);
      }
    }
    return all;
  }

  Said of(const LogicalTensor& tensor) const {
    Said said;
    for (const Piece& piece : tensor.pieces()) {
      const auto rank = by_rank_.find(piece.rank);
      if (rank == by_rank_.end() || piece.entry == nullptr) continue;
      const ModuleConfiguration* known = rank->second->of(piece.entry->id.chunk, module_named(*piece.entry));
      if (known == nullptr) continue;
      said.classes.insert(known->module_class);
      for (const auto& [attribute, value] : known->attributes) said.attributes[attribute][value].insert(piece.rank);
    }
    return said;
  }

 private:
  std::map<std::int32_t, const ModuleConfigurations*> by_rank_;
};

// Where the reference's ranks do not say the same, it is no configuration; of the candidate's, whole numbers may be a
// rank's own.
std::vector<OtherAttribute> compare_module(const std::string& module, const Said& reference, const Said& candidate,
                                           const Pairing& pairing) {
  std::vector<OtherAttribute> others;
  for (const auto& [attribute, values] : reference.attributes) {
    const auto found = candidate.attributes.find(attribute);
    if (values.size() != 1 || found == candidate.attributes.end()) continue;
    const std::string &wanted = values.begin()->first, name = lower_case_name(attribute);
    for (const auto& [value, ranks] : found->second) {
      const bool is_of_some = found->second.size() > 1;
      if (is_equal(value, wanted) || may_differ(name, wanted, value, pairing)) continue;
      if (is_of_some && !whole_numbers_of(value).empty()) continue;
      OtherAttribute other{module, 1, attribute, wanted, value, {}};
      if (is_of_some) other.ranks.assign(ranks.begin(), ranks.end());
      others.push_back(std::move(other));
    }
  }
  return others;
}

}  // namespace

ConfiguredOtherwise compare_configurations(const Alignment& reference, const Trace& reference_trace,
                                           const Alignment& candidate, const Trace& candidate_trace) {
  ConfiguredOtherwise configured;
  const Statements of_reference(reference_trace), of_candidate(candidate_trace);
  if (of_reference.empty() || of_candidate.empty()) return configured;
  const bool is_same_dtype = reference_trace.compute_dtype == candidate_trace.compute_dtype;
  const std::int64_t ranks = std::max(reference_trace.world_size, candidate_trace.world_size);
  std::set<std::string> seen;
  for (const auto& [id, tensor] : reference.tensors) {
    if (id.kind == Kind::kScalar) continue;
    const auto other = candidate.tensors.find(id);
    std::string module = module_of(id);
    if (other == candidate.tensors.end() || !seen.insert(module).second) continue;
    const Said wanted = of_reference.of(tensor), said = of_candidate.of(other->second);
    if (wanted.attributes.empty() || said.attributes.empty()) continue;
    auto others = compare_module(module, wanted, said, {wanted.classes == said.classes, is_same_dtype, ranks});
    if (!others.empty()) configured.emplace(std::move(module), std::move(others));
  }
  const auto of_others = of_candidate.without_grad();
  for (const auto& [module, wanted] : of_reference.without_grad()) {
    const auto said = of_others.find(module);
    if (said == of_others.end()) continue;
    auto others =
        compare_module(module, wanted, said->second, {wanted.classes == said->second.classes, is_same_dtype, ranks});
    if (!others.empty()) configured.emplace(module, std::move(others));
  }
  return configured;
}

std::vector<OtherAttribute> group_by_attribute(const ConfiguredOtherwise& configured) {
  std::vector<OtherAttribute> grouped;
  std::map<std::tuple<std::string, std::string, std::string>, std::size_t> places;
  for (const auto& [module, others] : configured) {
    for (const OtherAttribute& other : others) {
      const auto [at, is_new] =
          places.emplace(std::tuple(other.attribute, other.reference, other.candidate), grouped.size());
      if (is_new) {
        grouped.push_back(other);
      } else {
        ++grouped[at->second].modules;
      }
    }
  }
  return grouped;
}

std::string configured_otherwise(const TensorId& id, const ConfiguredOtherwise& configured) {
  const bool is_computed = id.kind == Kind::kOutput || id.kind == Kind::kGradInput || id.kind == Kind::kParamGrad ||
                           id.kind == Kind::kMainGrad || is_buffer_kind(id.kind);
  const auto found = configured.find(module_of(id));
  if (!is_computed || found == configured.end()) return "";
  std::vector<std::string> texts;
  for (const OtherAttribute& other : found->second) texts.push_back(text_of(other));
  return fmt::format("{}", fmt::join(texts, "; "));
}

std::string configured_otherwise_without_grad(const ConfiguredOtherwise& configured, const Trace& candidate) {
  ConfiguredOtherwise without_grad;
  for (const auto& [module, said] : Statements(candidate).without_grad()) {
    if (const auto others = configured.find(module); others != configured.end()) without_grad.insert(*others);
  }
  std::vector<std::string> texts;
  for (const OtherAttribute& other : group_by_attribute(without_grad)) {
    const std::string more = other.modules == 1 ? "" : fmt::format(", and {} more", other.modules - 1);
    texts.push_back(fmt::format("{}{}: {}", printable(other.module), more, text_of(other)));
  }
  return fmt::format("{}", fmt::join(texts, "; "));
}

std::vector<std::string> models_without_grad(const Trace& trace) {
  std::set<std::string> models;
  for (const RankTrace& rank : trace.ranks) {
    if (!rank.configurations) continue;
    for (const auto& [module, known] : rank.configurations->without_grad) {
      models.insert(printable(components_of(module).front()));
    }
  }
  return {models.begin(), models.end()};
}

bool is_in_other_mode(const TensorId& id, const ConfiguredOtherwise& configured) {
  const auto found = configured.find(module_of(id));
  return found != configured.end() &&
         std::ranges::any_of(found->second, [](const OtherAttribute& other) { return other.attribute == "training"; });
}

}  // namespace ttrace
