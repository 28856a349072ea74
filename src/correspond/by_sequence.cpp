#include "correspond/by_sequence.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <tuple>
#include <utility>

#include "align/pieces.h"
#include "base/describe.h"
#include "base/error.h"
#include "base/tensor_name.h"

namespace ttrace {
namespace {

constexpr std::size_t kMostShown = 6;
constexpr std::size_t kMostTries = 100'000;  // of taking a packed row apart, where many sequences begin alike

// Tokens that both sides have: a stretch of a stream on either side.
struct CommonTokens {
  std::size_t reference = 0, candidate = 0;              // streams
  std::size_t reference_start = 0, candidate_start = 0;  // tokens
  std::size_t length = 0;
};

std::int32_t iteration_of(const TokenStream& stream) { return stream.places.front().call.first; }

// Finds which stream is which: whole ones first, then packed ones that are made of others, then beginnings.
class StreamMatcher {
 public:
  StreamMatcher(const TokenStreams& reference, const TokenStreams& candidate)
      : reference_(reference.streams),
        candidate_(candidate.streams),
        reference_left_(reference_.size(), true),
        candidate_left_(candidate_.size(), true) {}

  std::vector<CommonTokens> run() {
    match_whole();
    match_packed(candidate_, candidate_left_, reference_, reference_left_, true);
    match_packed(reference_, reference_left_, candidate_, candidate_left_, false);
    match_beginnings();
    std::stable_sort(matches_.begin(), matches_.end(), [](const CommonTokens& a, const CommonTokens& b) {
      return std::tie(a.reference, a.reference_start) < std::tie(b.reference, b.reference_start);
    });
    return std::move(matches_);
  }

 private:
  using Streams = std::vector<TokenStream>;
  using Left = std::vector<bool>;  // streams that nothing was found for so far

  void add(const CommonTokens& match) {
    matches_.push_back(match);
    reference_left_[match.reference] = candidate_left_[match.candidate] = false;
  }

  void match_whole() {
    std::map<std::pair<std::int32_t, std::vector<std::int64_t>>, std::vector<std::size_t>> known;
    for (std::size_t i = reference_.size(); i-- > 0;) {
      known[{iteration_of(reference_[i]), reference_[i].tokens}].push_back(i);
    }
    for (std::size_t i = 0; i < candidate_.size(); ++i) {
      const auto found = known.find({iteration_of(candidate_[i]), candidate_[i].tokens});
      if (found == known.end() || found->second.empty()) continue;
      add({found->second.back(), i, 0, 0, candidate_[i].tokens.size()});
      found->second.pop_back();
    }
  }

  // Takes each stream of `packed` that is left apart into streams of `single` that are left.
  void match_packed(const Streams& packed, const Left& packed_left, const Streams& single, const Left& single_left,
                    bool packed_is_candidate) {
    for (std::size_t i = 0; i < packed.size(); ++i) {
      if (!packed_left[i]) continue;
      std::vector<std::size_t> parts;
      std::size_t tries = 0;
      if (!take_apart(packed[i], 0, single, single_left, parts, tries)) continue;
      for (std::size_t start = 0; const std::size_t part : parts) {
        const std::size_t length = single[part].tokens.size();
        add(packed_is_candidate ? CommonTokens{part, i, 0, start, length} : CommonTokens{i, part, start, 0, length});
        start += length;
      }
    }
  }

  static bool take_apart(const TokenStream& packed, std::size_t start, const Streams& single, const Left& left,
                         std::vector<std::size_t>& parts, std::size_t& tries) {
    if (start == packed.tokens.size()) return true;
    std::vector<std::size_t> fitting;
    for (std::size_t i = 0; i < single.size(); ++i) {
      if (!left[i] || std::find(parts.begin(), parts.end(), i) != parts.end()) continue;
      if (iteration_of(single[i]) == iteration_of(packed) && continues_with(packed, start, single[i])) {
        fitting.push_back(i);
      }
    }
    std::stable_sort(fitting.begin(), fitting.end(),
                     [&](std::size_t a, std::size_t b) { return single[a].tokens.size() > single[b].tokens.size(); });
    for (const std::size_t i : fitting) {
      if (++tries > kMostTries) return false;
      parts.push_back(i);
      if (take_apart(packed, start + single[i].tokens.size(), single, left, parts, tries)) return true;
      parts.pop_back();
    }
    return false;
  }

  static bool continues_with(const TokenStream& packed, std::size_t start, const TokenStream& part) {
    return part.tokens.size() <= packed.tokens.size() - start &&
           std::equal(part.tokens.begin(), part.tokens.end(),
                      packed.tokens.begin() + static_cast<std::ptrdiff_t>(start));
  }

  // What a causal model makes of a token does not depend on those behind it: padding that no mask names, or what an
  // engine went on to generate.
  void match_beginnings() {
    for (std::size_t i = 0; i < candidate_.size(); ++i) {
      if (!candidate_left_[i]) continue;
      std::optional<std::size_t> best;
      std::size_t length = 0;
      for (std::size_t j = 0; j < reference_.size(); ++j) {
        if (!reference_left_[j] || iteration_of(reference_[j]) != iteration_of(candidate_[i])) continue;
        const std::size_t common = std::min(reference_[j].tokens.size(), candidate_[i].tokens.size());
        const bool begins =
            continues_with(reference_[j], 0, candidate_[i]) || continues_with(candidate_[i], 0, reference_[j]);
        if (begins && common > length) std::tie(best, length) = std::pair(std::optional(j), common);
      }
      if (best) add({*best, i, 0, 0, length});
    }
  }

  const Streams& reference_;
  const Streams& candidate_;
  Left reference_left_, candidate_left_;
  std::vector<CommonTokens> matches_;
};

// Tokens next to each other in a row of a call, and the first of them among all tokens of the iteration.
struct TokenRun {
  ModelCall call;
  std::int64_t row = 0, column = 0, length = 0, token = 0;
};

struct TokensOfSide {
  std::map<std::int32_t, std::vector<TokenRun>> runs;  // by iteration
  const TokenStreams* streams = nullptr;
  Alignment* alignment = nullptr;
};

void append(const TokenPlace& place, std::int64_t token, std::vector<TokenRun>& runs) {
  if (!runs.empty()) {
    TokenRun& last = runs.back();
    const bool goes_on = last.call == place.call && last.row == place.row &&
                         last.column + last.length == place.column && last.token + last.length == token;
    if (goes_on) {
      ++last.length;
      return;
    }
  }
  runs.push_back({place.call, place.row, place.column, 1, token});
}

// Which dimensions of a tensor are those of the batch. A tensor has the columns of all rows in one dimension where it is
// flat, and the same for all rows where it has no rows.
struct BatchDims {
  std::optional<std::size_t> rows;
  std::size_t columns = 0;
  bool flat = false;

  bool operator==(const BatchDims&) const = default;
};

// True for weights or masks of attention, [batch, heads, queries, keys]: keys lie as the batch does.
bool holds_keys(const Shape& shape, std::int64_t length) {
  return shape.size() == 4 && shape[2] == length && shape[3] == length;
}

// All ways in which the shape may be of the batch, the likeliest first.
std::vector<BatchDims> batch_dims_of(const Shape& shape, const TokenGrid& grid) {
  const std::int64_t rows = grid.rows, length = grid.length;
  std::vector<BatchDims> ways;
  if (holds_keys(shape, length)) return {};
  const auto is = [&](std::size_t d, std::int64_t extent) { return d < shape.size() && shape[d] == extent; };
  if (is(0, rows) && is(1, length)) ways.push_back({0, 1, false});
  if (is(0, rows * length)) ways.push_back({std::nullopt, 0, true});
  if (is(0, length) && is(1, rows)) ways.push_back({1, 0, false});
  if (is(0, rows) && is(2, length) && shape.size() >= 4) ways.push_back({0, 2, false});
  if (is(0, 1) && is(1, length)) ways.push_back({std::nullopt, 1, false});
  if (is(0, length)) ways.push_back({std::nullopt, 0, false});
  return ways;
}

// Returns the sizes of the dimensions that are none of the batch. A dimension of one element in front of the columns is
// none of its own.
Shape rest_of(const Shape& shape, const BatchDims& dims) {
  Shape rest;
  for (std::size_t d = 0; d < shape.size(); ++d) {
    const bool is_row = dims.rows ? d == *dims.rows : d < dims.columns && shape[d] == 1;
    if (d != dims.columns && !is_row) rest.push_back(shape[d]);
  }
  return rest;
}

// A recorded tensor of one call, and how its batch lies.
struct PartOfCall {
  LogicalTensor tensor;
  BatchDims dims;
  TokenGrid grid;
  std::vector<TokenRun> runs;
};

// Cuts the tokens of a run out of a piece; nothing where it holds none of them.
std::optional<Piece> cut(const Piece& piece, const PartOfCall& part, const TokenRun& run) {
  const BatchDims& dims = part.dims;
  Piece result = piece;
  result.logical = {};
  result.strides.clear();
  if (dims.rows) {
    const std::int64_t at = run.row - piece.logical.start[*dims.rows];
    if (at < 0 || at >= piece.logical.size[*dims.rows]) return std::nullopt;
    result.offset += at * piece.strides[*dims.rows];
  }
  const std::int64_t column = run.column + (dims.flat ? run.row * part.grid.length : 0);
  const std::int64_t start = piece.logical.start[dims.columns], end = start + piece.logical.size[dims.columns];
  const std::int64_t begin = std::max(column, start), stop = std::min(column + run.length, end);
  if (begin >= stop) return std::nullopt;
  result.offset += (begin - start) * piece.strides[dims.columns];
  result.logical.start = {run.token + begin - column};
  result.logical.size = {stop - begin};
  result.strides = {piece.strides[dims.columns]};
  for (std::size_t d = 0; d < piece.strides.size(); ++d) {
    const bool is_row = dims.rows ? d == *dims.rows : d < dims.columns && part.tensor.shape[d] == 1;
    if (d == dims.columns || is_row) continue;
    result.logical.start.push_back(piece.logical.start[d]);
    result.logical.size.push_back(piece.logical.size[d]);
    result.strides.push_back(piece.strides[d]);
  }
  return result;
}

// Returns the tensor of all tokens that the parts hold rows of.
LogicalTensor joined(const TensorId& id, std::vector<PartOfCall> parts, std::int64_t tokens) {
  LogicalTensor all = parts.front().tensor;
  all.id = id;
  all.shape = {tokens};
  const Shape rest = rest_of(parts.front().tensor.shape, parts.front().dims);
  all.shape.insert(all.shape.end(), rest.begin(), rest.end());
  all.bytes = 0;
  for (const PartOfCall& part : parts) {
    all.order = std::min(all.order, part.tensor.order);
    all.bytes += part.tensor.bytes;
    all.guessed = all.guessed || part.tensor.guessed;
  }
  const auto shared = std::make_shared<const std::vector<PartOfCall>>(std::move(parts));
  all.pieces = [shared] {
    std::vector<Piece> pieces;
    for (const PartOfCall& part : *shared) {
      const std::vector<Piece> whole = part.tensor.pieces();
      for (const TokenRun& run : part.runs) {
        for (const Piece& piece : whole) {
          if (auto of_run = cut(piece, part, run)) pieces.push_back(*std::move(of_run));
        }
      }
    }
    sort_pieces(pieces);
    return pieces;
  };
  return all;
}

// True for tensors that say how a batch lies, and differ by design.
bool says_how_batch_lies(const TensorId& id) {
  const TensorName name(id.name);
  const std::string word(name.member.empty() ? last_component(name.path) : name.member);
  return word.find("mask") != word.npos || word.find("cu_seq") != word.npos ||
         word.find("cache_position") != word.npos || word.find("max_length") != word.npos;
}

// The tensors of all micro-batches of an iteration, by what they have in common.
using TensorsOfCalls = std::map<TensorId, std::vector<const LogicalTensor*>>;

TensorsOfCalls tensors_of_calls(const Alignment& alignment) {
  TensorsOfCalls tensors;
  for (const auto& [id, tensor] : alignment.tensors) {
    if (id.microbatch == kNoMicrobatch) continue;
    TensorId common = id;
    common.microbatch = 0;
    tensors[common].push_back(&tensor);
  }
  return tensors;
}

// Returns the tensor of all tokens, of those of single calls; nothing where some token has no row in them, or where they
// do not lie alike.
std::optional<LogicalTensor> join(const TensorId& id, const std::vector<const LogicalTensor*>& tensors,
                                  const TokensOfSide& side, std::int64_t tokens) {
  const auto of_iteration = side.runs.find(id.iteration);
  const bool is_of_activations = !is_parameter_kind(id.kind) && id.kind != Kind::kScalar && !is_buffer_kind(id.kind);
  if (of_iteration == side.runs.end() || !is_of_activations || says_how_batch_lies(id)) return std::nullopt;
  std::map<ModelCall, const LogicalTensor*> by_call;
  for (const LogicalTensor* tensor : tensors) by_call[{id.iteration, tensor->id.microbatch}] = tensor;
  std::map<ModelCall, PartOfCall> parts;
  for (const TokenRun& run : of_iteration->second) {
    const auto found = by_call.find(run.call);
    if (found == by_call.end()) return std::nullopt;
    PartOfCall& part = parts[run.call];
    part.runs.push_back(run);
    if (part.runs.size() > 1) continue;
    part.tensor = *found->second;
    part.grid = side.streams->grids.at(run.call);
    if (part.tensor.rows || part.tensor.kept || part.tensor.sketched) return std::nullopt;
  }
  // The way that all calls have in common; a single call has none that is likelier than the first.
  std::optional<std::vector<BatchDims>> common;
  for (const auto& [call, part] : parts) {
    const std::vector<BatchDims> ways = batch_dims_of(part.tensor.shape, part.grid);
    if (!common) common = ways;
    std::erase_if(*common,
                  [&](const BatchDims& way) { return std::find(ways.begin(), ways.end(), way) == ways.end(); });
  }
  if (!common || common->empty()) return std::nullopt;
  std::vector<PartOfCall> all;
  for (auto& [call, part] : parts) {
    part.dims = common->front();
    const LogicalTensor& first = all.empty() ? part.tensor : all.front().tensor;
    const bool is_alike = first.dtype == part.tensor.dtype && first.scale == part.tensor.scale &&
                          rest_of(first.shape, part.dims) == rest_of(part.tensor.shape, part.dims);
    if (!is_alike) return std::nullopt;
    all.push_back(std::move(part));
  }
  return joined(id, std::move(all), tokens);
}

// Names of tensors, each once.
std::string short_names(const std::set<std::string>& names) {
  std::vector<std::string> some;
  for (const std::string& name : names) {
    if (some.size() < kMostShown) some.push_back(printable(name));
  }
  return fmt::format("{}{}", comma_list(some), names.size() > kMostShown ? ", ..." : "");
}

// Puts the tensors of tokens in the place of those of calls, on both sides.
class SequenceMapper {
 public:
  SequenceMapper(TokensOfSide reference, TokensOfSide candidate)
      : reference_(std::move(reference)), candidate_(std::move(candidate)) {}

  void place(const std::vector<CommonTokens>& matches) {
    for (const CommonTokens& match : matches) {
      const TokenStream& reference = reference_.streams->streams[match.reference];
      const TokenStream& candidate = candidate_.streams->streams[match.candidate];
      const std::int32_t iteration = iteration_of(reference);
      std::int64_t& token = tokens_[iteration];
      for (std::size_t i = 0; i < match.length; ++i, ++token) {
        append(reference.places[match.reference_start + i], token, reference_.runs[iteration]);
        append(candidate.places[match.candidate_start + i], token, candidate_.runs[iteration]);
      }
    }
  }

  void map() {
    std::map<TensorId, LogicalTensor> of_reference = joined_tensors(reference_),
                                      of_candidate = joined_tensors(candidate_);
    for (const TensorId& id : left_out_) {
      if (has_floating(of_reference, id) || has_floating(of_candidate, id)) one_sided_.insert(name_and_kind(id));
    }
    leave_out_calls(of_reference, of_candidate);
    leave_out_calls(of_candidate, of_reference);
    require_rows(of_reference, of_candidate);
    replace(*reference_.alignment, of_reference);
    replace(*candidate_.alignment, of_candidate);
  }

  std::optional<std::string> note() const {
    if (left_out_.empty()) return std::nullopt;
    std::set<std::string> names;
    for (const TensorId& id : left_out_) names.insert(name_and_kind(id));
    return fmt::format(
        "--sequences: not compared, since they have no row for each token, say how a batch lies or are given on "
        "one side alone: {} names, as {}",
        names.size(), short_names(names));
  }

 private:
  static std::string name_and_kind(const TensorId& id) { return fmt::format("{} {}", id.name.get(), name_of(id.kind)); }

  static bool has_floating(const std::map<TensorId, LogicalTensor>& tensors, const TensorId& id) {
    const auto found = tensors.find(id);
    return found != tensors.end() && is_floating(found->second.dtype);
  }

  // Nothing passes since it could not be held against anything.
  void require_rows(const std::map<TensorId, LogicalTensor>& reference,
                    const std::map<TensorId, LogicalTensor>& candidate) const {
    if (!one_sided_.empty()) {
      throw InputError(fmt::format(
          "--sequences: one side alone has a row for each token of {}; expected both to have one, or --only "
          "with the names of others",
          short_names(one_sided_)));
    }
    const bool any = std::any_of(reference.begin(), reference.end(), [&](const auto& item) {
      return is_floating(item.second.dtype) && candidate.contains(item.first);
    });
    if (any) return;
    throw InputError(
        "--sequences: no floating-point tensor has a row for each token on both sides; expected [batch, length, ..], "
        "[length, batch, ..], [tokens, ..] or [batch, heads, length, ..]");
  }

  std::map<TensorId, LogicalTensor> joined_tensors(const TokensOfSide& side) {
    std::map<TensorId, LogicalTensor> all;
    for (const auto& [id, tensors] : tensors_of_calls(*side.alignment)) {
      const auto tokens = tokens_.find(id.iteration);
      std::optional<LogicalTensor> one;
      if (tokens != tokens_.end()) one = join(id, tensors, side, tokens->second);
      if (one) {
        all.emplace(id, *std::move(one));
      } else {
        left_out_.insert(id);
      }
    }
    return all;
  }

  // Leaves out integer inputs that one side alone was given: what numbers a program passes, and by which name, is its
  // way of calling a module. What is computed from them is compared, and the tokens were.
  void leave_out_calls(const std::map<TensorId, LogicalTensor>& mine, const std::map<TensorId, LogicalTensor>& others) {
    for (const auto& [id, tensor] : mine) {
      if (id.kind == Kind::kInput && !is_floating(tensor.dtype) && !others.contains(id)) left_out_.insert(id);
    }
  }

  // What one side could not join is compared on neither. What a side has not recorded at all is missing there.
  void replace(Alignment& alignment, std::map<TensorId, LogicalTensor>& tensors) {
    std::erase_if(alignment.tensors, [](const auto& item) { return item.first.microbatch != kNoMicrobatch; });
    for (auto& [id, tensor] : tensors) {
      if (!left_out_.contains(id)) alignment.tensors.emplace(id, std::move(tensor));
    }
  }

  TokensOfSide reference_, candidate_;
  std::map<std::int32_t, std::int64_t> tokens_;  // by iteration, how many both sides have
  std::set<TensorId> left_out_;
  std::set<std::string> one_sided_;
};

struct HeldTokens {
  std::size_t sequences = 0, tokens = 0;
};

HeldTokens held_by(const TokenStreams& streams) {
  HeldTokens held{streams.streams.size(), 0};
  for (const TokenStream& stream : streams.streams) held.tokens += stream.tokens.size();
  return held;
}

}  // namespace

SequenceMapping map_by_sequence(const TokenStreams& reference_streams, const TokenStreams& candidate_streams,
                                Alignment& reference, Alignment& candidate) {
  const std::vector<CommonTokens> matches = StreamMatcher(reference_streams, candidate_streams).run();
  const HeldTokens of_reference = held_by(reference_streams), of_candidate = held_by(candidate_streams);
  if (matches.empty()) {
    throw InputError(
        fmt::format("--sequences: of the reference's {} sequences ({}) none is among the candidate's {} ({}), by their "
                    "tokens; expected both to be given the same ones, with inputs that are named attention_mask, where "
                    "some tokens are padding, and "
                    "position_ids or cu_seqlens, where several sequences are packed",
                    of_reference.sequences, reference_streams.grids.begin()->second.name, of_candidate.sequences,
                    candidate_streams.grids.begin()->second.name));
  }
  std::size_t tokens = 0;
  for (const CommonTokens& match : matches) tokens += match.length;
  SequenceMapper mapper({{}, &reference_streams, &reference}, {{}, &candidate_streams, &candidate});
  mapper.place(matches);
  mapper.map();
  SequenceMapping mapping;
  mapping.notes.push_back(
      fmt::format("--sequences: rows are tokens of {} sequences, one after the other as the reference was given "
                  "them ({} of it, {} of the candidate), {} tokens in all",
                  matches.size(), reference_streams.grids.begin()->second.name,
                  candidate_streams.grids.begin()->second.name, tokens));
  if (auto note = mapper.note()) mapping.notes.push_back(*std::move(note));
  if (tokens < of_reference.tokens || tokens < of_candidate.tokens) {
    mapping.partial = fmt::format(
        "of the reference's {} tokens {} are in no sequence of the candidate, and of its {} tokens {} are in none "
        "of the reference: they are not compared",
        of_reference.tokens, of_reference.tokens - tokens, of_candidate.tokens, of_candidate.tokens - tokens);
  }
  return mapping;
}

}  // namespace ttrace
