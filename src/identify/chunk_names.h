// What goes by which name in a model chunk of a program, and how its parameters begin.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "base/trace.h"

namespace ttrace {

// Tells two values of a parameter apart without a look at them: where it is whole, and how it begins.
using Beginning = std::tuple<Dtype, Shape, std::uint64_t>;

// What the ranks have of a model chunk.
struct ChunkNames {
  std::map<std::string, std::vector<Beginning>, std::less<>> parameters;             // and buffers; of each rank
  std::map<std::string, std::set<std::pair<Kind, std::string>>, std::less<>> calls;  // of a module: kind and member
  std::map<std::string, std::string, std::less<>> classes;                           // of modules that are called
  std::map<std::string, std::set<std::string>, std::less<>> children;  // of each path that has some; the root's is ""
};

using NamesByChunk = std::map<std::int32_t, ChunkNames>;  // by chunk

NamesByChunk names_by_chunk(const RankTrace& rank);
NamesByChunk names_by_chunk(const Trace& trace);

// Counts parameters of a candidate that may be those of a reference.
struct CountedParameters {
  std::int64_t inside = 0;                 // all of them
  std::int64_t named = 0;                  // of these, those that the reference has
  std::int64_t comparable = 0, equal = 0;  // of these, those that begin alike in dtype and shape, and in bytes

  // Counts one more, of which the ranks have these values. `trusted` is the reference's; null: it has none.
  void add(const std::vector<Beginning>& values, const std::vector<Beginning>* trusted);
  // True where most have names of the reference's, and of those that can be compared most begin with its bytes; all must
  // have its names where none can be compared.
  bool is_enough() const;
};

}  // namespace ttrace
