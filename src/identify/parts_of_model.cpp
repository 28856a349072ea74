#include "identify/parts_of_model.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string_view>
#include <tuple>
#include <utility>

#include "base/describe.h"
#include "base/renumbered.h"
#include "base/tensor_name.h"
#include "identify/chunk_names.h"
#include "identify/renamed.h"

namespace ttrace {
namespace {

// A module of one of the reference's models.
struct WholePlace {
  std::int32_t chunk = 0;
  std::string path;
  friend auto operator<=>(const WholePlace&, const WholePlace&) = default;
};

// Of a model's children, by name; or of the whole model, by the empty one.
using Places = std::map<std::string, WholePlace>;

// A rank's model, by the rank's place in the trace and the model's number.
using ModelOfRank = std::pair<std::size_t, std::int32_t>;

std::string inside(const std::string& path, const std::string& name) {
  return path.empty() ? name : name.empty() ? path : path + "." + name;
}

// The parameters inside of a child, or of all of the model, by their names there.
std::map<std::string, const std::vector<Beginning>*> parameters_in(const std::string& child, const ChunkNames& model) {
  std::map<std::string, const std::vector<Beginning>*> parameters;
  for (const auto& [name, values] : model.parameters) {
    if (child.empty()) {
      parameters.emplace(name, &values);
    } else if (is_inside(name, child)) {
      parameters.emplace(name.substr(child.size() + 1), &values);
    }
  }
  return parameters;
}

CountedParameters counted_at(const std::string& path, const std::map<std::string, const std::vector<Beginning>*>& part,
                             const ChunkNames& whole) {
  CountedParameters counted;
  for (const auto& [name, values] : part) {
    const auto trusted = whole.parameters.find(inside(path, name));
    counted.add(*values, trusted == whole.parameters.end() ? nullptr : &trusted->second);
  }
  return counted;
}

// The paths of modules that have a parameter by this name inside.
std::set<std::string> paths_around(const std::string& name, const ChunkNames& whole) {
  std::set<std::string> paths;
  const std::string end = "." + name;
  for (const auto& [other, values] : whole.parameters) {
    if (other.ends_with(end)) paths.insert(other.substr(0, other.size() - end.size()));
  }
  return paths;
}

// The modules of the reference that have most parameters of the child, or of the model, and of these the most begin with
// their bytes.
std::vector<WholePlace> possible_places(const std::string& child, const ChunkNames& model,
                                        const NamesByChunk& reference) {
  const auto parameters = parameters_in(child, model);
  std::vector<WholePlace> found;
  std::int64_t most = 1;
  for (const auto& [chunk, whole] : reference) {
    for (const std::string& path :
         parameters.empty() ? std::set<std::string>() : paths_around(parameters.begin()->first, whole)) {
      const CountedParameters counted = counted_at(path, parameters, whole);
      if (!counted.is_enough() || counted.equal < most) continue;
      if (counted.equal > most) found.clear();
      most = counted.equal;
      found.push_back({chunk, path});
    }
  }
  return found;
}

bool has_names_of(const NamesByChunk& reference, const ChunkNames& model) {
  return std::ranges::any_of(reference, [&](const auto& item) {
    const auto is_known = [&](const auto& parameter) { return item.second.parameters.contains(parameter.first); };
    return 2 * std::ranges::count_if(model.parameters, is_known) >= std::ssize(model.parameters);
  });
}

// True where a rank has few parameters by names of the reference's; a quick look, for names of a large trace are many.
bool is_some_rank_misnamed(const Trace& reference, const Trace& candidate) {
  std::set<std::string_view> known;
  for (const Entry& entry : reference.ranks.front().entries) {
    if (entry.id.kind == Kind::kParam) known.insert(entry.id.name.get());
  }
  return std::ranges::any_of(candidate.ranks, [&](const RankTrace& rank) {
    std::int64_t all = 0, named = 0;
    for (const Entry& entry : rank.entries) {
      if (entry.id.kind != Kind::kParam) continue;
      ++all;
      named += known.contains(entry.id.name.get()) ? 1 : 0;
    }
    return 2 * named < all;
  });
}

std::optional<std::int64_t> number_of_child(std::string_view text) {
  std::int64_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  return error == std::errc() && end == text.data() + text.size() ? std::optional(number) : std::nullopt;
}

// The place of a child without parameters among numbered ones: as far from its neighbours' as the child is from these.
// Nothing where these say several.
std::optional<WholePlace> place_beside(const std::string& child, const Places& known, const ChunkNames& model,
                                       const NamesByChunk& reference) {
  const auto own = number_of_child(child);
  const auto its_class = model.classes.find(child);
  if (!own || its_class == model.classes.end()) return std::nullopt;
  std::set<WholePlace> found;
  for (const auto& [other, place] : known) {
    const auto number = number_of_child(other), its = number_of_child(last_component(place.path));
    if (!number || !its) continue;
    const std::string parent = place.path.substr(0, place.path.size() - last_component(place.path).size());
    const std::string path = parent + std::to_string(*its + *own - *number);
    const ChunkNames& whole = reference.at(place.chunk);
    const auto called = whole.classes.find(path);
    if (called != whole.classes.end() && called->second == its_class->second) found.insert({place.chunk, path});
  }
  return found.size() == 1 ? std::optional(*found.begin()) : std::nullopt;
}

// Finds the places of models, and of their children, as far as their bytes tell.
class PartsOfModel {
 public:
  PartsOfModel(const NamesByChunk& reference, const Trace& candidate) : reference_(reference) {
    for (std::size_t rank = 0; rank < candidate.ranks.size(); ++rank) {
      for (auto& [chunk, names] : names_by_chunk(candidate.ranks[rank])) {
        const ModelOfRank model(rank, chunk);
        if (names.parameters.empty() || has_names_of(reference, names)) {
          named_.insert(rank);
        } else {
          models_.emplace(model, std::move(names));
        }
      }
    }
    std::erase_if(models_, [&](const auto& item) { return named_.contains(item.first.first); });
  }

  // The places of all models of ranks of which each model has one, or all its children that are called.
  std::map<ModelOfRank, Places> find() {
    for (const auto& [model, names] : models_) find_possible(model, names);
    settle_others();
    for (const auto& [model, names] : models_) place_rest(model, names);
    std::set<std::size_t> open;
    for (const auto& [model, names] : models_) {
      if (!are_all_placed(model, names)) open.insert(model.first);
    }
    std::erase_if(places_, [&](const auto& item) { return open.contains(item.first.first); });
    return places_;
  }

 private:
  void find_possible(const ModelOfRank& model, const ChunkNames& names) {
    const auto of_whole = possible_places("", names, reference_);
    if (of_whole.size() == 1) {
      settle(model, "", of_whole.front());
      return;
    }
    for (const std::string& child : names.children.at("")) {
      auto possible = possible_places(child, names, reference_);
      if (possible.size() == 1) {
        settle(model, child, possible.front());
      } else if (!possible.empty()) {
        open_[{model, child}] = std::move(possible);
      }
    }
  }

  void settle(const ModelOfRank& model, const std::string& child, const WholePlace& place) {
    places_[model][child] = place;
    taken_.insert(place);
  }

  // Of modules with the same values, as norms have them, those are meant that are not inside of what is placed already.
  void settle_others() {
    for (bool is_changed = true; is_changed;) {
      is_changed = false;
      for (auto& [key, possible] : open_) {
        std::erase_if(possible, [&](const WholePlace& place) {
          return std::ranges::any_of(taken_, [&](const WholePlace& other) {
            return other.chunk == place.chunk && (other.path == place.path || is_inside(place.path, other.path));
          });
        });
        if (possible.size() != 1) continue;
        settle(key.first, key.second, possible.front());
        possible.clear();
        is_changed = true;
      }
    }
  }

  void place_rest(const ModelOfRank& model, const ChunkNames& names) {
    const auto known = places_.find(model);
    if (known == places_.end() || known->second.contains("")) return;
    const Places of_neighbours = known->second;
    for (const std::string& child : names.children.at("")) {
      if (known->second.contains(child) || open_.contains({model, child})) continue;
      if (auto place = place_beside(child, of_neighbours, names, reference_)) settle(model, child, *place);
    }
  }

  bool are_all_placed(const ModelOfRank& model, const ChunkNames& names) const {
    const auto found = places_.find(model);
    if (found == places_.end()) return false;
    const Places& places = found->second;
    return places.contains("") ||
           std::ranges::all_of(names.children.at(""), [&](const std::string& child) { return places.contains(child); });
  }

  const NamesByChunk& reference_;
  std::map<ModelOfRank, ChunkNames> models_;
  std::set<std::size_t> named_;  // ranks with names of the reference's
  std::map<ModelOfRank, Places> places_;
  std::map<std::pair<ModelOfRank, std::string>, std::vector<WholePlace>> open_;  // by the model and its child
  std::set<WholePlace> taken_;
};

std::string name_in_whole(const Places& places, const std::string& text) {
  const TensorName name(text);
  const auto whole = places.find("");
  if (name.path == kRootModule) {
    return whole == places.end() ? text : whole->second.path + text.substr(name.path.size());
  }
  if (text.starts_with('(')) return text;
  if (whole != places.end()) return inside(whole->second.path, text);
  const std::string child = components_of(name.path).front();
  const auto place = places.find(child);
  return place == places.end() ? text : place->second.path + text.substr(child.size());
}

using KindAndName = std::pair<Kind, std::string>;

// Returns the model's tensors that are those of the module, bit for bit, by kind and name of the module's: what the first
// stage is given, and the last one returns.
std::map<KindAndName, std::string> shared_with_model(const WholePlace& place, const RankTrace& reference) {
  using BitsOfCalls = std::map<std::pair<std::int32_t, std::int32_t>, std::pair<Shape, std::uint64_t>>;
  std::map<KindAndName, BitsOfCalls> of_model, of_module;  // by iteration and micro-batch
  for (const Entry& entry : reference.entries) {
    if (entry.id.chunk != place.chunk || entry.id.microbatch < 0 || entry.id.kind == Kind::kScalar) continue;
    const std::string_view path = TensorName(entry.id.name.get()).path;
    if (path != kRootModule && path != place.path) continue;
    auto& names = path == kRootModule ? of_model : of_module;
    names[{entry.id.kind, entry.id.name.get()}].emplace(std::pair(entry.id.iteration, entry.id.microbatch),
                                                        std::pair(entry.shape.get(), entry.checksum));
  }
  std::map<KindAndName, std::string> shared;
  for (const auto& [key, bits] : of_module) {
    for (const auto& [other, its] : of_model) {
      if (other.first == key.first && its == bits) shared.emplace(key, other.second);
    }
  }
  return shared;
}

// Adds the tensors that the reference's model shares with a module that a model of the rank is.
void add_shared(const std::map<std::int32_t, Places>& places, const RankTrace& reference, RankTrace& rank) {
  std::map<std::int32_t, std::map<KindAndName, std::string>> shared;  // by chunk
  for (const auto& [chunk, of_model] : places) {
    const auto whole = of_model.find("");
    if (whole != of_model.end()) shared.emplace(chunk, shared_with_model(whole->second, reference));
  }
  std::vector<Entry> entries;
  for (Entry& entry : rank.entries) {
    entries.push_back(entry);
    const auto of_chunk = shared.find(entry.id.chunk);
    if (of_chunk == shared.end()) continue;
    const auto found = of_chunk->second.find({entry.id.kind, entry.id.name.get()});
    if (found == of_chunk->second.end()) continue;
    entries.push_back(entry);
    entries.back().id.name = found->second;
  }
  rank.entries = std::move(entries);
}

// Renames the tensors of the rank's models, by their number, and makes these one model where they are parts of one.
void rename_models(const std::map<std::int32_t, Places>& places, const RankTrace& reference, RankTrace& rank) {
  std::set<std::string> numbers;  // losses and the like, which are of no module
  for (const Entry& entry : rank.entries) {
    if (entry.id.kind == Kind::kScalar) numbers.insert(entry.id.name.get());
  }
  rename_tensors(rank, [&](std::int32_t chunk, const std::string& name) {
    const auto of_model = places.find(chunk);
    return of_model == places.end() || numbers.contains(name) ? name : name_in_whole(of_model->second, name);
  });
  add_shared(places, reference, rank);
  renumber_chunks(rank, [&](std::int32_t chunk) {
    const auto of_model = places.find(chunk);
    return of_model == places.end() ? chunk : of_model->second.begin()->second.chunk;
  });
}

}  // namespace

std::vector<std::string> name_parts_as_in_whole(const Trace& reference, Trace& candidate) {
  if (reference.ranks.size() != 1 || !is_some_rank_misnamed(reference, candidate)) return {};
  const NamesByChunk trusted = names_by_chunk(reference);
  std::map<std::size_t, std::map<std::int32_t, Places>> places;  // by the rank's place, and the model's number
  for (auto& [model, of_model] : PartsOfModel(trusted, candidate).find()) {
    places[model.first].emplace(model.second, std::move(of_model));
  }
  if (places.empty()) return {};
  std::map<std::string, std::vector<std::int32_t>> ranks;  // by path
  for (const auto& [at, of_rank] : places) {
    RankTrace& rank = candidate.ranks[at];
    rename_models(of_rank, reference.ranks.front(), rank);
    for (const auto& [chunk, of_model] : of_rank) {
      for (const auto& [child, place] : of_model) ranks[place.path].push_back(rank.rank);
    }
  }
  std::vector<std::string> parts;
  for (const auto& [path, of_ranks] : ranks) {
    parts.push_back(fmt::format("{} on {}", printable(path), describe_ranks(of_ranks)));
  }
  return {fmt::format(
      "candidate: its models are these modules of the reference's, by the names and the bytes of their parameters: {}",
      comma_list(parts))};
}

}  // namespace ttrace
