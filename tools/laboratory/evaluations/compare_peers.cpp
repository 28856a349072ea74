// Prints what other tools' rules look at, of two traces that are aligned and matched as `ttrace check` does it.
// Usage: compare_peers REFERENCE ITS-ANNOTATIONS CANDIDATE ITS-ANNOTATIONS ATOL:RTOL...
//
// Prints CSV, one line per pair of tensors. x is the candidate's value and y the reference's, both widened to fp64:
//   difference_square, reference_square, candidate_square
//               sum (x - y)^2, sum y^2, sum x^2 over all elements: NaN and Inf go into the sums, as they would in torch
//   outside     the number of elements for which torch.allclose(x, y, rtol, atol) does not hold, one column for each
//               pair: |x - y| <= atol + rtol * |y| or x == y holds; NaN equals nothing
// Where the candidate's copies of a tensor differ, each number is that of its worst copy.
// Ends with 0, or with 2 and one line on stderr when it could not look.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdio>
#include <exception>
#include <string_view>
#include <system_error>
#include <vector>

#include "align/aligned_trace.h"
#include "base/error.h"
#include "judge/match.h"
#include "load/trace_reader.h"
#include "merge/overlay.h"
#include "numeric/convert.h"
#include "workflow/annotations.h"

namespace {

using namespace ttrace;

struct Bounds {
  double atol = 0, rtol = 0;
};

struct Sums {
  double difference_square = 0, reference_square = 0, candidate_square = 0;
  std::vector<std::int64_t> outside;  // by pair of bounds
};

double parse_number(std::string_view text, std::string_view argument) {
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || !std::isfinite(value) || value < 0) {
    throw InputError(fmt::format("'{}': no pair of bounds; expected ATOL:RTOL, such as 1e-8:1e-5", argument));
  }
  return value;
}

Bounds parse_bounds(std::string_view argument) {
  const std::size_t colon = std::min(argument.find(':'), argument.size());
  return {parse_number(argument.substr(0, colon), argument),
          parse_number(argument.substr(std::min(colon + 1, argument.size())), argument)};
}

// `steps`: from the first element of the box, along each dimension.
double value_at(const std::vector<StridedTerm>& terms, double scale, const Shape& steps) {
  double sum = 0;
  for (const StridedTerm& term : terms) {
    std::int64_t position = 0;
    for (std::size_t i = 0; i < steps.size(); ++i) position += steps[i] * term.strides[i];
    double value = 0;
    widen(term.data + position * size_of(term.dtype), term.dtype, 1, &value);
    sum += value;
  }
  return sum / scale;
}

// torch.isclose without equal_nan.
bool is_close(double x, double y, const Bounds& bounds) {
  if (x == y) return true;
  const double difference = std::abs(x - y);
  return std::isfinite(difference) && difference <= bounds.atol + bounds.rtol * std::abs(y);
}

void add_element(Sums& sums, double x, double y, const std::vector<Bounds>& bounds) {
  sums.difference_square += (x - y) * (x - y);
  sums.reference_square += y * y;
  sums.candidate_square += x * x;
  for (std::size_t i = 0; i < bounds.size(); ++i) sums.outside[i] += !is_close(x, y, bounds[i]);
}

// The next index of a box, in order of the rows; false after the last.
bool advance(Shape& index, const Shape& size) {
  for (std::size_t i = size.size(); i-- > 0;) {
    if (++index[i] < size[i]) return true;
    index[i] = 0;
  }
  return false;
}

Sums measure(const LogicalTensor& reference, const LogicalTensor& candidate, const std::vector<Bounds>& bounds) {
  Sums sums;
  sums.outside.resize(bounds.size());
  const Overlay laid = overlay(reference, candidate);
  for (const OverlayBox& box : laid.boxes) {
    Shape index(box.logical.size.size(), 0);
    do {
      add_element(sums, value_at(box.candidate, laid.candidate_scale, index),
                  value_at(box.reference, laid.reference_scale, index), bounds);
    } while (advance(index, box.logical.size));
  }
  return sums;
}

// NaN counts as the worst.
bool is_worse(double a, double b) { return std::isnan(a) ? !std::isnan(b) : a > b; }

Sums measure_worst_copy(const TensorPair& pair, const std::vector<Bounds>& bounds) {
  Sums worst = measure(*pair.reference, *pair.candidate, bounds);
  std::int32_t last = 0;
  for (const Piece& piece : pair.candidate->pieces()) last = std::max(last, piece.replica);
  for (std::int32_t replica = 1; replica <= last; ++replica) {
    Sums copy = measure(*pair.reference, seen_by_replica(*pair.candidate, replica), bounds);
    for (std::size_t i = 0; i < bounds.size(); ++i) worst.outside[i] = std::max(worst.outside[i], copy.outside[i]);
    copy.outside = worst.outside;
    if (is_worse(copy.difference_square, worst.difference_square)) worst = std::move(copy);
  }
  return worst;
}

std::string row(const TensorPair& pair, const std::vector<Bounds>& bounds) {
  const TensorId& id = pair.candidate->id;
  const Sums sums = measure_worst_copy(pair, bounds);
  std::string quoted;
  for (const char c : id.name) quoted += c == '"' ? std::string("\"\"") : std::string(1, c);
  return fmt::format("\"{}\",{},{},{},{},{},{},{},{},{}\n", quoted, name_of(id.kind), id.iteration,
                     id.microbatch == kNoMicrobatch ? "" : fmt::format("{}", id.microbatch), name_of(id.pass),
                     element_count(pair.reference->shape), sums.difference_square, sums.reference_square,
                     sums.candidate_square, fmt::join(sums.outside, ","));
}

void run(const std::vector<std::string_view>& arguments) {
  if (arguments.size() < 4)
    throw InputError("expected REFERENCE ITS-ANNOTATIONS CANDIDATE ITS-ANNOTATIONS ATOL:RTOL...");
  std::vector<Bounds> bounds;
  for (std::size_t i = 4; i < arguments.size(); ++i) bounds.push_back(parse_bounds(arguments[i]));
  const auto annotations = [&](std::size_t i) { return load_annotations({.file = std::string(arguments[i])}); };
  const AlignedTrace reference = align_whole(read_trace(arguments[0]), annotations(1));
  const AlignedTrace candidate = align_trace(read_trace(arguments[2]), annotations(3), layout_of(reference.alignment));
  const Matching matching = match(reference.alignment, candidate.alignment);

  std::string text = "name,kind,iteration,microbatch,pass,elements,difference_square,reference_square,candidate_square";
  for (std::size_t i = 0; i < bounds.size(); ++i) text += fmt::format(",outside_{}", i);
  text += '\n';
  for (const TensorPair& pair : matching.pairs) {
    if (element_count(pair.reference->shape) > 0) text += row(pair, bounds);
  }
  if (std::fputs(text.c_str(), stdout) < 0 || std::fflush(stdout) != 0) throw InputError("stdout: cannot be written");
}

}  // namespace

int main(int argc, char** argv) {
  try {
    run({argv + 1, argv + argc});
    return 0;
  } catch (const std::exception& error) {
    fmt::print(stderr, "compare_peers: error: {}\n", error.what());
    return 2;
  }
}
