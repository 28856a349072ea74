#include "annotate/combine.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "annotate/hypotheses.h"

namespace ttrace {
namespace {

// The letters by which a draft of several candidates calls them: A, B, ...
std::string letter_of(std::size_t candidate) {
  return candidate < 26 ? std::string(1, static_cast<char>('A' + candidate)) : std::to_string(candidate + 1);
}

// The axes that have more than one rank, and their aliases: `tp=2,sp=tp`.
std::string axes_of_mesh(const Mesh& mesh) {
  std::vector<std::string> words, aliases;
  for (const Axes& axes : distinct_factorings(mesh)) words.push_back(to_string(axes));
  std::string text = fmt::format("{}", fmt::join(words, "/"));
  for (const auto& [alias, axis] : mesh.aliases) {
    if (size_of_axis(mesh, axis) > 1) text += fmt::format(",{}={}", alias, axis);
  }
  return text.empty() ? "one rank" : text;
}

// One axis, as one candidate has it.
struct Seen {
  std::size_t candidate = 0;
  const AxisObservation* axis = nullptr;
};

// Holds what was made of one axis.
struct Combined {
  AxisPlacement placement;
  DraftLine line;
  bool by_default = true;
  std::string contradiction;  // empty where there is none
};

class Combiner {
 public:
  Combiner(std::span<const ObservedCandidate> candidates, Draft& draft) : candidates_(candidates), draft_(draft) {}

  void run() {
    std::map<std::string, std::uint64_t> order;
    for (const ObservedCandidate& candidate : candidates_) {
      for (const auto& [key, seen] : candidate.tensors) {
        const auto found = order.try_emplace(key.first, seen.order).first;
        found->second = std::min(found->second, seen.order);
      }
    }
    std::vector<std::pair<std::uint64_t, std::string>> patterns;
    for (const auto& [pattern, first] : order) patterns.emplace_back(first, pattern);
    std::sort(patterns.begin(), patterns.end());
    for (const auto& [first, pattern] : patterns) {
      for (const std::vector<Kind>& family : kind_families()) add_family(pattern, family);
    }
    add_parallelism();
    add_loss_scale();
  }

 private:
  // `on tp=2: `, of several candidates `on A (tp=2): `.
  std::string seen_on(std::size_t candidate) const {
    const std::string axes = axes_of_mesh(candidates_[candidate].mesh);
    if (candidates_.size() == 1) return fmt::format("on {}: ", axes);
    return fmt::format("on {} ({}): ", letter_of(candidate), axes);
  }

  std::vector<std::pair<std::size_t, const SubjectObservation*>> observations_of(const std::string& pattern,
                                                                                 Kind kind) const {
    std::vector<std::pair<std::size_t, const SubjectObservation*>> all;
    for (std::size_t i = 0; i < candidates_.size(); ++i) {
      const auto found = candidates_[i].tensors.find({pattern, kind});
      if (found != candidates_[i].tensors.end()) all.emplace_back(i, &found->second);
    }
    return all;
  }

  // Returns the names of the axes that are spoken of. Those of the candidate with the most come first, because it
  // knows how they nest.
  std::vector<std::string> axes_of(const std::string& pattern, Kind kind) const {
    auto all = observations_of(pattern, kind);
    std::stable_sort(all.begin(), all.end(),
                     [](const auto& a, const auto& b) { return a.second->axes.size() > b.second->axes.size(); });
    std::vector<std::string> names;
    for (const auto& [candidate, seen] : all) {
      for (const AxisObservation& axis : seen->axes) {
        const bool known = std::find(names.begin(), names.end(), axis.placement.axis) != names.end();
        if (!known) names.push_back(axis.placement.axis);
      }
    }
    return names;
  }

  std::string describe(const Seen& seen) const { return seen_on(seen.candidate) + seen.axis->why; }

  Combined combine_axis(const std::string& pattern, Kind kind, const std::string& name) const {
    std::vector<Seen> all;
    for (const auto& [candidate, observation] : observations_of(pattern, kind)) {
      for (const AxisObservation& axis : observation->axes) {
        if (axis.placement.axis == name) all.push_back({candidate, &axis});
      }
    }
    const bool any_certain = std::any_of(all.begin(), all.end(), [](const Seen& seen) { return seen.axis->certain; });
    if (any_certain) {
      std::erase_if(all, [](const Seen& seen) { return !seen.axis->certain; });
    } else if (std::any_of(all.begin(), all.end(), [](const Seen& seen) { return !seen.axis->by_default; })) {
      std::erase_if(all, [](const Seen& seen) { return seen.axis->by_default; });
    }
    Combined combined;
    combined.placement = all[0].axis->placement;
    std::vector<std::string> contradicting, whys;
    bool agree = true;
    for (const Seen& seen : all) {
      const std::string text = to_string(seen.axis->placement);
      agree = agree && text == to_string(combined.placement);
      contradicting.push_back(fmt::format("{} {}", text, describe(seen)));
      whys.push_back(describe(seen));
      combined.by_default = combined.by_default && seen.axis->by_default;
    }
    if (!agree) {
      combined.by_default = true;
      combined.contradiction = fmt::format("candidates contradict each other: {}", fmt::join(contradicting, "; "));
    }
    const bool is_sum = combined.placement.placement == Placement::kPartial;
    const bool is_far = std::all_of(all.begin(), all.end(), [](const Seen& seen) { return seen.axis->is_far; });
    const bool is_order_open =
        std::any_of(all.begin(), all.end(), [](const Seen& seen) { return seen.axis->is_order_open; });
    const bool excuses = is_sum || is_far || is_order_open;
    combined.line = {to_string(combined.placement), any_certain, any_certain || !excuses,
                     fmt::format("{}", fmt::join(whys, "; "))};
    return combined;
  }

  // Combines the axes, without those that need no line.
  std::vector<Combined> combine_axes(const std::string& pattern, Kind kind, std::vector<std::string>& remarks) const {
    std::vector<Combined> axes;
    for (const std::string& name : axes_of(pattern, kind)) {
      Combined axis = combine_axis(pattern, kind, name);
      if (!axis.contradiction.empty()) remarks.push_back(axis.contradiction);
      if (!axis.by_default) axes.push_back(std::move(axis));
    }
    return axes;
  }

  // The lines by which a rule about `lead` places `kind`.
  static std::vector<std::string> counting_lines(Kind lead, Kind kind, const std::vector<Combined>& axes) {
    std::vector<std::string> lines;
    for (const Combined& axis : axes) {
      if (!axis.line.counts) continue;
      const AxisPlacement followed = follower_placements({axis.placement}, lead, kind)[0];
      if (followed.placement == axis.placement.placement) lines.push_back(to_string(followed));
    }
    return lines;
  }

  std::vector<std::string> remarks_about(const std::string& pattern, Kind kind) const {
    std::vector<std::string> remarks;
    for (const auto& [candidate, seen] : observations_of(pattern, kind)) {
      if (!seen->remark.empty()) remarks.push_back(seen_on(candidate) + seen->remark);
    }
    return remarks;
  }

  bool is_placed(const std::string& pattern, Kind kind) const {
    const auto all = observations_of(pattern, kind);
    return std::any_of(all.begin(), all.end(),
                       [](const auto& item) { return item.second->remark.empty() || !item.second->axes.empty(); });
  }

  void add_family(const std::string& pattern, const std::vector<Kind>& family) {
    const auto lead = std::find_if(family.begin(), family.end(), [&](Kind kind) { return is_placed(pattern, kind); });
    std::vector<Combined> of_lead;
    for (const Kind kind : family) {
      const auto all = observations_of(pattern, kind);
      if (all.empty()) continue;
      const bool leads = lead != family.end() && kind == *lead;
      const bool speaks_of_parameter =
          family[0] == Kind::kParam && kind != Kind::kParamGrad && (leads || lead == family.end());
      DraftRule rule{
          pattern, speaks_of_parameter ? std::nullopt : std::optional(kind), {}, remarks_about(pattern, kind)};
      std::vector<Combined> axes = combine_axes(pattern, kind, rule.remarks);
      if (leads) {
        rule.whole = axes.empty();
        of_lead = axes;
      } else if (lead != family.end()) {
        const bool follows = std::all_of(all.begin(), all.end(), [](const auto& item) { return item.second->follows; });
        if (follows || counting_lines(kind, kind, axes) == counting_lines(*lead, kind, of_lead)) {
          std::erase_if(axes, [&](const Combined& axis) { return follows || axis.line.counts; });
        } else {
          rule.whole = axes.empty();
        }
      }
      if (kind == Kind::kScalar && rule.whole) continue;  // needs no rule, whatever the others say
      for (Combined& axis : axes) rule.lines.push_back(std::move(axis.line));
      if (!rule.lines.empty() || !rule.remarks.empty() || rule.whole) draft_.rules.push_back(std::move(rule));
    }
  }

  // Joins the lines that say the same, and leaves out those about one key of the section that do not.
  void add_parallelism() {
    std::map<std::string, std::vector<std::pair<std::size_t, const DraftLine*>>> by_key;
    for (std::size_t i = 0; i < candidates_.size(); ++i) {
      for (const DraftLine& line : candidates_[i].parallelism) {
        by_key[line.text.substr(0, line.text.find(": "))].emplace_back(i, &line);
      }
    }
    for (const auto& [key, lines] : by_key) {
      DraftLine joined = *lines[0].second;
      std::vector<std::string> whys, texts;
      bool agree = true;
      for (const auto& [candidate, line] : lines) {
        agree = agree && line->text == joined.text;
        joined.certain = joined.certain || line->certain;
        whys.push_back(seen_on(candidate) + line->why);
        texts.push_back(fmt::format("{} {}{}", line->text, seen_on(candidate), line->why));
      }
      joined.why = fmt::format("{}", fmt::join(whys, "; "));
      if (agree) {
        draft_.parallelism.push_back(std::move(joined));
      } else {
        draft_.remarks.push_back(fmt::format("candidates contradict each other: {}", fmt::join(texts, "; ")));
      }
    }
  }

  // The value of `dp`, `dp*cp` or `1/tp/dp` on the candidate's mesh.
  static double value_on(const Mesh& mesh, const std::string& factor) {
    const bool inverse = factor.starts_with("1/");
    double value = 1;
    for (std::size_t begin = inverse ? 2 : 0; begin <= factor.size();) {
      const std::size_t end = std::min(factor.find_first_of("*/", begin), factor.size());
      value *= static_cast<double>(size_of_axis(mesh, factor.substr(begin, end - begin)));
      begin = end + 1;
    }
    return inverse ? 1 / value : value;
  }

  // Returns the factors that have the value that was seen, on every candidate that shows one.
  std::vector<std::string> fitting_factors() const {
    std::vector<std::string> fitting;
    for (const ObservedCandidate& candidate : candidates_) {
      if (!candidate.loss_scale) continue;
      for (const std::string& factor : candidate.loss_scale->factors) {
        const bool fits = std::all_of(candidates_.begin(), candidates_.end(), [&](const ObservedCandidate& other) {
          return !other.loss_scale || value_on(other.mesh, factor) == other.loss_scale->value;
        });
        const bool is_new = std::find(fitting.begin(), fitting.end(), factor) == fitting.end();
        if (fits && is_new) fitting.push_back(factor);
      }
    }
    return fitting;
  }

  void add_loss_scale() {
    std::vector<std::string> whys;
    bool certain = true;
    for (std::size_t i = 0; i < candidates_.size(); ++i) {
      const auto& scale = candidates_[i].loss_scale;
      if (!scale || scale->value == 1) continue;
      whys.push_back(seen_on(i) + scale->why);
      certain = certain && scale->certain;
    }
    if (whys.empty()) return;
    const std::vector<std::string> fitting = fitting_factors();
    std::string why = fmt::format("{}", fmt::join(whys, "; "));
    if (fitting.empty()) {
      draft_.remarks.push_back(fmt::format("no loss_scale fits all candidates: {}", why));
      return;
    }
    for (std::size_t i = 1; i < fitting.size(); ++i) why += fmt::format("; {} is as much", fitting[i]);
    draft_.parallelism.push_back(
        {"loss_scale: " + fitting[0], certain && fitting.size() == 1, certain, std::move(why)});
  }

  std::span<const ObservedCandidate> candidates_;
  Draft& draft_;
};

}  // namespace

void combine(std::span<const ObservedCandidate> candidates, Draft& draft) {
  for (std::size_t i = 0; i < candidates.size(); ++i) {
    const std::string letter = candidates.size() == 1 ? "" : letter_of(i) + ": ";
    draft.candidates.push_back(
        fmt::format("{}{} ({})", letter, candidates[i].directory, axes_of_mesh(candidates[i].mesh)));
  }
  Combiner(candidates, draft).run();
}

}  // namespace ttrace
