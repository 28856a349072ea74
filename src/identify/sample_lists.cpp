#include "identify/sample_lists.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <numeric>
#include <optional>
#include <tuple>

#include "base/tensor_name.h"
#include "identify/member_names.h"
#include "identify/microbatch.h"
#include "numeric/xxh3.h"

namespace ttrace {
namespace {

// A tensor of an element: what it holds, where that may be evidence.
struct ElementTensor {
  std::uint64_t form = 0;  // dtype and shape
  std::optional<std::uint64_t> hash;
  bool is_number = false;
};
using ElementTensors = std::map<std::string, ElementTensor, std::less<>>;  // by what names a tensor within its element
using NumberedElements = std::map<std::int64_t, ElementTensors>;

// A list on both sides.
struct BothSides {
  NumberedElements whole;
  std::vector<NumberedElements> parts;  // by coordinate
  std::string front, call;              // as in DividedList
  bool are_calls = false;
};

bool is_handed_over(const TensorId& id) {
  return (id.kind == Kind::kInput || id.kind == Kind::kOutput) && id.pass == Pass::kForward;
}

// A number in a tensor's name that may be that of a sample.
struct Place {
  TensorId list;            // its name without the number
  std::string front, call;  // as in DividedList
  std::string inside;       // what names the tensor within the element
  std::int64_t number = 0;
  bool is_call = false;
};

// The places in the name, the outermost first: that of the call, then those in lists.
std::vector<Place> places_in(const TensorId& id) {
  const std::string& name = id.name.get();
  const TensorName parts(name);
  std::vector<Place> places;
  const auto add = [&](std::string_view front, std::string_view call, std::string_view inside, std::int64_t number) {
    Place& place = places.emplace_back();
    place.list = id;
    place.front = front;
    place.call = call;
    place.inside = inside;
    place.number = number;
    return &place;
  };
  Place* called = add(parts.path, "", parts.member, number_of_call(parts));
  called->is_call = true;
  called->list.name = called->front + "#*";
  const std::string_view uncalled = std::string_view(name).substr(0, name.size() - parts.call.size());
  for (const ElementNumber& number : numbers_in_member(name)) {
    Place* place = add(uncalled.substr(0, number.begin), parts.call, uncalled.substr(number.end), number.value);
    place->list.name = place->front + "*" + place->call;
  }
  return places;
}

std::uint64_t form_of(Dtype dtype, const Shape& shape) {
  std::vector<std::uint64_t> words = {static_cast<std::uint64_t>(dtype)};
  for (const std::int64_t extent : shape) words.push_back(static_cast<std::uint64_t>(extent));
  return XXH3_64bits(words.data(), words.size() * sizeof(std::uint64_t));
}

ElementTensor held_by(const Entry& entry) {
  const std::uint64_t form = form_of(entry.dtype, entry.shape);
  if (entry.sketch) return {form, std::nullopt, false};
  const std::array<std::uint64_t, 2> words = {form, entry.checksum};
  return {form, XXH3_64bits(words.data(), sizeof words), element_count(entry.shape) == 1};
}

ElementTensor held_by(const LogicalTensor& tensor) {
  if (elements_of(tensor) != nullptr) {
    const Entry& entry = *tensor.pieces()[0].entry;
    if (entry.shape == tensor.shape && entry.dtype == tensor.dtype) return held_by(entry);
  }
  return {form_of(tensor.dtype, tensor.shape), std::nullopt, false};
}

bool are_counted_from_0(const NumberedElements& elements) {
  return !elements.empty() && elements.begin()->first == 0 && elements.rbegin()->first == std::ssize(elements) - 1;
}

// True where the ranks have as many elements as the reference, all together, and each fewer.
bool is_divided(const BothSides& list) {
  if (!are_counted_from_0(list.whole)) return false;
  std::int64_t sum = 0;
  for (const NumberedElements& part : list.parts) {
    if (!are_counted_from_0(part) || std::ssize(part) >= std::ssize(list.whole)) return false;
    sum += std::ssize(part);
  }
  return sum == std::ssize(list.whole);
}

// The hashes of a tensor of all elements; nothing where some lacks it.
std::optional<std::vector<std::uint64_t>> hashes_in(const NumberedElements& elements, std::string_view inside,
                                                    bool& are_numbers) {
  std::vector<std::uint64_t> hashes;
  for (const auto& [number, tensors] : elements) {
    const auto found = tensors.find(inside);
    if (found == tensors.end() || !found->second.hash) return std::nullopt;
    hashes.push_back(*found->second.hash);
    are_numbers = are_numbers && found->second.is_number;
  }
  return hashes;
}

ListColumn column_of(const BothSides& list, std::string_view inside) {
  ListColumn column;
  auto whole = hashes_in(list.whole, inside, column.are_numbers);
  if (!whole) return {};
  for (const NumberedElements& part : list.parts) {
    auto hashes = hashes_in(part, inside, column.are_numbers);
    if (!hashes) return {};
    column.parts.push_back(std::move(*hashes));
  }
  column.whole = std::move(*whole);
  return column;
}

std::vector<std::uint64_t> forms_of(const NumberedElements& elements) {
  std::vector<std::uint64_t> forms;
  for (const auto& [number, tensors] : elements) {
    std::uint64_t form = 0;
    for (const auto& [inside, held] : tensors) {
      form = XXH3_64bits_withSeed(inside.data(), inside.size(), form);
      form = XXH3_64bits_withSeed(&held.form, sizeof held.form, form);
    }
    forms.push_back(form);
  }
  return forms;
}

DividedList divided_list(const TensorId& id, const BothSides& list) {
  DividedList divided{id, list.front, list.call, list.are_calls, {}, {}, {}};
  const auto add_columns = [&](const NumberedElements& elements) {
    for (const auto& [number, tensors] : elements) {
      for (const auto& [inside, held] : tensors) divided.columns.try_emplace(inside);
    }
  };
  add_columns(list.whole);
  divided.forms.whole = forms_of(list.whole);
  for (const NumberedElements& part : list.parts) {
    add_columns(part);
    divided.counts.push_back(std::ssize(part));
    divided.forms.parts.push_back(forms_of(part));
  }
  for (auto& [inside, column] : divided.columns) column = column_of(list, inside);
  return divided;
}

std::optional<Telling> telling_of(const DividedList& list, const ListColumn& column) {
  if (list.id.kind != Kind::kInput || column.whole.empty()) return std::nullopt;
  return telling_of_hashes(column.whole, column.parts, column.are_numbers);
}

bool is_regular(const Samples& samples, std::int64_t ranks) {
  return are_contiguous(samples) || are_striped(samples, ranks);
}

// What the bytes of lists tell of a micro-batch.
struct ToldLists {
  using Counts = std::tuple<std::int32_t, std::int32_t, std::vector<std::int64_t>>;
  std::set<Counts> counts;  // by iteration and micro-batch: how many samples the ranks have
  std::set<std::tuple<std::int32_t, std::int32_t, std::string>> modules;  // that are given one

  static Counts counts_of(const DividedList& list) { return {list.id.iteration, list.id.microbatch, list.counts}; }
  static std::tuple<std::int32_t, std::int32_t, std::string> module_of(const DividedList& list) {
    return std::tuple(list.id.iteration, list.id.microbatch, std::string(TensorName(list.front).path));
  }

  // True where each rank has several elements for each of its samples.
  bool has_several_each(const DividedList& list) const {
    return std::ranges::any_of(counts, [&](const Counts& told) {
      const auto& [iteration, microbatch, samples] = told;
      if (iteration != list.id.iteration || microbatch != list.id.microbatch) return false;
      const std::int64_t each = list.counts[0] / samples[0];
      return each > 1 && std::ranges::equal(list.counts, samples, [&](auto own, auto n) { return own == each * n; });
    });
  }
};

// True where the ranks' elements have the shapes of the reference's of the same samples.
bool have_forms_of_samples(const DividedList& list, const Samples& samples) {
  std::size_t next = 0;
  for (const std::vector<std::uint64_t>& part : list.forms.parts) {
    for (const std::uint64_t form : part) {
      if (list.forms.whole[static_cast<std::size_t>(samples[next++])] != form) return false;
    }
  }
  return true;
}

bool are_alike(const std::vector<std::int64_t>& counts) {
  return std::ranges::all_of(counts, [&](std::int64_t count) { return count == counts[0]; });
}

}  // namespace

std::int64_t DividedList::extent() const { return std::accumulate(counts.begin(), counts.end(), std::int64_t{0}); }

TensorId DividedList::element(std::int64_t number, std::string_view inside) const {
  TensorId one = id;
  one.name = are_calls ? call_of(front + std::string(inside), static_cast<std::size_t>(number))
                       : fmt::format("{}{}{}{}", front, number, inside, call);
  return one;
}

std::vector<TensorId> DividedList::elements() const {
  std::vector<TensorId> all;
  for (std::int64_t number = 0; number < extent(); ++number) {
    for (const auto& [inside, column] : columns) all.push_back(element(number, inside));
  }
  return all;
}

bool DividedList::tells() const {
  return std::ranges::any_of(columns, [&](const auto& item) { return telling_of(*this, item.second).has_value(); });
}

std::vector<DividedList> divided_lists_of(const RankTable& table, const Census& census,
                                          const Microbatches& microbatches, const ModelLayout& layout) {
  std::set<std::string, std::less<>> called_again;  // modules of the reference, in some micro-batch
  for (const auto& [id, tensor] : layout.reference->tensors) {
    if (const TensorName name(id.name); is_handed_over(id) && !name.call.empty()) called_again.emplace(name.path);
  }
  std::map<TensorId, BothSides> lists;
  for (const auto& [id, tensor] : layout.reference->tensors) {
    if (!is_handed_over(id) || id.microbatch < 0) continue;
    for (const Place& place : places_in(id)) {
      if (place.is_call && !called_again.contains(place.front)) continue;
      BothSides& list = lists[place.list];
      list.front = place.front;
      list.call = place.call;
      list.are_calls = place.is_call;
      list.whole[place.number][place.inside] = held_by(tensor);
    }
  }
  if (lists.empty()) return {};
  const auto is_wanted = [](const Entry& entry) { return is_handed_over(entry.id); };
  for_each_entry(census, is_wanted, [&](const PresentRank& rank, const Entry& entry) {
    if (entry.id.microbatch < 0) return;
    for (const Place& place : places_in(id_in_reference(entry.id, layout, microbatches.are_stages))) {
      const auto found = lists.find(place.list);
      if (found == lists.end()) continue;
      std::vector<NumberedElements>& parts = found->second.parts;
      parts.resize(static_cast<std::size_t>(microbatches.ranks));
      const std::int64_t coordinate = coordinate_on(rank, table, microbatches);
      parts[static_cast<std::size_t>(coordinate)][place.number].try_emplace(place.inside, held_by(entry));
    }
  });
  std::vector<DividedList> divided;
  for (const auto& [id, list] : lists) {
    if (!list.parts.empty() && is_divided(list)) divided.push_back(divided_list(id, list));
  }
  return divided;
}

std::vector<std::pair<TensorId, Telling>> tellings_of(const std::vector<DividedList>& lists, std::int64_t ranks) {
  std::vector<std::pair<TensorId, Telling>> tellings;
  std::map<std::tuple<std::int32_t, std::int32_t, Samples>, std::int64_t> votes;
  for (const DividedList& list : lists) {
    for (const auto& [inside, column] : list.columns) {
      auto telling = telling_of(list, column);
      if (!telling) continue;
      ++votes[{list.id.iteration, list.id.microbatch, telling->samples}];
      tellings.emplace_back(list.id, std::move(*telling));
    }
  }
  const auto weight = [&](const auto& item) {
    const auto& [id, telling] = item;
    return std::pair(is_regular(telling.samples, ranks), votes.at({id.iteration, id.microbatch, telling.samples}));
  };
  std::ranges::stable_sort(tellings, [&](const auto& a, const auto& b) { return weight(a) > weight(b); });
  return tellings;
}

Kind kind_of_value(Kind kind) {
  if (kind == Kind::kGradInput) return Kind::kInput;
  return kind == Kind::kGradOutput ? Kind::kOutput : kind;
}

bool SampleLists::is_open(TensorId id) const {
  id.pass = Pass::kForward;
  id.kind = kind_of_value(id.kind);
  return open_.contains(id);
}

void SampleLists::number(const DividedList& list, const Samples& samples, bool guessed) {
  std::size_t next = 0;
  for (std::size_t coordinate = 0; coordinate < list.counts.size(); ++coordinate) {
    for (std::int64_t i = 0; i < list.counts[coordinate]; ++i) {
      const std::int64_t sample = samples[next++];
      for (const auto& [inside, column] : list.columns) {
        const Element element{list.element(sample, inside).name, guessed};
        elements_.try_emplace({static_cast<std::int64_t>(coordinate), list.element(i, inside)}, element);
      }
    }
  }
}

SampleLists::SampleLists(const std::vector<DividedList>& lists, const SampleOrders& orders) {
  ToldLists told;
  for (const DividedList& list : lists) {
    if (!list.tells()) continue;
    told.counts.insert(ToldLists::counts_of(list));
    told.modules.insert(ToldLists::module_of(list));
  }
  std::vector<const DividedList*> numbered;
  const auto is_inside_numbered = [&](const DividedList& list) {
    return std::ranges::any_of(numbered, [&](const DividedList* outer) {
      return !outer->are_calls && outer->id.iteration == list.id.iteration &&
             outer->id.microbatch == list.id.microbatch && outer->id.kind == list.id.kind && outer->call == list.call &&
             list.front.starts_with(outer->front);
    });
  };
  for (const DividedList& list : lists) {  // those around others come first
    if (is_inside_numbered(list)) continue;
    const bool tells = list.tells(), has_told_counts = told.counts.contains(ToldLists::counts_of(list));
    const bool is_told = tells || (has_told_counts && told.modules.contains(ToldLists::module_of(list)));
    const Samples* samples = orders.find_exactly(list.id, list.extent());
    const bool fits = samples != nullptr && (has_told_counts || (are_alike(list.counts) && !list.are_calls));
    const bool has_forms = fits && have_forms_of_samples(list, *samples);
    if (fits && (tells || has_forms)) {
      number(list, *samples, !is_told);
      numbered.push_back(&list);
      if (tells) told_.insert(list.id.name.get());
    } else if (!list.are_calls || has_told_counts || told.has_several_each(list)) {
      const std::vector<TensorId> all = list.elements();
      open_.insert(all.begin(), all.end());
    }
  }
}

}  // namespace ttrace
