// A rank's file taken apart, changed as an input says, and put together again under a good seal: what an attacker would
// do. The checksums alone would stop nearly every input of a fuzzer that knows nothing of them.
#pragma once

#include <fuzzer/FuzzedDataProvider.h>

#include <map>
#include <string>
#include <string_view>
#include <tuple>
#include <vector>

#include "format/format.h"

namespace ttrace::fuzz {

class Forgery {
 public:
  explicit Forgery(std::string_view file);  // one that the writer made

  // Changes one thing: a field, a row, a name, a mapping, a shape, the run's attributes, a byte of data. `other` is
  // another file of the same kind, to take a row from.
  void edit(FuzzedDataProvider& input, const Forgery& other);

  // Puts it together; `honest` gives each tensor the checksum of the bytes that its row points to.
  std::string file(bool honest) const;

 private:
  void edit_row(FuzzedDataProvider& input);
  void edit_run(FuzzedDataProvider& input);
  std::uint64_t add_text(std::string_view text);
  std::vector<IndexRow> honest_rows() const;

  std::string data_;      // header and tensors
  std::string metadata_;  // HDF5's, which the reader does not look at
  std::string run_, text_;
  std::vector<IndexRow> rows_;
  std::vector<std::int64_t> shapes_;
};

// Changes bytes of the file as it is, its seal as well; or cuts it.
void edit_bytes(std::string& file, FuzzedDataProvider& input);

// A number that is more likely than others to be one too many.
std::uint64_t take_number(FuzzedDataProvider& input);

// Holds what a file says of its tensors, decoded by other code than the program's: iteration, micro-batch, pass, kind
// and name -> dtype, shape and bytes. Empty where it cannot be decoded.
using Identity = std::tuple<std::int32_t, std::int32_t, int, int, std::string>;
struct Content {
  int dtype = 0;
  std::vector<std::int64_t> shape;
  std::string bytes;
  friend bool operator==(const Content&, const Content&) = default;
};
std::map<Identity, Content> contents_of(std::string_view file);

}  // namespace ttrace::fuzz
