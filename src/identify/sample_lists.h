// Lists that hold one element for each sample: images of unlike sizes, the targets of each, the pairs that a matcher
// found; and the calls of a module that is called once for each. A rank numbers its own samples from 0, and so its
// element k is another sample's than the reference's element k.
//
// The bytes of elements that are data say whose they are, as the rows of inputs do (samples.h), and what holds for these
// lists holds for all of a module that was given one.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/alignment.h"
#include "identify/census.h"
#include "identify/ranks.h"
#include "identify/samples.h"

namespace ttrace {

struct Microbatches;

// What one tensor of each element holds, such as the boxes of all targets: a hash of its dtype, shape and bytes, by
// number. Empty where some element lacks it, or was sketched.
struct ListColumn {
  std::vector<std::uint64_t> whole;               // of the reference
  std::vector<std::vector<std::uint64_t>> parts;  // of the ranks, by coordinate on the micro-batch axes
  bool are_numbers = true;                        // each has one element
};

// The tensors of a micro-batch, inputs or outputs, whose names differ in the number of an element or of a call. The ranks
// have as many as the reference, all together, and each fewer.
struct DividedList {
  TensorId id;              // of the tensors, with `*` for the number: `matcher:1.*`, `backbone.0#*`
  std::string front, call;  // what of their names comes before the number, and behind what is inside of an element
  bool are_calls = false;   // `front` is the module, and `call` empty
  std::vector<std::int64_t> counts;                        // how many a rank has, by coordinate
  std::map<std::string, ListColumn, std::less<>> columns;  // by what names a tensor within its element: `.boxes`
  ListColumn forms;                                        // of an element: dtypes and shapes of all that is in it

  std::int64_t extent() const;  // how many the reference has
  TensorId element(std::int64_t number, std::string_view inside) const;
  std::vector<TensorId> elements() const;  // of the reference
  bool tells() const;                      // whether the bytes of some column tell which samples they are
};

// `microbatches` has its axes; the ranks run as many micro-batches as the reference.
std::vector<DividedList> divided_lists_of(const RankTable& table, const Census& census,
                                          const Microbatches& microbatches, const ModelLayout& layout);

// What the bytes of inputs among the lists tell, by the list: what deals samples out in stretches or in turns before other
// orders, and what more columns tell before what fewer do.
std::vector<std::pair<TensorId, Telling>> tellings_of(const std::vector<DividedList>& lists, std::int64_t ranks);

// The kind of the tensor that a gradient of an input or an output is with respect to; other kinds as they are.
Kind kind_of_value(Kind kind);

// Which elements are which samples.
class SampleLists {
 public:
  SampleLists() = default;
  // `orders` are of these samples, as the tellings of these lists and all other inputs say.
  SampleLists(const std::vector<DividedList>& lists, const SampleOrders& orders);

  struct Element {
    std::string name;      // of the reference's tensor
    bool guessed = false;  // only counts and shapes say that the list is of samples
  };
  // By coordinate on the micro-batch axes, and a tensor of the forward, an input or an output, as the rank numbers it.
  using Elements = std::map<std::pair<std::int64_t, TensorId>, Element>;
  const Elements& elements() const { return elements_; }

  // The lists whose own bytes tell them, without their numbers: `(model):1.*`.
  const std::set<std::string>& told() const { return told_; }

  // True for a tensor, or its gradient, of a list that may be of samples, of which nothing tells whose they are.
  bool is_open(TensorId id) const;

 private:
  void number(const DividedList& list, const Samples& samples, bool guessed);

  Elements elements_;
  std::set<TensorId> open_;
  std::set<std::string> told_;
};

}  // namespace ttrace
