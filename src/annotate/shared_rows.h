// Finds which parameters of two programs hold the same rows.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace ttrace {

// Holds hashes of the parameters of one program, as `hash_rows` makes them; empty for those that are left out.
struct RowHashes {
  std::vector<std::vector<std::uint64_t>> rows, columns;
};

// Parameters that share rows, by their places in RowHashes: the reference's and the candidate's.
struct RowSharers {
  std::vector<std::size_t> members[2];
  bool transposed = false;  // rows of the reference are columns of the candidate
};

// Two parameters share rows where more than half of the smaller one's are the other's. Who shares rows with one is
// together with all that share rows with it.
std::vector<RowSharers> find_sharers(const RowHashes& reference, const RowHashes& candidate);

}  // namespace ttrace
