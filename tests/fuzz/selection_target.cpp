// Tries what a user names on a command line for `ttrace show` and `ttrace export`: NAME and --slice, which scripts take
// from anywhere.
#include <algorithm>
#include <string>

#include "base/annotation.h"
#include "base/error.h"
#include "inspect/export.h"
#include "inspect/selection.h"
#include "inspect/slice.h"
#include "target.h"

namespace ttrace::fuzz {

// The input: a shape of up to four dimensions, a slice, a line end, a name.
Outcome fuzz_selection(std::string_view input) {
  Shape shape;
  for (std::size_t dims = input.empty() ? 0 : static_cast<std::uint8_t>(input[0]) % 5; dims > 0; --dims) {
    input.remove_prefix(1);
    if (input.empty()) break;
    shape.push_back(static_cast<std::uint8_t>(input[0]));
  }
  if (!input.empty()) input.remove_prefix(1);
  const std::size_t end = std::min(input.find('\n'), input.size());
  const std::string name(input.substr(std::min(end + 1, input.size())));
  const std::string key = export_key({0, 0, 0, Pass::kForward, Kind::kOutput, name});
  if (printable(key) != key) fail_promise("the key of a tensor has what a terminal obeys");
  matches(name, "layers.0.mlp:1#2");
  const Box box = parse_slice(std::string(input.substr(0, end)), shape);
  for (std::size_t dim = 0; dim < shape.size(); ++dim) {
    const bool inside = box.start[dim] >= 0 && box.size[dim] > 0 && box.start[dim] + box.size[dim] <= shape[dim];
    // A dimension that is not named is whole, even where it has no elements.
    if (!inside && box.size[dim] != shape[dim]) fail_promise("a slice holds what the tensor does not");
  }
  return Outcome::kSame;
}

}  // namespace ttrace::fuzz
