#include "team/team.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <exception>
#include <map>
#include <mutex>
#include <optional>
#include <stdexcept>
#include <thread>
#include <utility>

#include "base/error.h"
#include "team/dealer.h"
#include "team/message.h"

namespace ttrace {
namespace {

// A process has its next task before it has done the last one: no time is lost on the way.
constexpr std::size_t kTasksAhead = 2;

enum class Order : std::uint8_t { kWork, kEnd };
enum class Outcome : std::uint8_t { kDone, kInputError, kFailed };

// Waits for messages without taking the core from those that compute, as MPI's own waiting does.
class Patience {
 public:
  void wait() {
    std::this_thread::sleep_for(pause_);
    pause_ = std::min(pause_ * 2, kLongest);
  }
  void reset() { pause_ = kShortest; }

 private:
  static constexpr std::chrono::microseconds kShortest{50}, kLongest{2000};
  std::chrono::microseconds pause_ = kShortest;
};

Message wait_for_message(Communicator& communicator) {
  Patience patience;
  for (;;) {
    if (std::optional<Message> message = communicator.receive()) return std::move(*message);
    patience.wait();
  }
}

// Does some tasks with all processes: process 0's share on a thread, while this one talks to the others.
class Round {
 public:
  Round(Communicator& communicator, const Tasks& tasks, const std::vector<std::string>& nodes)
      : communicator_(communicator), tasks_(tasks), given_(nodes.size()), dealer_(tasks.weights, nodes) {}

  void run() {
    std::thread own([this] { do_own_share(); });
    talk();
    own.join();
    if (!failures_.empty()) std::rethrow_exception(failures_.begin()->second);
  }

 private:
  std::optional<std::size_t> next_task(int process) {
    const std::lock_guard lock(busy_);
    return failures_.empty() ? dealer_.next(process) : std::nullopt;
  }
  void fail(std::size_t task, std::exception_ptr error) {
    const std::lock_guard lock(busy_);
    failures_.emplace(task, std::move(error));
  }

  void do_own_share() {
    while (const std::optional<std::size_t> task = next_task(0)) {
      try {
        tasks_.own(*task);
      } catch (...) {
        fail(*task, std::current_exception());
      }
      const std::lock_guard lock(busy_);
      own_finished_.push_back(*task);
    }
    const std::lock_guard lock(busy_);
    own_share_done_ = true;
  }

  void report_finished() {
    std::vector<std::size_t> finished;
    {
      const std::lock_guard lock(busy_);
      finished.swap(own_finished_);
    }
    if (!tasks_.finished) return;
    for (const std::size_t task : finished) tasks_.finished(task);
  }

  void give_tasks(int process) {
    std::vector<std::size_t>& given = given_[static_cast<std::size_t>(process)];
    while (given.size() < kTasksAhead) {
      const std::optional<std::size_t> task = next_task(process);
      if (!task) return;
      try {
        Packer packer;
        packer(Order::kWork, tasks_.work, *task, tasks_.request(*task));
        communicator_.send(process, packer.take());
        given.push_back(*task);
      } catch (...) {
        fail(*task, std::current_exception());
      }
    }
  }

  void take_answer(const Message& message) {
    Unpacker unpacker(message.bytes);
    std::size_t task = 0;
    Outcome outcome{};
    std::string answer;
    unpacker(task, outcome, answer);
    std::erase(given_[static_cast<std::size_t>(message.from)], task);
    try {
      if (outcome == Outcome::kInputError) throw InputError(answer);
      if (outcome == Outcome::kFailed) throw std::runtime_error(answer);
      tasks_.take(task, std::move(answer));
      if (tasks_.finished) tasks_.finished(task);
    } catch (...) {
      fail(task, std::current_exception());
    }
  }

  bool is_done() {
    const std::lock_guard lock(busy_);
    return own_share_done_ && own_finished_.empty() &&
           std::all_of(given_.begin(), given_.end(), [](const auto& given) { return given.empty(); });
  }

  // Throws nothing: the others are at work, and the thread must not outlive this object.
  void talk() noexcept {
    Patience patience;
    for (int process = 1; process < communicator_.size(); ++process) give_tasks(process);
    while (!is_done()) {
      report_finished();
      std::optional<Message> message = communicator_.receive();
      if (!message) {
        patience.wait();
        continue;
      }
      patience.reset();
      const int from = message->from;
      take_answer(*message);
      give_tasks(from);
    }
  }

  Communicator& communicator_;
  const Tasks& tasks_;
  std::vector<std::vector<std::size_t>> given_;  // by process: tasks without an answer; used by one thread
  std::mutex busy_;                              // of what follows
  Dealer dealer_;
  std::map<std::size_t, std::exception_ptr> failures_;  // by task
  std::vector<std::size_t> own_finished_;               // and not yet reported
  bool own_share_done_ = false;
};

std::string answer_to(Unpacker& order, const Worker& worker) {
  const auto work = order.next<Work>();
  const auto task = order.next<std::size_t>();
  Packer packer;
  packer(task);
  try {
    const std::string answer = worker(work, order.next_view());
    packer(Outcome::kDone, answer);
  } catch (const InputError& error) {
    packer(Outcome::kInputError, std::string_view(error.what()));
  } catch (const std::exception& error) {
    packer(Outcome::kFailed, std::string_view(error.what()));
  }
  return packer.take();
}

}  // namespace

Team::Team(std::unique_ptr<Communicator> communicator, const Identity& identity)
    : communicator_(std::move(communicator)) {
  try {
    require_identity(identity);
  } catch (...) {
    dismiss();  // an object that was not made has no destructor
    throw;
  }
}

Team::~Team() { dismiss(); }

// The others speak first: what they say of themselves is all that a process of another build may be able to read.
void Team::require_identity(const Identity& identity) {
  std::map<int, std::string> objections;
  nodes_.resize(static_cast<std::size_t>(communicator_->size()));
  nodes_[0] = communicator_->host();
  for (int i = 1; i < communicator_->size(); ++i) {
    const Message message = wait_for_message(*communicator_);
    Unpacker unpacker(message.bytes);
    std::string program, arguments, node;
    unpacker(program, arguments, node);
    nodes_[static_cast<std::size_t>(message.from)] = node;
    if (program != identity.program) {
      objections[message.from] = fmt::format("process {} on {} runs {}, process 0 on {} runs {}; expected one program",
                                             message.from, node, program, nodes_[0], identity.program);
    } else if (arguments != identity.arguments) {
      objections[message.from] =
          fmt::format("process {} on {} was given `{}`, process 0 `{}`; expected one command for all processes",
                      message.from, node, arguments, identity.arguments);
    }
  }
  if (!objections.empty()) throw InputError(objections.begin()->second);
}

void Team::deal(const Tasks& tasks) {
  if (size() > 1) {
    Round(*communicator_, tasks, nodes_).run();
    return;
  }
  for (std::size_t task = 0; task < tasks.weights.size(); ++task) {
    tasks.own(task);
    if (tasks.finished) tasks.finished(task);
  }
}

void Team::dismiss() {
  if (!communicator_) return;
  for (int process = 1; process < communicator_->size(); ++process) {
    Packer packer;
    packer(Order::kEnd);
    communicator_->send(process, packer.take());
  }
  communicator_->flush();
  communicator_.reset();
}

void serve(Communicator& communicator, const Identity& identity, const Worker& worker) {
  Packer introduction;
  introduction(identity.program, identity.arguments, communicator.host());
  communicator.send(0, introduction.take());
  communicator.flush();
  for (;;) {
    const Message message = wait_for_message(communicator);
    Unpacker order(message.bytes);
    if (order.next<Order>() == Order::kEnd) return;
    communicator.send(0, answer_to(order, worker));
    communicator.flush();
  }
}

}  // namespace ttrace
