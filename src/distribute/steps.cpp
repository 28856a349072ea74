#include "distribute/steps.h"

#include <algorithm>
#include <deque>
#include <span>
#include <utility>
#include <vector>

#include "step/replay.h"
#include "step/series.h"

namespace ttrace {
namespace {

constexpr std::uint64_t kStepTasksAProcess = 32;
constexpr std::uint64_t kMostStepBytesATask = 256 << 20;

using Tallies = std::vector<UpdateTally>;

// --- What is sent. A member that is added to one of these types must be sent, too, or named here as one that replaying
// does not look at.

template <class Message, class Rule>
void transfer_rule(Message& message, Rule& rule) {
  auto& [family, decoupled, decay_follows_lr, maximize, amsgrad, bias_correction, nesterov, rounds_as_torch, lr,
         weight_decay, beta1, beta2, eps, correction_rounding, momentum, dampening, floor, threshold, least_scale,
         row_mean_dim, column_mean_dim, averages_last_dims, caps_lr] = rule;
  message(family, decoupled, decay_follows_lr, maximize, amsgrad, bias_correction, nesterov, rounds_as_torch, lr,
          weight_decay, beta1, beta2, eps, correction_rounding, momentum, dampening, floor, threshold, least_scale,
          row_mean_dim, column_mean_dim, averages_last_dims, caps_lr);
}

template <class Message, class Step>
void transfer_step(Message& message, Step& step) {
  auto& [iteration, chunk, optimizer, options, count, calls, clip_factor, master, parameters, changed_after,
         options_after] = step;
  message(iteration, chunk, optimizer, options, count, calls, clip_factor, master, changed_after);
}

// The members of an update that are numbers and texts.
template <class Message, class Update>
void transfer_update(Message& message, Update& update) {
  auto& [iteration, step, delta, reason, has_value, rule, skipped, count, clip_factor, gradient, before, after, source,
         updated, state_is_zero, state, rolled, rests_on] = update;
  transfer_rule(message, rule);
  message(iteration, reason, has_value, skipped, count, clip_factor, source, updated, state_is_zero, rolled);
}

// Calls `visit` for each of an update's operands.
template <class Update, class Visit>
void for_each_operand(Update& update, const Visit& visit) {
  for (auto* operand : {&update.delta, &update.gradient, &update.before, &update.after, &update.state[0],
                        &update.state[1], &update.state[2]}) {
    visit(*operand);
  }
}

template <class Message, class Tally>
void transfer_tally(Message& message, Tally& tally) {
  auto& [wrong, wrong_and_zero, not_finite, worst, copied, wrong_copies, stale_copies, worst_copy, farthest_copy,
         largest_copied, moves] = tally;
  message(wrong, wrong_and_zero, not_finite, copied, wrong_copies, stale_copies, farthest_copy, largest_copied);
  for (auto* element : {&worst, &worst_copy}) {
    auto& [ratio, index, recorded, expected] = *element;
    message(ratio, index, recorded, expected);
  }
  for (auto& sums : moves) {
    auto& [steps, moved, low, high, square] = sums;
    message(steps, moved, low, high, square);
  }
}

// --- Requests

class SeriesPacker {
 public:
  explicit SeriesPacker(int threads) { packer_(threads); }

  void add(const ParameterSeries& series) {
    auto& [rank, chunk, name, updates, elements] = series;
    recorded_.add(*rank->file);
    const std::byte* const begin = rank->file->data();
    packer_(rank->rank, chunk, name, elements, updates.size());
    for (const RankUpdate& update : updates) {
      transfer_update(packer_, update);
      packer_(update.step != nullptr);
      if (update.step != nullptr) transfer_step(packer_, *update.step);
      for_each_operand(update, [&](const StepOperand& operand) {
        packer_(static_cast<bool>(operand));
        if (!operand) return;
        recorded_.add(*operand.entry);
        packer_(operand.data - begin);
      });
    }
  }
  std::string take() { return packer_.take(); }

 private:
  Packer packer_;
  RecordedPacker recorded_{packer_};
};

// The series of a request, with the ranks, steps and entries that they point to.
class UnpackedSeries {
 public:
  UnpackedSeries(std::string_view request, SharedFiles& files) : unpacker_(request), recorded_(unpacker_, files) {
    unpacker_(threads);
    while (!unpacker_.at_end()) take_series();
  }
  UnpackedSeries(const UnpackedSeries&) = delete;
  UnpackedSeries& operator=(const UnpackedSeries&) = delete;

  int threads = 0;
  std::deque<ParameterSeries> all;

 private:
  void take_series() {
    ParameterSeries& series = all.emplace_back();
    RankTrace& rank = ranks_.emplace_back();
    rank.file = recorded_.next_file();
    series.rank = &rank;
    std::size_t updates = 0;
    unpacker_(rank.rank, series.chunk, series.name, series.elements, updates);
    for (; updates > 0; --updates) {
      RankUpdate& update = series.updates.emplace_back();
      transfer_update(unpacker_, update);
      if (unpacker_.next<bool>()) {
        transfer_step(unpacker_, steps_.emplace_back());
        update.step = &steps_.back();
      }
      for_each_operand(update, [&](StepOperand& operand) {
        if (!unpacker_.next<bool>()) return;
        operand.entry = &recorded_.next_entry();
        operand.data = rank.file->data() + unpacker_.next<std::ptrdiff_t>();
      });
    }
  }

  Unpacker unpacker_;
  RecordedUnpacker recorded_;
  std::deque<RankTrace> ranks_;
  std::deque<OptimizerStep> steps_;
};

// Series next to each other are of one rank: [begin, end) in the list of all.
struct SomeSeries {
  std::size_t begin, end;
  std::uint64_t bytes;
};

std::vector<SomeSeries> cut_into_tasks(std::span<const ParameterSeries* const> all, std::uint64_t processes) {
  std::uint64_t total = 0;
  for (const ParameterSeries* series : all) total += bytes_of(*series);
  const std::uint64_t most = std::min(total / (processes * kStepTasksAProcess) + 1, kMostStepBytesATask);
  std::vector<SomeSeries> tasks;
  for (std::size_t i = 0; i < all.size(); ++i) {
    if (tasks.empty() || tasks.back().bytes >= most) tasks.push_back({i, i, 0});
    tasks.back().end = i + 1;
    tasks.back().bytes += bytes_of(*all[i]);
  }
  return tasks;
}

std::vector<Tallies> replay_in(Team& team, int threads, std::span<const ParameterSeries* const> all) {
  if (team.size() == 1) return replay_series(all, threads);
  const std::vector<SomeSeries> series_of = cut_into_tasks(all, static_cast<std::uint64_t>(team.size()));
  std::vector<Tallies> tallies(all.size());
  Tasks tasks;
  tasks.work = Work::kReplaySteps;
  for (const SomeSeries& some : series_of) tasks.weights.push_back(some.bytes);
  tasks.own = [&](std::size_t task) {
    const auto [begin, end, bytes] = series_of[task];
    std::vector<Tallies> some = replay_series(all.subspan(begin, end - begin), threads);
    std::move(some.begin(), some.end(), tallies.begin() + static_cast<std::ptrdiff_t>(begin));
  };
  tasks.request = [&](std::size_t task) {
    SeriesPacker packer(threads);
    for (std::size_t i = series_of[task].begin; i < series_of[task].end; ++i) packer.add(*all[i]);
    return packer.take();
  };
  tasks.take = [&](std::size_t task, const std::string& answer) {
    Unpacker unpacker(answer);
    for (std::size_t i = series_of[task].begin; i < series_of[task].end; ++i) {
      tallies[i].resize(all[i]->updates.size());
      for (UpdateTally& tally : tallies[i]) transfer_tally(unpacker, tally);
    }
    if (!unpacker.at_end()) throw std::logic_error("a message between processes is too long");
  };
  team.deal(tasks);
  return tallies;
}

}  // namespace

Replay replay_with(Team& team, int threads) {
  return [&team, threads](std::span<const ParameterSeries* const> all) { return replay_in(team, threads, all); };
}

std::string answer_steps(std::string_view request, SharedFiles& files) {
  const UnpackedSeries unpacked(request, files);
  std::vector<const ParameterSeries*> all;
  for (const ParameterSeries& series : unpacked.all) all.push_back(&series);
  Packer packer;
  for (const Tallies& tallies : replay_series(all, unpacked.threads)) {
    for (const UpdateTally& tally : tallies) transfer_tally(packer, tally);
  }
  return packer.take();
}

}  // namespace ttrace
