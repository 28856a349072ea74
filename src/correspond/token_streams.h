// The sequences that a run's models were given, wherever their tokens lie: in rows of a batch that is padded on either
// side, one after the other in a packed row, or a few at a time, call after call, as an engine with a cache decodes.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "base/alignment.h"

namespace ttrace {

// The word that `check --sequences` is given in place of a tensor's name.
inline constexpr std::string_view kTokensOfEmbedding = "auto";

// A call of a model: iteration and micro-batch.
using ModelCall = std::pair<std::int32_t, std::int32_t>;

// The batch of a call: `rows` of `length` tokens each. The tokens of one dimension are one row, and the rows of a
// floating-point tensor are so many rows of one token.
struct TokenGrid {
  std::int64_t rows = 1, length = 0;
  std::string name;  // of the tensor that told
};

// Where a token lies.
struct TokenPlace {
  ModelCall call;
  std::int64_t row = 0, column = 0;
};

// The tokens of a sequence, or of a row that holds several, without padding.
struct TokenStream {
  std::vector<std::int64_t> tokens;
  std::vector<TokenPlace> places;  // one a token
};

struct TokenStreams {
  std::map<ModelCall, TokenGrid> grids;
  std::vector<TokenStream> streams;  // in order of execution
};

// Returns the streams of all calls in whose input the tokens are. `tokens`: the name, member or pattern of an input, or
// kTokensOfEmbedding, which is what the first embedding is given, and without one the model's first input. A stream is
// told apart by the attention mask, the sequences' cumulative lengths, or by position ids that begin again; it goes on
// where mask or position ids say that a call has tokens before it. Throws InputError where there is no such input.
TokenStreams token_streams_of(const Alignment& alignment, const std::string& tokens, const std::string& side);

}  // namespace ttrace
