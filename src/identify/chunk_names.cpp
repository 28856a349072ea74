#include "identify/chunk_names.h"

#include <algorithm>
#include <string_view>

#include "base/tensor_name.h"

namespace ttrace {
namespace {

Beginning beginning_of(const Entry& entry) {
  return {entry.dtype, entry.shape.get(), entry.sketch ? entry.sketch->checksum : entry.checksum};
}

void add_children(std::string_view path, ChunkNames& names) {
  std::string parent;
  for (const std::string& child : components_of(path)) {
    names.children[parent].insert(child);
    parent += parent.empty() ? child : "." + child;
  }
}

void add_names(const RankTrace& rank, NamesByChunk& program) {
  std::set<std::tuple<std::int32_t, Kind, const char*>> seen;  // millions of entries share names
  for (const Entry& entry : rank.entries) {
    const Kind kind = entry.id.kind;
    const std::string& text = entry.id.name.get();
    const TensorName name(text);
    // Neither a scalar's name is a module's, nor that of what no module has: `(optimizer).0`,
    // `(model).CrossEntropyLoss`.
    if (kind == Kind::kScalar || (text.starts_with('(') && name.path != kRootModule)) continue;
    if (!seen.emplace(entry.id.chunk, kind, text.data()).second) continue;
    ChunkNames& names = program[entry.id.chunk];
    if (name.path != kRootModule) add_children(name.path, names);
    if (kind == Kind::kParam || kind == Kind::kBuffer) {
      names.parameters[std::string(name.path)].push_back(beginning_of(entry));
    } else if (!is_parameter_kind(kind)) {
      names.calls[std::string(name.path)].emplace(kind, name.member);
      names.classes.emplace(name.path, entry.module_class.get());
    }
  }
}

}  // namespace

NamesByChunk names_by_chunk(const RankTrace& rank) {
  NamesByChunk program;
  add_names(rank, program);
  return program;
}

NamesByChunk names_by_chunk(const Trace& trace) {
  NamesByChunk program;
  for (const RankTrace& rank : trace.ranks) add_names(rank, program);
  return program;
}

void CountedParameters::add(const std::vector<Beginning>& values, const std::vector<Beginning>* trusted) {
  ++inside;
  if (trusted == nullptr) return;
  ++named;
  const Beginning& first = trusted->front();
  const auto is_whole = [&](const Beginning& value) {
    return std::get<Dtype>(value) == std::get<Dtype>(first) && std::get<Shape>(value) == std::get<Shape>(first);
  };
  comparable += std::any_of(values.begin(), values.end(), is_whole) ? 1 : 0;
  equal += std::find(values.begin(), values.end(), first) == values.end() ? 0 : 1;
}

bool CountedParameters::is_enough() const {
  if (named * 2 <= inside) return false;
  return comparable == 0 ? named == inside : equal * 2 > comparable;
}

}  // namespace ttrace
