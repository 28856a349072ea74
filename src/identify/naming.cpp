#include "identify/naming.h"

#include <fmt/format.h>

#include <algorithm>
#include <tuple>
#include <vector>

#include "base/tensor_name.h"
#include "identify/member_names.h"

namespace ttrace {
namespace {

// The part of the model that a rank's names are local to.
struct Part {
  std::int64_t stage = 0, chunk = 0, experts = 0;
};

Part part_of(const GroupingContext& context, const PresentRank& rank, const Entry& entry) {
  return {virtual_stage(context.pipeline, rank, entry), entry.id.chunk, coordinate_on(rank, context.experts.axis)};
}

bool is_input(Kind kind) { return kind == Kind::kInput || kind == Kind::kGradInput; }

bool is_in_divided_layer(const Pipeline& pipeline, const std::string& name) {
  if (pipeline.divided.empty()) return false;
  for (auto number = number_in(name); number; number = number_in(name, number->end)) {
    if (pipeline.divided.contains(number->prefix)) return true;
  }
  return false;
}

CanonicalName canonical_name(const GroupingContext& context, const Part& part, Kind kind, const std::string& local) {
  CanonicalName name;
  name.text = local;
  name.spans =
      context.pipeline.spanning.contains(TensorName(local).path) && !context.pipeline.undivided.contains(part.chunk);
  if (auto text = renumbered(context.pipeline.layers, name.text, part.stage)) {
    name.text = std::move(*text);
    name.layer = true;
  }
  name.text = with_global_call(context.pipeline, name.text, part.stage);
  name.layer = name.layer || is_in_divided_layer(context.pipeline, name.text);
  if (auto text = renumbered(context.experts.experts, name.text, part.experts)) {
    name.text = std::move(*text);
    name.expert = true;
  }
  if (!context.pipeline.ruled && part.chunk != 0) name.text = fmt::format("model{}.{}", part.chunk, name.text);
  name.text = name_of_member(name.text, kind, context.layout);
  return name;
}

}  // namespace

std::pair<CanonicalName*, std::size_t> CanonicalNames::find(const GroupingContext& context, const PresentRank& rank,
                                                            const Entry& entry) {
  CanonicalName name = canonical_name(context, part_of(context, rank, entry), entry.id.kind, entry.id.name);
  std::size_t occurrence = 0;
  std::tie(name.text, occurrence) = tied_name(context.annotations.said, name.text);
  name.tied = std::any_of(context.annotations.said.tied.begin(), context.annotations.said.tied.end(),
                          [&](const TiedRule& rule) { return matches(rule.of, name.text); });
  return {&names_.try_emplace(name.text, std::move(name)).first->second, occurrence};
}

void CanonicalNames::add_like(const CanonicalName& other, const std::string& text, const ModelLayout& layout) {
  const auto [found, is_new] = names_.try_emplace(text, other);
  if (!is_new) return;
  CanonicalName& name = found->second;
  name.text = text;
  name.placements = {};
  name.shapes = {};
  for (std::size_t kind = 0; kind < name.shapes.size(); ++kind) {
    const auto shape = layout.shapes.find({text, static_cast<Kind>(kind)});
    if (shape != layout.shapes.end()) name.shapes[kind] = &shape->second;
  }
}

const CanonicalName* CanonicalNames::find(const std::string& text) const {
  const auto found = names_.find(text);
  return found == names_.end() ? nullptr : &found->second;
}

void CanonicalNames::sort() {
  for (auto& [text, name] : names_) sorted_.push_back(&name);
  std::sort(sorted_.begin(), sorted_.end(),
            [](const CanonicalName* a, const CanonicalName* b) { return a->text < b->text; });
  for (std::size_t i = 0; i < sorted_.size(); ++i) sorted_[i]->place = static_cast<std::uint32_t>(i);
}

std::pair<std::string, std::size_t> tied_name(const Annotations& annotations, const std::string& name) {
  for (std::size_t i = 0; i < annotations.tied.size(); ++i) {
    const TiedRule& rule = annotations.tied[i];
    if (matches(rule.name, name)) return {name.substr(0, name.size() - rule.name.size()) + rule.of, i + 1};
  }
  return {name, 0};
}

NotSeenTensors not_seen_by(const GroupingContext& context) {
  NotSeenTensors all;
  for (const PresentRank& rank : context.table.ranks) {
    for (const NotSeen& statement : rank.trace->not_seen) {
      if (statement.everything) {
        all.add_everything(statement);
        continue;
      }
      Entry entry;
      entry.id.chunk = statement.chunk;
      const Part part = part_of(context, rank, entry);
      // Of several kinds, which share a name, those of inputs go by the name that the others have.
      const Kind kind =
          std::all_of(statement.kinds.begin(), statement.kinds.end(), is_input) ? Kind::kInput : Kind::kOutput;
      const auto canonical = [&](const std::string& name, Kind of) {
        return tied_name(context.annotations.said, canonical_name(context, part, of, name).text).first;
      };
      for (const std::string& name : statement.tensors) all.add_tensor(statement, canonical(name, kind));
      // What is called as a module's input has one name or another; the module has one.
      for (const std::string& name : statement.modules) all.add_module(statement, canonical(name, Kind::kOutput));
    }
  }
  return all;
}

}  // namespace ttrace
