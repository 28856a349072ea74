#include "step/step.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>
#include <tuple>

#include "base/parallel_for.h"
#include "judge/judge.h"
#include "step/replay.h"
#include "step/rounding.h"
#include "step/series.h"
#include "step/step_group.h"
#include "step/wording.h"

namespace ttrace {
namespace {

constexpr std::int64_t kTaskElements = 128 << 10;                // that one thread replays in one go
constexpr std::uint64_t kBatchBytes = std::uint64_t{512} << 20;  // of recorded tensors, whose pages are then released
constexpr std::size_t kMostDescribed = 64;                       // wrong updates that are looked at element by element

// Part of a series, and what was measured of it.
struct ReplayTask {
  std::size_t series;
  std::int64_t begin, end;
  std::vector<UpdateTally> tallies;
};

void add_operands(const RankUpdate& update, std::vector<StepOperand>& operands) {
  for (const StepOperand& operand : {update.delta, update.gradient, update.before, update.after, update.state[0],
                                     update.state[1], update.state[2]}) {
    if (operand) operands.push_back(operand);
  }
}

void release_pages(const ParameterSeries& series) {
  std::vector<StepOperand> operands;
  for (const RankUpdate& update : series.updates) add_operands(update, operands);
  for (const StepOperand& operand : operands) {
    series.rank->file->release(operand.data,
                               static_cast<std::uint64_t>(series.elements * size_of(operand.entry->dtype)));
  }
}

// Copies of a parameter on several ranks have the same updates: equal keys, equal tallies. Bytes are told apart by
// their checksums; copies are compared bit by bit elsewhere.
std::string key_of(const ParameterSeries& series) {
  std::string key = fmt::format("{} {}", series.name, series.elements);
  for (const RankUpdate& update : series.updates) {
    key += fmt::format("|{} {} {}", update.iteration, update.reason, static_cast<int>(update.source));
    if (update.step != nullptr) {
      const OptimizerStep& step = *update.step;
      key += fmt::format(" {} {} {} {} {}", step.optimizer, step.step.value_or(-1), step.calls,
                         step.clip_factor.value_or(-1), step.master);
      for (const auto& [name, value] : step.options) key += fmt::format(" {}={}", name, value);
    }
    std::vector<StepOperand> operands;
    add_operands(update, operands);
    for (const StepOperand& operand : operands) {
      key += fmt::format(" {}:{:x}+{}", static_cast<int>(operand.entry->id.kind), operand.entry->checksum,
                         operand.data - series.rank->bytes_of(*operand.entry));
    }
  }
  return key;
}

// Replays the batch [first, last) of series on all threads.
void run_tasks(std::span<const ParameterSeries* const> all, std::size_t first, std::size_t last,
               std::vector<ReplayTask>& tasks, int threads) {
  std::vector<std::vector<WholeTensor>> wholes(last - first);
  parallel_for(wholes.size(), threads, [&](std::size_t i) { wholes[i] = find_whole_tensors(*all[first + i]); });
  parallel_for(tasks.size(), threads, [&](std::size_t i) {
    ReplayTask& task = tasks[i];
    task.tallies = replay(*all[task.series], task.begin, task.end, 0, nullptr, 1, wholes[task.series - first]);
  });
}

// Returns a tally for each update of each series. Copies of a parameter are replayed once.
std::vector<std::vector<UpdateTally>> replay_all(const std::vector<ParameterSeries>& all, const Replay& replay) {
  std::map<std::string, std::size_t> first_of;  // its place in `distinct`
  std::vector<std::size_t> same_as;
  std::vector<const ParameterSeries*> distinct;
  for (const ParameterSeries& series : all) {
    const auto [first, is_new] = first_of.try_emplace(key_of(series), distinct.size());
    if (is_new) distinct.push_back(&series);
    same_as.push_back(first->second);
  }
  const std::vector<std::vector<UpdateTally>> replayed = replay(distinct);
  std::vector<std::vector<UpdateTally>> tallies;
  for (const std::size_t place : same_as) tallies.push_back(replayed.at(place));
  return tallies;
}

// After a gradient that is not finite, the state is none either, until it is recorded again.
void refuse_what_is_not_finite(std::vector<ParameterSeries>& all,
                               const std::vector<std::vector<UpdateTally>>& tallies) {
  for (std::size_t i = 0; i < all.size(); ++i) {
    for (std::size_t j = 0; j < all[i].updates.size(); ++j) {
      RankUpdate& update = all[i].updates[j];
      if (update.reason.empty() && tallies[i][j].not_finite > 0) {
        update.reason = "its gradient or its optimizer's state is not finite";
      }
    }
  }
}

// The ranks' parts of one update.
struct LogicalUpdate {
  std::vector<WrongPart> parts;
  std::string reason;  // of the first part that has one
};

const RankUpdate& update_of(const WrongPart& part) { return part.series->updates[part.update]; }

// Leaves out what ranks were given by the one whose optimizer has the parameter (ZeRO's stage 1): the update is that of
// its step, bit for bit.
void leave_out_given(std::vector<WrongPart>& parts) {
  const auto is_stepped = [](const WrongPart& part) {
    const OptimizerStep* step = update_of(part).step;
    return step != nullptr && !step->optimizer.empty();
  };
  const auto bits_of = [](const WrongPart& part) {
    const Entry* delta = update_of(part).delta.entry;
    return std::tuple(part.series->elements, delta == nullptr ? 0 : delta->bytes,
                      delta == nullptr ? 0 : delta->checksum);
  };
  std::set<std::tuple<std::int64_t, std::uint64_t, std::uint64_t>> stepped;
  for (const WrongPart& part : parts) {
    if (is_stepped(part)) stepped.insert(bits_of(part));
  }
  std::erase_if(parts, [&](const WrongPart& part) { return !is_stepped(part) && stepped.contains(bits_of(part)); });
}

class StepFindings {
 public:
  StepFindings(const Alignment& alignment, const std::vector<ParameterSeries>& all,
               const std::vector<std::vector<UpdateTally>>& tallies)
      : alignment_(alignment) {
    for (std::size_t i = 0; i < all.size(); ++i) {
      for (std::size_t j = 0; j < all[i].updates.size(); ++j) {
        const RankUpdate& update = all[i].updates[j];
        TensorId id;
        id.iteration = update.iteration;
        id.kind = Kind::kParamDelta;
        id.name = all[i].name;
        LogicalUpdate& logical = updates_[id];
        logical.parts.push_back({&all[i], j, &tallies[i][j]});
      }
    }
    for (auto& [id, logical] : updates_) {
      leave_out_given(logical.parts);
      for (const WrongPart& part : logical.parts) {
        if (logical.reason.empty()) logical.reason = update_of(part).reason;
      }
    }
  }

  StepCheck make() {
    std::map<std::string, bool> parameters;  // name -> all of its updates were checked
    std::map<std::string, std::vector<TensorId>> rests_on, copies_rest_on;
    find_drifts();
    for (const auto& [id, update] : updates_) {
      const auto tensor = alignment_.tensors.find(id);
      if (tensor == alignment_.tensors.end()) continue;  // in part missing: a finding of the alignment
      ++check_.coverage.updates;
      bool& all_checked = parameters.try_emplace(id.name, true).first->second;
      all_checked = all_checked && update.reason.empty();
      if (const OptimizerStep* step = update_of(update.parts.front()).step; step != nullptr) {
        check_.optimizers[id] = step->optimizer;
      }
      add_update(tensor->second, update, rests_on[id.name]);
      add_copy(tensor->second, update, copies_rest_on[id.name]);
    }
    check_.coverage.parameters = static_cast<std::int64_t>(parameters.size());
    check_.coverage.parameters_checked =
        std::count_if(parameters.begin(), parameters.end(), [](const auto& one) { return one.second; });
    return std::move(check_);
  }

 private:
  // Finds the updates that are right in each element, and not in all together.
  void find_drifts() {
    std::map<std::pair<std::int32_t, std::string>, StepGroup> groups;  // by iteration and class
    for (const auto& [id, update] : updates_) {
      const auto tensor = alignment_.tensors.find(id);
      if (tensor == alignment_.tensors.end() || !update.reason.empty()) continue;
      const auto is_wrong = [](const WrongPart& part) { return part.tally->wrong > 0; };
      const auto is_exact = [](const WrongPart& part) { return is_to_the_bit(update_of(part)); };
      if (std::any_of(update.parts.begin(), update.parts.end(), is_wrong) ||
          !std::all_of(update.parts.begin(), update.parts.end(), is_exact)) {
        continue;
      }
      const RankUpdate& first = update_of(update.parts.front());
      groups[{id.iteration, first.step->optimizer}].add(tensor->second, update.parts);
    }
    for (auto& [key, group] : groups) drifts_.merge(group.judge());
  }

  // `rests_on`: what the parameter's update before was computed from.
  void add_update(const LogicalTensor& tensor, const LogicalUpdate& update, std::vector<TensorId>& rests_on) {
    if (!update.reason.empty()) {
      ++check_.coverage.not_checkable[update.reason];
      check_.unchecked[tensor.id] = update.reason;
      check_.findings.push_back(
          finding_about(tensor, Verdict::kUntrusted, Reason::kNotCheckable, "step not checked: " + update.reason));
      return;
    }
    ++check_.coverage.updates_checked;
    check_.coverage.iterations.insert(tensor.id.iteration);
    std::vector<WrongPart> wrong;
    double worst = 0;
    bool goes_on = false;
    for (const WrongPart& part : update.parts) {
      const RankUpdate& one = update_of(part);
      check_.coverage.optimizers.insert(one.step->optimizer);
      if (part.tally->wrong > 0) wrong.push_back(part);
      worst = std::max(worst, part.tally->worst.ratio);
      goes_on = goes_on || one.rolled > 1 || one.skipped;
    }
    if (!wrong.empty()) {
      Finding finding = finding_about(tensor, Verdict::kFail, Reason::kStepDiffers,
                                      describe_wrong_update(tensor, wrong, ++described_ <= kMostDescribed));
      set_ranks(wrong, finding);
      check_.findings.push_back(std::move(finding));
      const auto is_changed_after = [](const WrongPart& part) { return update_of(part).step->changed_after; };
      if (std::ranges::all_of(update.parts, is_changed_after)) check_.changed_after.insert(tensor.id);
      return;
    }
    check_.coverage.worst = std::max(check_.coverage.worst, worst);
    if (const auto drift = drifts_.find(tensor.id); drift != drifts_.end()) {
      Finding finding = finding_about(tensor, Verdict::kFail, Reason::kStepDiffers, drift->second);
      set_ranks(update.parts, finding);
      check_.findings.push_back(std::move(finding));
      return;
    }
    if (!goes_on) rests_on.clear();
    for (const WrongPart& part : update.parts) {
      for (const Kind kind : update_of(part).rests_on) {
        TensorId id = tensor.id;
        id.kind = kind;
        if (std::find(rests_on.begin(), rests_on.end(), id) == rests_on.end()) rests_on.push_back(id);
      }
    }
    check_.rests_on[tensor.id] = rests_on;
    check_.findings.push_back(finding_about(tensor, Verdict::kPass, Reason::kNone,
                                            fmt::format("what its gradient, options and state give, to {:.2g} of what "
                                                        "rounding explains",
                                                        worst)));
  }

  // `rests_on`: what the copy of the iteration before was made of.
  void add_copy(const LogicalTensor& delta, const LogicalUpdate& update, std::vector<TensorId>& rests_on) {
    std::vector<WrongPart> wrong;
    std::int64_t copied = 0, elements = 0;
    for (const WrongPart& part : update.parts) {
      copied += part.tally->copied;
      elements += part.series->elements;
      if (part.tally->wrong_copies > 0) wrong.push_back(part);
    }
    add_what_made_copy(delta, update, rests_on);
    const auto after = alignment_.tensors.find(delta.id.with_kind(Kind::kParamAfter));
    if (copied == 0 || after == alignment_.tensors.end()) return;
    ++check_.coverage.copies_checked;
    if (wrong.empty()) {
      check_.findings.push_back(finding_about(after->second, Verdict::kPass, Reason::kNone, "what the step made"));
      if (copied == elements) check_.rests_on[after->first] = rests_on;
      return;
    }
    Finding finding = finding_about(after->second, Verdict::kFail, Reason::kCopyDiffers,
                                    describe_wrong_copy(delta, wrong, ++described_ <= kMostDescribed));
    set_ranks(wrong, finding);
    check_.findings.push_back(std::move(finding));
    const auto is_updated_itself = [](const WrongPart& part) {
      const RankUpdate& one = update_of(part);
      return one.source == BeforeStep::kRecorded && one.step->master.empty();
    };
    if (std::all_of(wrong.begin(), wrong.end(), is_updated_itself)) {
      check_.changed_beside[after->first] = std::all_of(wrong.begin(), wrong.end(), is_put_back);
    }
  }

  // True where the values are away by no more than two units in the last place of the largest, or one each for a sum and
  // a difference that may be twice as large: what `p += e; p -= e` leaves.
  static bool is_put_back(const WrongPart& part) {
    const Rounding rounding(update_of(part).after.entry->dtype);
    return part.tally->farthest_copy <= 4 * rounding.half_ulp(part.tally->largest_copied);
  }

  // Adds the update, and the value that it was added to: that of this iteration, or what the ones before made of it.
  static void add_what_made_copy(const LogicalTensor& delta, const LogicalUpdate& update,
                                 std::vector<TensorId>& rests_on) {
    const auto is_carried = [](const WrongPart& part) { return update_of(part).source == BeforeStep::kCarried; };
    if (!std::any_of(update.parts.begin(), update.parts.end(), is_carried)) rests_on.clear();
    std::vector<TensorId> added = {delta.id};
    for (const WrongPart& part : update.parts) {
      const RankUpdate& one = update_of(part);
      if (is_carried(part) || !one.before) continue;
      added.push_back(delta.id);
      added.back().kind = one.before.entry->id.kind;
    }
    for (const TensorId& id : added) {
      if (std::find(rests_on.begin(), rests_on.end(), id) == rests_on.end()) rests_on.push_back(id);
    }
  }

  static void set_ranks(const std::vector<WrongPart>& parts, Finding& finding) {
    for (const WrongPart& part : parts) finding.ranks.push_back(part.series->rank->rank);
    std::sort(finding.ranks.begin(), finding.ranks.end());
    finding.ranks.erase(std::unique(finding.ranks.begin(), finding.ranks.end()), finding.ranks.end());
  }

  const Alignment& alignment_;
  std::map<TensorId, LogicalUpdate> updates_;
  std::map<TensorId, std::string> drifts_;  // what is wrong with all elements of an update together
  std::size_t described_ = 0;
  StepCheck check_;
};

}  // namespace

std::uint64_t bytes_of(const ParameterSeries& series) {
  std::vector<StepOperand> operands;
  for (const RankUpdate& update : series.updates) add_operands(update, operands);
  std::uint64_t bytes = 0;
  for (const StepOperand& operand : operands) {
    bytes += static_cast<std::uint64_t>(series.elements * size_of(operand.entry->dtype));
  }
  return bytes;
}

std::vector<std::vector<UpdateTally>> replay_series(std::span<const ParameterSeries* const> all, int threads) {
  std::vector<std::vector<UpdateTally>> tallies(all.size());
  for (std::size_t next = 0; next < all.size();) {
    const std::size_t first = next;
    std::vector<ReplayTask> tasks;
    for (std::uint64_t bytes = 0; next < all.size() && bytes < kBatchBytes; ++next) {
      tallies[next].resize(all[next]->updates.size());
      bytes += bytes_of(*all[next]);
      for (std::int64_t begin = 0; begin < all[next]->elements; begin += kTaskElements) {
        tasks.push_back({next, begin, std::min(begin + kTaskElements, all[next]->elements), {}});
      }
    }
    run_tasks(all, first, next, tasks, threads);
    for (const ReplayTask& task : tasks) {
      for (std::size_t i = 0; i < task.tallies.size(); ++i) tallies[task.series][i].add(task.tallies[i]);
    }
    for (std::size_t i = first; i < next; ++i) release_pages(*all[i]);
  }
  return tallies;
}

StepCheck check_steps(const Trace& trace, const Alignment& alignment, int threads, const Replay* replay) {
  const bool says_of_steps = std::any_of(trace.ranks.begin(), trace.ranks.end(),
                                         [](const RankTrace& rank) { return !rank.optimizer_steps.empty(); });
  if (!says_of_steps) return {};
  std::vector<ParameterSeries> all = find_series(trace, alignment);
  const Replay own = [threads](std::span<const ParameterSeries* const> some) { return replay_series(some, threads); };
  const auto tallies = replay_all(all, replay == nullptr ? own : *replay);
  refuse_what_is_not_finite(all, tallies);
  return StepFindings(alignment, all, tallies).make();
}

}  // namespace ttrace
