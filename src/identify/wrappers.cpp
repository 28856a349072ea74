#include "identify/wrappers.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string_view>
#include <tuple>
#include <utility>

#include "base/describe.h"
#include "base/tensor_name.h"
#include "identify/chunk_names.h"
#include "identify/renamed.h"

namespace ttrace {
namespace {

constexpr int kMostDeep = 8;  // of wrappers around parts of what others hold

// A module, and the attribute by which it holds its only child, or that of its child, and so on.
struct Wrapper {
  std::string module;              // "" is the root
  std::string attribute;           // with dots where it is of several modules, one inside the other
  bool is_child_called = false;    // the reference's calls of the module are those of the child
  std::string reference = module;  // how the reference calls what they are

  std::string child() const { return module.empty() ? attribute : module + "." + attribute; }
  std::string called() const { return module.empty() ? std::string(kRootModule) : module; }
  std::string called_in_reference() const { return reference.empty() ? std::string(kRootModule) : reference; }
};

// The path without the attribute; nothing where it is not inside the child.
std::optional<std::string> path_without(const Wrapper& wrapper, std::string_view path) {
  const std::string child = wrapper.child();
  if (!is_inside(path, child)) return std::nullopt;
  const std::string_view inside = path.substr(child.size() + 1);
  return wrapper.reference.empty() ? std::string(inside) : fmt::format("{}.{}", wrapper.reference, inside);
}

CountedParameters weigh_parameters(const Wrapper& wrapper, const ChunkNames& reference, const ChunkNames& candidate) {
  CountedParameters found;
  for (const auto& [path, values] : candidate.parameters) {
    const auto plain = path_without(wrapper, path);
    if (!plain) continue;
    const auto other = reference.parameters.find(*plain);
    found.add(values, other == reference.parameters.end() ? nullptr : &other->second);
  }
  return found;
}

// True where most of the modules inside have the reference's names. `if_none`: what is said where there are none.
bool are_modules_named(const Wrapper& wrapper, const ChunkNames& reference, const ChunkNames& candidate, bool if_none) {
  std::int64_t inside = 0, named = 0;
  for (const auto& [path, calls] : candidate.calls) {
    const auto plain = path_without(wrapper, path);
    if (!plain) continue;
    ++inside;
    named += reference.calls.contains(*plain) ? 1 : 0;
  }
  return inside == 0 ? if_none : named * 2 > inside;
}

bool is_in(const ChunkNames& names, const std::string& path) {
  return names.children.contains(path) || names.parameters.contains(path) || names.calls.contains(path);
}

bool is_proved(const Wrapper& wrapper, const ChunkNames& reference, const ChunkNames& candidate) {
  const CountedParameters parameters = weigh_parameters(wrapper, reference, candidate);
  return parameters.inside > 0 ? parameters.is_enough() : are_modules_named(wrapper, reference, candidate, false);
}

// True where the reference's calls of the module are the child's: the wrapper is never called itself, or hands over
// others than the child and the reference do; `rather`: where the child hands over what the reference does.
bool is_child_called(const Wrapper& wrapper, const ChunkNames& reference, const ChunkNames& candidate, bool rather) {
  const auto calls_of = [](const ChunkNames& names, const std::string& module) {
    const auto found = names.calls.find(module);
    return found == names.calls.end() ? std::set<std::pair<Kind, std::string>>() : found->second;
  };
  const auto trusted = calls_of(reference, wrapper.called_in_reference()),
             outer = calls_of(candidate, wrapper.called()), inner = calls_of(candidate, wrapper.child());
  return outer.empty() || (inner == trusted && (rather || outer != trusted));
}

// Returns the module as a wrapper of its only child, of that one's only child, and so on.
std::vector<Wrapper> wrappers_around(const std::string& module, const ChunkNames& candidate) {
  std::vector<Wrapper> around;
  std::string attribute;
  auto holder = candidate.children.find(module);
  while (holder != candidate.children.end() && holder->second.size() == 1) {
    attribute += (attribute.empty() ? "" : ".") + *holder->second.begin();
    around.push_back({module, attribute});
    holder = candidate.children.find(around.back().child());
  }
  return around;
}

// Returns what the module, and each that it alone holds, is a wrapper of; nothing where that is not proved of any.
std::optional<Wrapper> find_wrapper(const std::string& module, const ChunkNames& reference,
                                    const ChunkNames& candidate) {
  for (Wrapper& wrapper : wrappers_around(module, candidate)) {
    if (is_in(reference, wrapper.child())) return std::nullopt;
    if (!candidate.children.contains(wrapper.child()) || !is_proved(wrapper, reference, candidate)) continue;
    wrapper.is_child_called = is_child_called(wrapper, reference, candidate, false);
    return wrapper;
  }
  return std::nullopt;
}

// Returns what a module outside of the model, such as a loss, is a wrapper of, and each that it alone holds: a module of
// the class of one that the reference calls by itself. Such a module goes by its class, and so the wrapper has another
// name, too. Nothing where what is inside is not the reference's, or a parameter is.
std::optional<Wrapper> find_lone_wrapper(const std::string& module, const ChunkNames& reference,
                                         const ChunkNames& candidate) {
  if (module.empty() || owner_of(module) != kRootModule || is_in(reference, module)) return std::nullopt;
  for (Wrapper& wrapper : wrappers_around(module, candidate)) {
    const auto own = candidate.classes.find(wrapper.child());
    if (own == candidate.classes.end()) return std::nullopt;
    wrapper.reference = last_component(own->second);
    const auto trusted = reference.classes.find(wrapper.reference);
    const bool is_it = trusted != reference.classes.end() && trusted->second == own->second;
    if (!is_it || is_in(candidate, wrapper.reference)) continue;
    const CountedParameters buffers = weigh_parameters(wrapper, reference, candidate);
    const bool are_buffers_named = buffers.inside == 0 || buffers.is_enough();
    if (!are_buffers_named || !are_modules_named(wrapper, reference, candidate, true)) continue;
    wrapper.is_child_called = is_child_called(wrapper, reference, candidate, true);
    return wrapper;
  }
  return std::nullopt;
}

// Returns those of which none is inside another.
std::vector<Wrapper> find_wrappers(const ChunkNames& reference, const ChunkNames& candidate) {
  std::vector<Wrapper> wrappers;
  for (const auto& [module, children] : candidate.children) {
    const auto holds = [&, &path = module](const Wrapper& wrapper) {
      return wrapper.module.empty() || path == wrapper.module || is_inside(path, wrapper.module);
    };
    if (std::any_of(wrappers.begin(), wrappers.end(), holds)) continue;
    if (auto wrapper = find_wrapper(module, reference, candidate)) {
      wrappers.push_back(*std::move(wrapper));
    } else if (auto lone = find_lone_wrapper(module, reference, candidate)) {
      const auto is_same = [&](const Wrapper& other) { return other.reference == lone->reference; };
      if (std::none_of(wrappers.begin(), wrappers.end(), is_same)) wrappers.push_back(*std::move(lone));
    }
  }
  return wrappers;
}

// True for what the whole model calls and does not have: `(model).CrossEntropyLoss`.
bool is_inside_root(std::string_view path) {
  return path.starts_with(kRootModule) && path.substr(kRootModule.size()).starts_with('.');
}

// The path without the attribute of the wrapper, if it is inside; the name of the calls of both, as they go.
std::string path_through(const Wrapper& wrapper, std::string_view path) {
  if (const auto plain = path_without(wrapper, path)) return *plain;
  if (wrapper.reference != wrapper.module) {
    const std::string known = wrapper.is_child_called ? wrapper.child() : wrapper.called();
    return path == known ? wrapper.reference : std::string(path);
  }
  if (!wrapper.is_child_called) return std::string(path);
  if (path == wrapper.child()) return wrapper.called();
  // A criterion that the wrapper calls is outside of what the reference calls the model.
  if (wrapper.module.empty() && is_inside_root(path)) return std::string(path.substr(kRootModule.size() + 1));
  return path == wrapper.called() ? wrapper.child() : std::string(path);
}

// Wrappers of a chunk, and the same with '#' for numbers, as a rank says what is alike in all layers.
void rename_through(std::int32_t chunk, std::vector<Wrapper> wrappers, Trace& candidate) {
  for (const Wrapper& wrapper : std::vector(wrappers)) {
    const std::string family = without_numbers(wrapper.module);
    if (family != wrapper.module) wrappers.push_back({family, wrapper.attribute, wrapper.is_child_called, family});
  }
  const NewName new_name = [&](std::int32_t of, const std::string& name) {
    if (of != chunk) return name;
    const TensorName parts(name);
    std::string path(parts.path);
    for (const Wrapper& wrapper : wrappers) {
      std::string plain = path_through(wrapper, path);
      if (plain != path) return fmt::format("{}{}{}", plain, parts.member, parts.call);
    }
    return name;
  };
  for (RankTrace& rank : candidate.ranks) rename_tensors(rank, new_name);
}

}  // namespace

std::vector<std::string> see_through_wrappers(const Trace& reference, Trace& candidate) {
  std::set<std::string> seen_through, lone;
  const NamesByChunk trusted = names_by_chunk(reference);
  for (int depth = 0; depth < kMostDeep; ++depth) {
    bool is_done = true;
    for (const auto& [chunk, names] : names_by_chunk(candidate)) {
      const auto of_reference = trusted.find(chunk);
      if (of_reference == trusted.end()) continue;
      std::vector<Wrapper> wrappers = find_wrappers(of_reference->second, names);
      if (wrappers.empty()) continue;
      for (const Wrapper& wrapper : wrappers) {
        const std::string child = printable(without_numbers(wrapper.child()));
        if (wrapper.reference == wrapper.module) seen_through.insert(child);
        if (wrapper.reference != wrapper.module)
          lone.insert(fmt::format("{} ({})", printable(wrapper.reference), child));
      }
      rename_through(chunk, std::move(wrappers), candidate);
      is_done = false;
    }
    if (is_done) break;
  }
  std::vector<std::string> notes;
  if (!seen_through.empty()) {
    notes.push_back(
        fmt::format("candidate: modules that hold nothing but one other are taken for wrappers, and their attribute is "
                    "left out of the names inside, which then are the reference's: {}",
                    comma_list(std::vector<std::string>(seen_through.begin(), seen_through.end()))));
  }
  if (!lone.empty()) {
    notes.push_back(
        fmt::format("candidate: modules that the reference calls by themselves, and the candidate in one that holds "
                    "nothing but them, are taken for the reference's, by their class and what is inside: {}",
                    comma_list(std::vector<std::string>(lone.begin(), lone.end()))));
  }
  return notes;
}

}  // namespace ttrace
