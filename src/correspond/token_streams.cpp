#include "correspond/token_streams.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <optional>
#include <span>

#include "base/annotation.h"
#include "base/error.h"
#include "base/tensor_name.h"
#include "merge/values.h"

namespace ttrace {
namespace {

using Integers = std::vector<std::int64_t>;

bool is_integer(Dtype dtype) { return dtype == Dtype::kInt32 || dtype == Dtype::kInt64; }

// Returns `input_ids` of `(model):input_ids`; of a tensor without a member, the last component of its path.
std::string last_word(const std::string& text) {
  const TensorName name(text);
  return std::string(name.member.empty() ? last_component(name.path) : name.member.substr(1));
}

bool contains(std::string_view text, std::string_view part) { return text.find(part) != text.npos; }

bool says_layout(const std::string& word) {
  return contains(word, "mask") || contains(word, "position") || contains(word, "cu_seq");
}

bool is_input(const TensorId& id) {
  return id.kind == Kind::kInput && id.pass == Pass::kForward && id.microbatch != kNoMicrobatch;
}

// How well an input may hold the tokens; 0: it does not. Of several the best counts, and of these the first.
int rank_of(const LogicalTensor& tensor, const std::string& tokens) {
  const TensorId& id = tensor.id;
  if (!is_input(id) || tensor.shape.empty() || tensor.sketched || tensor.rows || tensor.kept) return 0;
  const bool may_be = is_floating(tensor.dtype) || (is_integer(tensor.dtype) && tensor.shape.size() <= 2);
  if (!may_be) return 0;
  if (tokens != kTokensOfEmbedding)
    return id.name.get() == tokens || last_word(id.name) == tokens || matches(tokens, id.name) ? 1 : 0;
  if (says_layout(last_word(id.name))) return 0;
  const bool embeds = tensor.module_class.get().ends_with("Embedding");
  if (embeds && is_integer(tensor.dtype)) return 3;
  if (TensorName(id.name).path != kRootModule) return 0;
  return is_integer(tensor.dtype) ? 2 : 1;
}

// The input of each call that holds its tokens.
std::map<ModelCall, const LogicalTensor*> find_tokens(const Alignment& alignment, const std::string& tokens) {
  std::map<ModelCall, const LogicalTensor*> found;
  for (const auto& [id, tensor] : alignment.tensors) {
    const int rank = rank_of(tensor, tokens);
    if (rank == 0) continue;
    const LogicalTensor*& best = found[{id.iteration, id.microbatch}];
    const int other = best == nullptr ? 0 : rank_of(*best, tokens);
    if (rank > other || (rank == other && tensor.order < best->order)) best = &tensor;
  }
  return found;
}

Integers integers_of(const LogicalTensor& tensor) {
  const Values values = values_of(tensor);
  Integers integers;
  for (const double value : values) integers.push_back(static_cast<std::int64_t>(value));
  return integers;
}

// Returns one number for each row of the first dimension of a floating-point tensor: equal rows have equal ones.
Integers numbers_of_rows(const LogicalTensor& tensor) {
  const Values values = values_of(tensor);
  const auto rows = static_cast<std::size_t>(tensor.shape[0]);
  const std::size_t width = rows == 0 ? 0 : values.size() / rows;
  Integers numbers;
  for (std::size_t row = 0; row < rows; ++row) {
    std::uint64_t hash = 0xcbf29ce484222325;
    for (std::size_t i = 0; i < width; ++i) {
      std::uint64_t bits = 0;
      std::memcpy(&bits, &values[row * width + i], sizeof bits);
      hash = (hash ^ bits) * 0x9e3779b97f4a7c15;
      hash ^= hash >> 29;
    }
    numbers.push_back(static_cast<std::int64_t>(hash));
  }
  return numbers;
}

// What the inputs beside the tokens say of where they lie.
struct Surroundings {
  Integers mask;  // rows x mask_length; empty: there is none
  std::int64_t mask_length = 0;
  Integers positions;   // rows x length, or 1 x length; empty: there are none
  Integers boundaries;  // of the sequences in the row-major tokens; empty: nothing says
};

// Counts the elements of the last dimension of a tensor whose other dimensions have `rows` elements; nothing where they
// have not.
std::optional<std::int64_t> length_of(const LogicalTensor& tensor, std::int64_t rows) {
  if (tensor.shape.empty() || tensor.shape.size() > 2) return std::nullopt;
  const std::int64_t outer = tensor.shape.size() == 2 ? tensor.shape[0] : 1;
  return outer == rows ? std::optional(tensor.shape.back()) : std::nullopt;
}

void add_surrounding(const LogicalTensor& tensor, const TokenGrid& grid, Surroundings& around) {
  const std::string word = last_word(tensor.id.name);
  const bool counts = is_integer(tensor.dtype);
  if (contains(word, "attention_mask") || contains(word, "padding_mask")) {
    const auto length = length_of(tensor, grid.rows);
    if (!around.mask.empty() || !length || *length < grid.length || is_floating(tensor.dtype)) return;
    around.mask = integers_of(tensor);
    around.mask_length = *length;
  } else if (contains(word, "position_ids") && counts) {
    const auto whole = length_of(tensor, grid.rows), shared = length_of(tensor, 1);
    if (!around.positions.empty() || (whole != grid.length && shared != grid.length)) return;
    around.positions = integers_of(tensor);
  } else if (contains(word, "cu_seq") && counts && tensor.shape.size() == 1 && around.boundaries.empty()) {
    Integers boundaries = integers_of(tensor);
    const bool fits = !boundaries.empty() && boundaries.front() == 0 && boundaries.back() == grid.rows * grid.length &&
                      std::is_sorted(boundaries.begin(), boundaries.end());
    if (fits) around.boundaries = std::move(boundaries);
  }
}

// Reads the streams of one call after the other.
class StreamReader {
 public:
  explicit StreamReader(TokenStreams& all) : all_(all) {}

  void add(const ModelCall& call, const TokenGrid& grid, const Integers& tokens, const Surroundings& around) {
    const bool goes_on = rows_.size() == static_cast<std::size_t>(grid.rows) && call.first == iteration_;
    std::vector<std::size_t> rows;
    for (std::int64_t row = 0; row < grid.rows; ++row) {
      const std::int64_t before = known_before(row, grid, around);
      bool begins = !(goes_on && before > 0 && before == length_of_stream(row));
      for (std::int64_t column = 0; column < grid.length; ++column) {
        if (is_padding(row, column, grid, around)) continue;
        if (!begins && is_first(row, column, grid, around)) begins = true;
        if (begins) all_.streams.emplace_back();
        if (begins) set_row(row, all_.streams.size() - 1);
        begins = false;
        TokenStream& stream = all_.streams[rows_[static_cast<std::size_t>(row)]];
        stream.tokens.push_back(tokens[static_cast<std::size_t>(row * grid.length + column)]);
        stream.places.push_back({call, row, column});
      }
    }
    rows_.resize(static_cast<std::size_t>(grid.rows), kNone);
    iteration_ = call.first;
  }

 private:
  static constexpr std::size_t kNone = static_cast<std::size_t>(-1);

  void set_row(std::int64_t row, std::size_t stream) {
    if (rows_.size() <= static_cast<std::size_t>(row)) rows_.resize(static_cast<std::size_t>(row) + 1, kNone);
    rows_[static_cast<std::size_t>(row)] = stream;
  }

  std::int64_t length_of_stream(std::int64_t row) const {
    const std::size_t stream = rows_[static_cast<std::size_t>(row)];
    return stream == kNone ? 0 : static_cast<std::int64_t>(all_.streams[stream].tokens.size());
  }

  static bool is_padding(std::int64_t row, std::int64_t column, const TokenGrid& grid, const Surroundings& around) {
    if (around.mask.empty()) return false;
    const std::int64_t past = around.mask_length - grid.length;
    return around.mask[static_cast<std::size_t>(row * around.mask_length + past + column)] == 0;
  }

  static std::int64_t position_at(std::int64_t row, std::int64_t column, const TokenGrid& grid,
                                  const Surroundings& around) {
    const bool is_shared = static_cast<std::int64_t>(around.positions.size()) == grid.length;
    return around.positions[static_cast<std::size_t>((is_shared ? 0 : row * grid.length) + column)];
  }

  // How many tokens of its sequence the row had before this call, by mask or position ids.
  static std::int64_t known_before(std::int64_t row, const TokenGrid& grid, const Surroundings& around) {
    const std::int64_t past = around.mask_length - grid.length;
    if (!around.mask.empty() && past > 0) {
      const auto begin = around.mask.begin() + row * around.mask_length;
      return std::count_if(begin, begin + past, [](std::int64_t value) { return value != 0; });
    }
    for (std::int64_t column = 0; column < grid.length && !around.positions.empty(); ++column) {
      if (!is_padding(row, column, grid, around)) return position_at(row, column, grid, around);
    }
    return 0;
  }

  // True where a sequence begins inside of a row.
  static bool is_first(std::int64_t row, std::int64_t column, const TokenGrid& grid, const Surroundings& around) {
    if (!around.boundaries.empty()) {
      return std::binary_search(around.boundaries.begin(), around.boundaries.end(), row * grid.length + column);
    }
    if (around.positions.empty() || column == 0 || is_padding(row, column - 1, grid, around)) return false;
    return position_at(row, column, grid, around) <= position_at(row, column - 1, grid, around);
  }

  TokenStreams& all_;
  std::vector<std::size_t> rows_;  // the stream of each row of the call before
  std::int32_t iteration_ = 0;
};

}  // namespace

TokenStreams token_streams_of(const Alignment& alignment, const std::string& tokens, const std::string& side) {
  for (const auto& [id, tensor] : alignment.tensors) {
    if (!is_input(id) || !tensor.kept) continue;
    throw InputError(
        fmt::format("--sequences: the {}'s ranks have padded each to the longest of its own samples, by {}, where rows "
                    "are not mapped; expected ranks that pad alike or pack, or a run of one process",
                    side, to_string(id)));
  }
  const std::map<ModelCall, const LogicalTensor*> found = find_tokens(alignment, tokens);
  if (found.empty()) {
    throw InputError(
        fmt::format("--sequences {}: the {} has no such input of a model, of two dimensions at most; expected the "
                    "name of the integer input that holds its tokens, as `ttrace inspect` shows it",
                    tokens, side));
  }
  std::map<ModelCall, Surroundings> around;
  TokenStreams streams;
  for (const auto& [call, tensor] : found) {
    const Shape& shape = tensor->shape;
    const bool are_rows = is_floating(tensor->dtype);
    TokenGrid grid{are_rows ? shape[0] : 1, are_rows ? 1 : shape.back(), tensor->id.name};
    if (!are_rows && shape.size() == 2) grid.rows = shape[0];
    streams.grids.emplace(call, std::move(grid));
  }
  for (const auto& [id, tensor] : alignment.tensors) {
    const auto grid = streams.grids.find({id.iteration, id.microbatch});
    if (grid == streams.grids.end() || !is_input(id) || tensor.sketched || tensor.rows || tensor.kept) continue;
    add_surrounding(tensor, grid->second, around[grid->first]);
  }
  StreamReader reader(streams);
  for (const auto& [call, tensor] : found) {
    const bool are_rows = is_floating(tensor->dtype);
    reader.add(call, streams.grids.at(call), are_rows ? numbers_of_rows(*tensor) : integers_of(*tensor), around[call]);
  }
  return streams;
}

}  // namespace ttrace
