#include "annotate/correspondence_draft.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cctype>
#include <map>
#include <set>

#include "annotate/layer_patterns.h"
#include "annotate/module_counterparts.h"
#include "annotate/odd_layers.h"
#include "annotate/parameter_counterparts.h"
#include "base/tensor_name.h"
#include "correspond/index_pattern.h"
#include "text/readable.h"
#include "text/yaml.h"

namespace ttrace {
namespace {

std::string quoted(const std::string& word) {
  const auto printed = [](char c) { return c >= ' ' && c <= '~'; };
  if (!std::all_of(word.begin(), word.end(), printed)) return yaml_word(word);
  std::string text = "'";
  for (const char c : word) text += c == '\'' ? std::string("''") : std::string(1, c);
  return text + "'";
}

// A name or a pattern; `in_list` where a list in brackets holds it, or where it is a key.
std::string word_of(const std::string& word, bool in_list) {
  const auto plain = [&](char c) {
    return std::isalnum(static_cast<unsigned char>(c)) != 0 ||
           std::string_view("_.()").find(c) != std::string_view::npos ||
           (!in_list && std::string_view("{},+-> ").find(c) != std::string_view::npos);
  };
  const bool begins_plainly =
      std::isalpha(static_cast<unsigned char>(word[0])) != 0 || word[0] == '(' || word[0] == '.';
  return begins_plainly && std::all_of(word.begin(), word.end(), plain) ? word : quoted(word);
}

// `layers.{i}.{q,k,v}`; nothing where a capture lies between what the names have in common.
std::optional<std::string> one_key(const std::vector<std::string>& names) {
  if (names.size() == 1) return names.front();
  std::size_t begin = 0, end = 0;
  const std::string& first = names.front();
  const auto all_have = [&](auto test) { return std::all_of(names.begin(), names.end(), test); };
  while (begin < first.size() &&
         all_have([&](const std::string& name) { return begin < name.size() && name[begin] == first[begin]; })) {
    ++begin;
  }
  while (begin > 0 && first[begin - 1] != '.') --begin;
  while (all_have([&](const std::string& name) {
    return begin + end < name.size() && name[name.size() - 1 - end] == first[first.size() - 1 - end];
  })) {
    ++end;
  }
  while (end > 0 && first[first.size() - end] != '.') --end;
  std::vector<std::string> middles;
  for (const std::string& name : names) middles.push_back(name.substr(begin, name.size() - begin - end));
  if (std::any_of(middles.begin(), middles.end(), [](const std::string& m) { return m.find('{') != m.npos; })) {
    return std::nullopt;
  }
  return fmt::format("{}{{{}}}{}", first.substr(0, begin), fmt::join(middles, ","), first.substr(first.size() - end));
}

std::string distance(double value) { return fmt::format("{:.1g}", value); }

std::string of_layers(std::size_t some, std::size_t all) {
  return some == all ? (all == 1 ? "" : fmt::format(" in {} layers", all))
                     : fmt::format(" in {} of {} layers", some, all);
}

// Says what a line was seen on.
std::string evidence_of(const CounterpartRule& rule) {
  std::vector<std::string> words;
  const Counterparts& line = rule.line;
  if (!line.equal.empty()) {
    std::vector<std::string> of(line.equal.begin(), line.equal.end());
    const std::string what =
        of == std::vector<std::string>{"values"} ? "equal" : fmt::format("equal {}", fmt::join(of, ", "));
    words.push_back(what + of_layers(rule.equal, rule.instances));
  }
  std::vector<std::string> near;
  for (const auto& [key, values] : line.near) near.push_back(fmt::format("{} {}", key, distance(values.distance)));
  if (!near.empty()) {
    words.push_back(
        fmt::format("rel_err of {}{}{}", fmt::join(near, ", "), of_layers(rule.near, rule.instances),
                    rule.nearest_other > 0 ? fmt::format(", otherwise {}", distance(rule.nearest_other)) : ""));
  }
  for (const auto& [key, values] : line.far) {
    words.push_back(fmt::format("{} is {} apart: a bug, or no counterpart", key, distance(values.distance)));
  }
  return words.empty() ? "by its place" : fmt::format("{}", fmt::join(words, "; "));
}

// Gives each size that a pattern needs one name in the whole file.
class Sizes {
 public:
  void rename(Counterparts& line) {
    std::map<std::string, IndexPattern> patterns = parsed(line);
    for (const auto& [name, size] : AxisSizes(line.sizes)) {
      std::string unique = name;
      for (int n = 2; all_.contains(unique) && all_.at(unique) != size; ++n) unique = fmt::format("{}{}", name, n);
      if (unique != name) {
        for (auto& [key, pattern] : patterns) rename_axis(name, unique, pattern);
      }
      all_[unique] = size;
    }
    for (const auto& [key, pattern] : patterns) {
      line.patterns[key] = pattern.text;
      inside_products_.merge(axes_inside_products(pattern));
    }
  }

  // Only the sizes of axes inside a dimension must be told; the others follow from shapes.
  std::string text() const {
    std::string text;
    for (const auto& [name, size] : all_) {
      if (inside_products_.contains(name)) text += fmt::format("  {}: {}\n", name, size);
    }
    return text.empty()
               ? ""
               : "sizes:  # of this model; write them as in annotations/correspondences for others\n" + text + "\n";
  }

 private:
  // Returns the patterns of a line; `same` and `none` are words in place of one.
  static std::map<std::string, IndexPattern> parsed(const Counterparts& line) {
    std::map<std::string, IndexPattern> patterns;
    for (const auto& [key, pattern] : line.patterns) {
      if (pattern == "same" || pattern == "none") continue;
      patterns.emplace(key, read_index_pattern(pattern));
    }
    return patterns;
  }

  AxisSizes all_;
  std::set<std::string> inside_products_;  // of all patterns
};

std::string remarks_of(const CounterpartRule& rule, std::string_view indent) {
  std::string text;
  for (const std::string& remark : rule.line.remarks) text += fmt::format("{}# {}\n", indent, printable(remark));
  return text;
}

// Returns what stands after `is:`.
std::string others_of(const CounterpartRule& rule) {
  const std::vector<std::string>& names = rule.line.names[1];
  std::vector<std::string> others;
  for (const std::string& name : names) others.push_back(word_of(name, names.size() > 1));
  return others.size() == 1 ? others.front() : fmt::format("[{}]", fmt::join(others, ", "));
}

std::string patterns_of(const CounterpartRule& rule, std::string_view indent) {
  std::string text;
  for (const auto& [what, pattern] : rule.line.patterns) {
    text += fmt::format("{}{}: {}\n", indent, word_of(what, true), word_of(pattern, false));
  }
  return text;
}

// Returns what the file says of the names that have one key: a line, a mapping, or a list of mappings.
std::string rules_yaml(const std::string& key, const std::vector<const CounterpartRule*>& rules) {
  const std::string word = word_of(key, false);
  if (rules.size() > 1) {
    std::string text = word + ":\n";
    for (const CounterpartRule* rule : rules) {
      text += remarks_of(*rule, "  ");
      text += fmt::format("  - is: {}  # {}\n", others_of(*rule), printable(evidence_of(*rule)));
      text += patterns_of(*rule, "    ");
    }
    return text;
  }
  const CounterpartRule& rule = *rules.front();
  const std::string evidence = printable(evidence_of(rule));
  if (rule.line.patterns.empty()) {
    return remarks_of(rule, "") + fmt::format("{}: {}  # {}\n", word, others_of(rule), evidence);
  }
  return remarks_of(rule, "") + fmt::format("{}:  # {}\n  is: {}\n", word, evidence, others_of(rule)) +
         patterns_of(rule, "  ");
}

// Rules by the key that their names on the left have, in the order in which the keys are first there.
struct Keyed {
  std::vector<std::pair<std::string, std::vector<const CounterpartRule*>>> rules;
  std::vector<const CounterpartRule*> without;  // names that no key says
};

Keyed by_key(const std::vector<CounterpartRule>& rules) {
  Keyed keyed;
  for (const CounterpartRule& rule : rules) {
    const auto key = one_key(rule.line.names[0]);
    if (!key) {
      keyed.without.push_back(&rule);
      continue;
    }
    const auto found =
        std::find_if(keyed.rules.begin(), keyed.rules.end(), [&](const auto& one) { return one.first == *key; });
    (found == keyed.rules.end() ? keyed.rules.emplace_back(*key, std::vector<const CounterpartRule*>{}) : *found)
        .second.push_back(&rule);
  }
  return keyed;
}

// Lines that a reader may make rules of, of layers that are not as their sisters.
std::string odd_yaml(const std::vector<OddMatch>& odd) {
  std::string text;
  for (const auto& [match, layers, all] : odd) {
    const std::string key = one_key(match.names[0]).value_or(fmt::format("{}", fmt::join(match.names[0], ", ")));
    std::vector<std::string> others;
    for (const std::string& name : match.names[1]) others.push_back(word_of(name, match.names[1].size() > 1));
    const std::string is = others.size() == 1 ? others.front() : fmt::format("[{}]", fmt::join(others, ", "));
    const std::string pattern = match.pattern == "same" ? "same" : word_of(match.pattern, true);
    text += fmt::format("#? {}: {{is: {}, param: {}}}  # equal values, in {} of {} layers\n", word_of(key, false), is,
                        pattern, layers, all);
  }
  if (text.empty()) return text;
  return "\n# What one layer holds otherwise than its sisters is no rule: there, values are in the wrong place, or\n"
         "# it is made otherwise, and then take the `#?` away and name the others by their numbers.\n" +
         text;
}

// Names that were found to have no counterpart, layers put together.
std::string lone_yaml(const std::set<std::string>& names, std::string_view side, std::string_view what) {
  std::map<std::string, std::size_t> by_template;
  for (const std::string& name : names) ++by_template[without_numbers(name)];
  std::string text;
  for (const auto& [name, count] : by_template) {
    text += fmt::format("#   {} of the {}: {}{}\n", what, side, printable(name),
                        count == 1 ? "" : fmt::format(" ({} of them)", count));
  }
  return text;
}

std::set<std::string> parameter_names(const Trace& trace) {
  std::set<std::string> names;
  for (const RankTrace& rank : trace.ranks) {
    for (const Entry& entry : rank.entries) {
      if (is_parameter_kind(entry.id.kind)) names.insert(without_numbers(entry.id.name));
    }
  }
  return names;
}

}  // namespace

bool names_differ(const Trace& reference, const Trace& candidate) {
  const std::set<std::string> of_reference = parameter_names(reference), of_candidate = parameter_names(candidate);
  if (of_reference.empty() || of_candidate.empty()) return false;
  const auto shared = static_cast<std::size_t>(std::count_if(
      of_candidate.begin(), of_candidate.end(), [&](const std::string& name) { return of_reference.contains(name); }));
  return 2 * shared < std::min(of_reference.size(), of_candidate.size());
}

CorrespondenceDraft draft_correspondence(const AlignedTrace& reference, const AlignedTrace& candidate) {
  const auto of_reference = initial_parameters_of(reference.alignment);
  const auto of_candidate = initial_parameters_of(candidate.alignment);
  const auto dtype = common_dtype(of_reference, of_candidate);
  ParameterMatches parameters = match_parameters(of_reference, of_candidate, dtype);
  settle_odd_layers(of_reference, of_candidate, parameters);
  ModuleMatches modules = match_modules(reference, candidate, parameters, dtype);
  std::vector<CounterpartRule> rules = put_layers_together(std::move(modules.counterparts));
  Sizes sizes;
  for (CounterpartRule& rule : rules) sizes.rename(rule.line);

  CorrespondenceDraft draft;
  draft.odd = parameters.odd.size();
  draft.parameters[0] = of_reference.size();
  draft.parameters[1] = of_candidate.size();
  for (std::size_t side : {0, 1}) draft.found[side] = draft.parameters[side] - modules.lone_parameters[side].size();
  std::string body, unsaid;
  const Keyed keyed = by_key(rules);
  for (const auto& [key, of_key] : keyed.rules) {
    body += rules_yaml(key, of_key);
    draft.rules += of_key.size();
    draft.measured += static_cast<std::size_t>(std::count_if(
        of_key.begin(), of_key.end(), [](const CounterpartRule* rule) { return rule->equal + rule->near > 0; }));
  }
  for (const CounterpartRule* rule : keyed.without) {
    const std::string names =
        fmt::format("{} and {}", fmt::join(rule->line.names[0], ", "), fmt::join(rule->line.names[1], ", "));
    unsaid += fmt::format("#   {}: name the reference's by a rule each\n", printable(names));
  }
  draft.text = "# Drafted by `ttrace annotate --reference` (" + summary_of(draft) + ").\n";
  draft.text += fmt::format("# Left: {}. Right: {}.\n", printable(reference.trace->directory.string()),
                            printable(candidate.trace->directory.string()));
  draft.text +=
      "# What is equal are the parameters before the first step; rel_err is "
      "of the first micro-batch. A draft says what\n"
      "# the programs do, not what they should do: read the patterns. The "
      "schema: annotations/correspondences/README.md.\n";
  if (dtype) draft.text += fmt::format("# Parameters were rounded to {} first.\n", name_of(*dtype));
  draft.text += "\nsides: [reference, candidate]\n\n" + sizes.text();
  if (modules.activations != "same") draft.text += fmt::format("activations: {}\n\n", modules.activations);
  draft.text += body;
  draft.text += odd_yaml(parameters.odd);
  for (const std::string& remark : parameters.remarks) unsaid += fmt::format("#   {}\n", printable(remark));
  for (const auto& [name, apart] : modules.scalars) {
    draft.text += fmt::format(
        "# The scalar {} is {} apart, and goes by its name: where the programs mean something else, write none: [{}]\n",
        printable(name), distance(apart), printable(name));
  }
  constexpr std::string_view kSides[2] = {"reference", "candidate"};
  for (std::size_t side : {0, 1}) {
    unsaid += lone_yaml(modules.lone_parameters[side], kSides[side], "parameter");
    unsaid += lone_yaml(modules.lone_modules[side], kSides[side], "output");
  }
  if (!unsaid.empty()) {
    draft.text +=
        "\n"
        "# No counterpart was found. Where there is one, write `NAME: NAME`, "
        "or `NAME: {is: NAME, output: PATTERN}`; what\n"
        "# no line names is not compared, and the report says so.\n" +
        unsaid;
  }
  return draft;
}

std::string summary_of(const CorrespondenceDraft& draft) {
  const std::string odd =
      draft.odd == 0 ? "" : fmt::format("; {} of one layer and not of its sisters, which are no rules", draft.odd);
  return fmt::format(
      "{} rule{}, {} of them measured; {} of {} parameters of the reference, {} of {} of the candidate{}", draft.rules,
      draft.rules == 1 ? "" : "s", draft.measured, draft.found[0], draft.parameters[0], draft.found[1],
      draft.parameters[1], odd);
}

}  // namespace ttrace
