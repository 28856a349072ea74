#include "distribute/comparison.h"

#include <fmt/format.h>

#include <algorithm>
#include <deque>
#include <numeric>
#include <stdexcept>
#include <tuple>
#include <utility>

#include "base/difference_members.h"
#include "team/message.h"

namespace ttrace {
namespace {

constexpr std::uint64_t kCompareTasksAProcess = 32;
constexpr std::uint64_t kMostBytesATask = 256 << 20;
constexpr std::size_t kMostPairsATask = 4096;

// --- What is sent. A member that is added to one of these types must be sent, too, or named as one that a comparison
// does not look at.

template <class Message, class OneDifference>
void transfer_difference(Message& message, OneDifference& difference) {
  visit_members(difference, message);
  transfer_optional(message, difference.sketch, [&](auto& measure) { visit_members(measure, message); });
}

// The members of a piece but for its entry and its file, which several pieces share and which are sent by number.
template <class Message, class OnePiece>
void transfer_piece(Message& message, OnePiece& piece) {
  auto& [rank, entry, data, file, logical, offset, strides, replica, term] = piece;
  auto& [start, size] = logical;
  message(rank, start, size, offset, strides, replica, term);
}

template <class Message, class Tensor>
void transfer_tensor(Message& message, Tensor& tensor) {
  auto& [id, dtype, shape, order, scale, module_class, pieces, rows, router, routed_experts, kept, bytes, sketched,
         light, factoring, annotated, deduced, guessed, truncated, doubt] = tensor;
  transfer_id(message, id);
  message(dtype, shape, order, scale, rows, routed_experts, bytes, sketched);
}

// --- Requests

// Packs pairs. Files and entries are sent once a request, before the first piece that lies in them.
class PairPacker {
 public:
  explicit PairPacker(const CompareOptions& options) { packer_(options.threads, options.checksums); }

  void add(const TensorPair& pair) {
    const bool is_one = pair.reference == pair.candidate;  // replicas of one side
    packer_(is_one);
    add(*pair.reference);
    if (!is_one) add(*pair.candidate);
  }
  std::string take() { return packer_.take(); }

 private:
  void add(const LogicalTensor& tensor) {
    transfer_tensor(packer_, tensor);
    const std::vector<Piece> pieces = tensor.pieces();
    packer_(pieces.size());
    for (const Piece& piece : pieces) {
      if (piece.file == nullptr || piece.data != piece.file->data() + piece.entry->offset) {
        throw std::logic_error(fmt::format("{}: a piece lies in no file", to_string(tensor.id)));
      }
      recorded_.add(*piece.file);
      recorded_.add(*piece.entry);
      transfer_piece(packer_, piece);
    }
  }
  Packer packer_;
  RecordedPacker recorded_{packer_};
};

// The pairs of a request, with the tensors and entries that they point to.
class UnpackedPairs {
 public:
  UnpackedPairs(std::string_view request, SharedFiles& files) : unpacker_(request), recorded_(unpacker_, files) {
    unpacker_(options.threads, options.checksums);
    while (!unpacker_.at_end()) {
      const auto is_one = unpacker_.next<bool>();
      const LogicalTensor* const reference = take_tensor();
      pairs.push_back({reference, is_one ? reference : take_tensor()});
    }
  }
  UnpackedPairs(const UnpackedPairs&) = delete;
  UnpackedPairs& operator=(const UnpackedPairs&) = delete;

  CompareOptions options;
  std::vector<TensorPair> pairs;

 private:
  const LogicalTensor* take_tensor() {
    LogicalTensor& tensor = tensors_.emplace_back();
    transfer_tensor(unpacker_, tensor);
    std::vector<Piece> pieces(unpacker_.next<std::size_t>());
    for (Piece& piece : pieces) {
      piece.file = recorded_.next_file().get();
      piece.entry = &recorded_.next_entry();
      piece.data = piece.file->data() + piece.entry->offset;
      transfer_piece(unpacker_, piece);
    }
    tensor.pieces = [pieces = std::move(pieces)] { return pieces; };
    return &tensor;
  }

  Unpacker unpacker_;
  RecordedUnpacker recorded_;
  std::deque<LogicalTensor> tensors_;
};

std::uint64_t bytes_of(const TensorPair& pair) { return pair.reference->bytes + pair.candidate->bytes; }

// Pairs, as places in the list of all.
using Places = std::vector<std::size_t>;

// Puts neighbours in execution together: their bytes lie next to each other in the files, and a tensor that was
// recorded twice, as a module's output and as the next one's input, is there both times.
std::vector<Places> cut_into_tasks(std::span<const TensorPair> pairs, std::uint64_t processes) {
  Places sorted(pairs.size());
  std::iota(sorted.begin(), sorted.end(), std::size_t{0});
  std::stable_sort(sorted.begin(), sorted.end(), [&](std::size_t a, std::size_t b) {
    const LogicalTensor &x = *pairs[a].reference, &y = *pairs[b].reference;
    return std::tie(x.id.iteration, x.order) < std::tie(y.id.iteration, y.order);
  });
  std::uint64_t total = 0;
  for (const TensorPair& pair : pairs) total += bytes_of(pair);
  const std::uint64_t most = std::min(total / (processes * kCompareTasksAProcess) + 1, kMostBytesATask);
  std::vector<Places> tasks;
  std::uint64_t bytes = most;  // of the last task
  for (const std::size_t place : sorted) {
    if (bytes >= most || tasks.back().size() >= kMostPairsATask) {
      tasks.emplace_back();
      bytes = 0;
    }
    tasks.back().push_back(place);
    bytes += bytes_of(pairs[place]);
  }
  return tasks;
}

}  // namespace

std::vector<Difference> compare(std::span<const TensorPair> pairs, const CompareOptions& options, Team& team) {
  if (team.size() == 1) return compare(pairs, options);
  const std::vector<Places> places_of = cut_into_tasks(pairs, static_cast<std::uint64_t>(team.size()));
  std::vector<Difference> differences(pairs.size());
  std::uint64_t done = 0, total = 0;
  Tasks tasks;
  tasks.work = Work::kCompare;
  for (const Places& places : places_of) {
    std::uint64_t& bytes = tasks.weights.emplace_back(0);
    for (const std::size_t place : places) bytes += bytes_of(pairs[place]);
    total += bytes;
  }
  tasks.own = [&](std::size_t task) {
    std::vector<TensorPair> some;
    for (const std::size_t place : places_of[task]) some.push_back(pairs[place]);
    std::vector<Difference> measured = compare(some, {options.threads, {}, options.checksums});
    for (std::size_t i = 0; i < some.size(); ++i) differences[places_of[task][i]] = std::move(measured[i]);
  };
  tasks.request = [&](std::size_t task) {
    PairPacker packer(options);
    for (const std::size_t place : places_of[task]) packer.add(pairs[place]);
    return packer.take();
  };
  tasks.take = [&](std::size_t task, const std::string& answer) {
    Unpacker unpacker(answer);
    for (const std::size_t place : places_of[task]) transfer_difference(unpacker, differences[place]);
    if (!unpacker.at_end()) throw std::logic_error("a message between processes is too long");
  };
  tasks.finished = [&](std::size_t task) {
    done += tasks.weights[task];
    if (options.progress) options.progress(done, total);
  };
  team.deal(tasks);
  return differences;
}

std::string answer_comparison(std::string_view request, SharedFiles& files) {
  const UnpackedPairs unpacked(request, files);
  Packer packer;
  for (const Difference& difference : compare(unpacked.pairs, unpacked.options)) {
    transfer_difference(packer, difference);
  }
  return packer.take();
}

}  // namespace ttrace
