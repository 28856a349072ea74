// Holds what the files of several ranks have in common. A large trace has millions of entries; but the ranks of a job
// record the same names, shapes and classes, and those that replicate each other the same tables but for the checksums.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/trace.h"

namespace ttrace {

// Values of a container T, each once, by the bytes of their elements.
template <class T>
class SharedBy {
 public:
  const SharedValue<T>& find(std::string_view bytes) {
    if (const auto found = values_.find(bytes); found != values_.end()) return found->second;
    T value(bytes.size() / sizeof(typename T::value_type), typename T::value_type{});
    bytes.copy(reinterpret_cast<char*>(value.data()), bytes.size());
    SharedValue<T> shared(std::move(value));
    const std::string_view key(reinterpret_cast<const char*>(shared.data()), bytes.size());
    return values_.emplace(key, std::move(shared)).first->second;
  }

 private:
  std::unordered_map<std::string_view, SharedValue<T>> values_;  // the keys are the values' own bytes
};

// The tables of a file as they lie in it, and the entries that they were decoded and checked as, with mappings.
struct DecodedTables {
  std::string index, text, shapes;
  std::uint64_t data_end = 0;
  std::uint64_t file_bytes = 0;  // of the file, to which the checks have measured its tables
  std::vector<Entry> entries;
};

// Serves one thread.
struct SharedByFiles {
  SharedBy<std::string> names, classes;
  SharedBy<Shape> shapes;
  DecodedTables last;  // of the last file that was decoded row by row
};

}  // namespace ttrace
