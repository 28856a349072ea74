// The loss scale, as in `loss_scale: dp*4`.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace ttrace {

struct Finding;

// The positive number, of up to nine digits, that a word of a factor is; nothing for any other word.
std::optional<std::int64_t> factor_number(std::string_view word);

// The positive whole number, or one over it, that is nearest to the positive factor.
double nearest_whole_factor(double factor);

// Returns the integer, or one over it, that the finding's tensor is the reference's times; 1 where it is none.
double whole_multiple_of(const Finding& finding);

// True for what a program says that does to its gradients what nobody can know: the JSON value of that key.
bool is_unknown_scale(std::string_view key, std::string_view json);

}  // namespace ttrace
