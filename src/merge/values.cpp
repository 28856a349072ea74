#include "merge/values.h"

#include <cmath>
#include <limits>

#include "merge/overlay.h"
#include "merge/runs.h"
#include "numeric/convert.h"

namespace ttrace {
namespace {

// Adds the piece's elements to the values at their positions.
void add_piece(const Piece& piece, Dtype dtype, const Shape& shape, Values& values) {
  Values buffer;
  for_each_run(piece, shape, [&](std::int64_t local, std::int64_t stride, std::int64_t position, std::int64_t length) {
    buffer.resize(static_cast<std::size_t>(length));
    const std::byte* data = piece.elements() + local * size_of(dtype);
    if (stride == 1) {
      widen(data, dtype, length, buffer.data());
    } else {
      for (std::int64_t j = 0; j < length; ++j) {
        widen(data + j * stride * size_of(dtype), dtype, 1, &buffer[static_cast<std::size_t>(j)]);
      }
    }
    for (std::int64_t j = 0; j < length; ++j) {
      values[static_cast<std::size_t>(position + j)] += buffer[static_cast<std::size_t>(j)];
    }
  });
}

LogicalTensor with_only_replica(const LogicalTensor& tensor, std::int32_t replica) {
  return replica == 0 ? tensor : seen_by_replica(tensor, replica);
}

}  // namespace

Values values_of(const LogicalTensor& tensor, std::int32_t replica) {
  Values values(static_cast<std::size_t>(element_count(tensor.shape)));
  for (const Piece& piece : with_only_replica(tensor, replica).pieces()) {
    if (piece.replica == 0) add_piece(piece, piece.entry->dtype, tensor.shape, values);
  }
  for (double& value : values) value /= tensor.scale;
  return values;
}

std::vector<LocalTensor> local_tensors_of(const LogicalTensor& tensor, std::int32_t replica) {
  std::map<std::pair<std::int32_t, const Entry*>, LocalTensor> locals;
  for (const Piece& piece : with_only_replica(tensor, replica).pieces()) {
    if (piece.replica != 0 || piece.term != 0) continue;
    LocalTensor& local = locals[{piece.rank, piece.entry}];
    if (local.positions.empty()) {
      local.rank = piece.rank;
      local.shape = piece.entry->shape;
      local.microbatch = piece.entry->id.microbatch;
      local.positions.assign(static_cast<std::size_t>(element_count(local.shape)), -1);
    }
    for_each_run(piece, tensor.shape,
                 [&](std::int64_t at, std::int64_t stride, std::int64_t position, std::int64_t length) {
                   for (std::int64_t j = 0; j < length; ++j) {
                     local.positions[static_cast<std::size_t>(at + j * stride)] = position + j;
                   }
                 });
  }
  std::vector<LocalTensor> result;
  for (auto& [key, local] : locals) result.push_back(std::move(local));
  return result;
}

std::map<std::int32_t, Values> values_by_rank(const LogicalTensor& tensor) {
  std::map<std::int32_t, Values> values;
  for (const Piece& piece : tensor.pieces()) {
    if (piece.replica != 0) continue;
    Values& of_rank = values[piece.rank];
    of_rank.resize(static_cast<std::size_t>(element_count(tensor.shape)));
    add_piece(piece, piece.entry->dtype, tensor.shape, of_rank);
  }
  for (auto& [rank, of_rank] : values) {
    for (double& value : of_rank) value /= tensor.scale;
  }
  return values;
}

double dot_of(const Values& a, const Values& b) {
  double sum = 0;
  for (std::size_t i = 0; i < a.size(); ++i) sum += a[i] * b[i];
  return sum;
}

double norm_of(const Values& values) { return std::sqrt(dot_of(values, values)); }

std::map<std::int32_t, double> recorded_numbers(const LogicalTensor& tensor) {
  std::map<std::int32_t, double> numbers;
  for (const Piece& piece : tensor.pieces()) {
    if (piece.entry->sketch || element_count(piece.logical.size) != 1) continue;
    widen(piece.elements() + piece.offset * size_of(piece.entry->dtype), piece.entry->dtype, 1, &numbers[piece.rank]);
  }
  return numbers;
}

double relative_distance(const Values& a, const Values& b) {
  double square = 0;
  for (std::size_t i = 0; i < a.size(); ++i) square += (a[i] - b[i]) * (a[i] - b[i]);
  const double ratio = std::sqrt(square) / norm_of(b);
  return std::isfinite(ratio) ? ratio : std::numeric_limits<double>::infinity();
}

}  // namespace ttrace
