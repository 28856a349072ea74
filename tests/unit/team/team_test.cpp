// Several processes at one command.
#include "team/team.h"

#include <doctest/doctest.h>

#include <atomic>
#include <chrono>
#include <set>
#include <stdexcept>

#include "base/error.h"
#include "support/thread_team.h"
#include "team/dealer.h"
#include "team/launcher.h"
#include "team/message.h"

namespace {

using namespace ttrace;
using namespace ttrace::test;

// Answers "3" with "3!".
Worker exclaiming() {
  return [](Work, std::string_view request) { return std::string(request) + "!"; };
}

std::string name_of_task(std::size_t task) { return std::to_string(task); }

// Tasks whose results are put into `results`, by whichever process.
Tasks exclaimed(std::size_t count, std::vector<std::string>& results) {
  results.resize(count);
  Tasks tasks;
  tasks.weights.assign(count, 1);
  tasks.own = [&results](std::size_t task) { results[task] = name_of_task(task) + "!"; };
  tasks.request = name_of_task;
  tasks.take = [&results](std::size_t task, std::string answer) { results[task] = std::move(answer); };
  return tasks;
}

}  // namespace

TEST_SUITE("team") {
  TEST_CASE("every task is done once, in whichever process") {
    for (const int size : {1, 2, 3, 5}) {
      for (const std::size_t count : {0, 1, 2, 40}) {
        std::vector<std::string> results;
        std::multiset<std::size_t> finished;
        const auto command = [&](Team& team) {
          Tasks tasks = exclaimed(count, results);
          tasks.finished = [&](std::size_t task) { finished.insert(task); };
          team.deal(tasks);
          team.dismiss();
        };
        if (size == 1) {
          Team alone;
          command(alone);
        } else {
          CHECK(run_in_threads(size, exclaiming, command) == size - 1);
        }
        REQUIRE(finished.size() == count);
        for (std::size_t task = 0; task < count; ++task) {
          CHECK(results[task] == name_of_task(task) + "!");
          CHECK(finished.count(task) == 1);
        }
      }
    }
  }

  TEST_CASE("others do their share while process 0 is at a long task") {
    std::vector<std::string> results;
    std::set<std::size_t> own;
    run_in_threads(2, exclaiming, [&](Team& team) {
      Tasks tasks = exclaimed(20, results);
      tasks.own = [&](std::size_t task) {
        std::this_thread::sleep_for(std::chrono::milliseconds(200));
        own.insert(task);
      };
      team.deal(tasks);
    });
    CHECK(own.size() < 5);
  }

  TEST_CASE("an error of another process is thrown in process 0, as what it was, and the others are dismissed") {
    const auto failing = [] {
      return [](Work, std::string_view request) -> std::string {
        if (request.size() == 1) throw InputError("file " + std::string(request) + " is damaged");
        throw std::logic_error("impossible");
      };
    };
    const auto run = [&](std::size_t first_task, std::string& message) {
      return run_in_threads(3, failing, [&](Team& team) {
        std::vector<std::string> results;
        Tasks tasks = exclaimed(4, results);
        tasks.own = [](std::size_t) { std::this_thread::sleep_for(std::chrono::milliseconds(50)); };
        tasks.request = [&](std::size_t task) { return name_of_task(first_task + task); };
        try {
          team.deal(tasks);
        } catch (const InputError& error) {
          message = error.what();
        } catch (const std::runtime_error& error) {
          message = std::string("unexpected: ") + error.what();
        }
      });
    };
    std::string message;
    CHECK(run(0, message) == 2);
    CHECK(message.starts_with("file "));
    run(10, message);
    CHECK(message == "unexpected: impossible");
  }

  TEST_CASE("an error of process 0's own share, or in making a task, is thrown") {
    std::vector<std::string> results;
    for (const bool is_own : {false, true}) {
      std::atomic<bool> failed = false;
      // The other process leaves process 0 its share.
      const auto waiting = [&failed] {
        return [&failed](Work, std::string_view request) {
          failed.wait(false);
          return std::string(request) + "!";
        };
      };
      run_in_threads(2, waiting, [&](Team& team) {
        Tasks tasks = exclaimed(10, results);
        const auto fail = [&failed](std::size_t) -> std::string {
          failed = true;
          failed.notify_all();
          throw InputError("no");
        };
        if (is_own) {
          tasks.own = fail;
        } else {
          tasks.request = fail;
        }
        CHECK_THROWS_WITH_AS(team.deal(tasks), "no", InputError);
      });
    }
  }

  TEST_CASE("another program, or other arguments, are one error for all") {
    const auto error_of = [](const Identity& other) {
      std::string message;
      try {
        run_in_threads(3, exclaiming, [](Team&) {}, {{"ttrace 1", "check a"}, {"ttrace 1", "check a"}, other});
      } catch (const InputError& error) {
        message = error.what();
      }
      return message;
    };
    CHECK(error_of({"ttrace 1", "check a"}).empty());
    CHECK(error_of({"ttrace 2", "check a"}) ==
          "process 2 on node-1 runs ttrace 2, process 0 on node-0 runs ttrace 1; expected one program");
    CHECK(error_of({"ttrace 1", "check b"}) ==
          "process 2 on node-1 was given `check b`, process 0 `check a`; expected one command for all processes");
  }

  TEST_CASE("a process does its own stretch in order, and helps its own node first, from the end") {
    const std::vector<std::uint64_t> weights(12, 10);
    Dealer dealer(weights, {"a", "a", "b", "b"});
    for (const std::size_t task : {0, 1, 2}) CHECK(dealer.next(0) == task);
    CHECK(dealer.next(2) == 6);
    CHECK(dealer.next(0) == 5);  // of process 1, though process 3 has as many left
    CHECK(dealer.next(1) == 3);
    CHECK(dealer.next(1) == 4);
    CHECK(dealer.next(1) == 11);  // none is left on node a
    std::set<std::size_t> rest;
    while (const std::optional<std::size_t> task = dealer.next(3)) CHECK(rest.insert(*task).second);
    CHECK(rest == std::set<std::size_t>{7, 8, 9, 10});
    CHECK(dealer.next(0) == std::nullopt);
  }

  TEST_CASE("stretches have about the same weight, and a task without weight is dealt, too") {
    Dealer dealer(std::vector<std::uint64_t>{100, 0, 0, 50, 50}, {"a", "b"});
    CHECK(dealer.next(1) == 2);
    for (const std::size_t task : {0, 1, 4, 3}) CHECK(dealer.next(0) == task);
    CHECK(dealer.next(1) == std::nullopt);
  }

  TEST_CASE("what is packed is unpacked, and a message that was cut is refused") {
    const std::map<std::int32_t, double> shares = {{1, 0.5}, {7, -0.0}};
    Packer packer;
    packer(std::int32_t{-3}, std::string("name"), std::vector<double>{1.5, 2.5}, shares,
           std::optional<std::vector<std::int64_t>>(), std::vector<std::string>{"", "b"});
    std::int32_t number = 0;
    std::string text;
    std::vector<double> values;
    std::map<std::int32_t, double> unpacked_shares;
    std::optional<std::vector<std::int64_t>> nothing = std::vector<std::int64_t>{1};
    std::vector<std::string> texts;
    Unpacker unpacker(packer.bytes());
    unpacker(number, text, values, unpacked_shares, nothing, texts);
    CHECK(number == -3);
    CHECK(text == "name");
    CHECK(values == std::vector<double>{1.5, 2.5});
    CHECK(unpacked_shares == shares);
    CHECK(!nothing);
    CHECK(texts == std::vector<std::string>{"", "b"});
    CHECK(unpacker.at_end());
    for (std::size_t size = 0; size < packer.bytes().size(); ++size) {
      Unpacker cut(std::string_view(packer.bytes()).substr(0, size));
      CHECK_THROWS_AS(cut(number, text, values, unpacked_shares, nothing, texts), std::logic_error);
    }
  }

  TEST_CASE("the launchers' variables say rank and size, and a batch script's do not") {
    const auto of = [](std::map<std::string, std::string> variables) {
      const Launched found = launched([&](const char* name) -> std::optional<std::string> {
        const auto variable = variables.find(name);
        return variable == variables.end() ? std::nullopt : std::optional(variable->second);
      });
      return std::pair(found.rank, found.size);
    };
    CHECK(of({}) == std::pair(0, 1));
    CHECK(of({{"OMPI_COMM_WORLD_RANK", "2"}, {"OMPI_COMM_WORLD_SIZE", "4"}}) == std::pair(2, 4));
    CHECK(of({{"PMI_RANK", "0"}, {"PMI_SIZE", "3"}}) == std::pair(0, 3));
    CHECK(of({{"SLURM_PROCID", "1"}, {"SLURM_STEP_NUM_TASKS", "2"}}) == std::pair(1, 2));
    CHECK(of({{"SLURM_PROCID", "0"}, {"SLURM_NTASKS", "8"}}) == std::pair(0, 1));
    CHECK(of({{"OMPI_COMM_WORLD_RANK", "x"}, {"OMPI_COMM_WORLD_SIZE", "4"}}) == std::pair(0, 1));
    CHECK(of({{"OMPI_COMM_WORLD_RANK", "4"}, {"OMPI_COMM_WORLD_SIZE", "4"}}) == std::pair(0, 1));
    CHECK(of({{"TTRACE_ALONE", "1"}, {"OMPI_COMM_WORLD_RANK", "2"}, {"OMPI_COMM_WORLD_SIZE", "4"}}) == std::pair(0, 1));
  }
}
