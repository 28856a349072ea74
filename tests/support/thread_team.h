// A team whose processes are threads of the test.
#pragma once

#include <atomic>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "team/team.h"

namespace ttrace::test {

class ThreadCommunicator : public Communicator {
 public:
  struct Mailboxes {
    std::mutex busy;
    std::vector<std::deque<Message>> of_process;
  };
  ThreadCommunicator(std::shared_ptr<Mailboxes> mailboxes, int rank) : mailboxes_(std::move(mailboxes)), rank_(rank) {}

  int rank() const override { return rank_; }
  int size() const override { return static_cast<int>(mailboxes_->of_process.size()); }
  std::string host() const override { return "node-" + std::to_string(rank_ / 2); }
  void send(int to, std::string bytes) override {
    const std::lock_guard lock(mailboxes_->busy);
    mailboxes_->of_process[static_cast<std::size_t>(to)].push_back({rank_, std::move(bytes)});
  }
  void flush() override {}
  std::optional<Message> receive() override {
    const std::lock_guard lock(mailboxes_->busy);
    std::deque<Message>& own = mailboxes_->of_process[static_cast<std::size_t>(rank_)];
    if (own.empty()) return std::nullopt;
    Message message = std::move(own.front());
    own.pop_front();
    return message;
  }

 private:
  std::shared_ptr<Mailboxes> mailboxes_;
  int rank_;
};

// Runs `command` as process 0 of `size`, and returns how many of the others were dismissed. `make_worker` is called
// once for each.
template <class MakeWorker, class Command>
int run_in_threads(int size, const MakeWorker& make_worker, const Command& command,
                   const std::vector<Identity>& identities = {}) {
  const auto mailboxes = std::make_shared<ThreadCommunicator::Mailboxes>();
  mailboxes->of_process.resize(static_cast<std::size_t>(size));
  const auto identity_of = [&](int rank) {
    return identities.empty() ? Identity{"ttrace", "check"} : identities[static_cast<std::size_t>(rank)];
  };
  std::atomic<int> dismissed = 0;
  std::vector<std::jthread> others;
  for (int rank = 1; rank < size; ++rank) {
    others.emplace_back([&, rank] {
      ThreadCommunicator communicator(mailboxes, rank);
      serve(communicator, identity_of(rank), make_worker());
      ++dismissed;
    });
  }
  {
    Team team(std::make_unique<ThreadCommunicator>(mailboxes, 0), identity_of(0));
    command(team);
  }
  others.clear();  // joins
  return dismissed;
}

}  // namespace ttrace::test
