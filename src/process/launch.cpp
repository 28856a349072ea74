#include "process/launch.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <map>
#include <thread>

namespace ttrace {
namespace {

constexpr std::array kPassedOn = {SIGINT, SIGTERM, SIGHUP};

std::array<std::atomic<pid_t>, kMostSideBySide> command_pids = {};  // of the commands that run; 0: none
std::atomic<int> signal_seen{0};

void pass_on(int signal, siginfo_t* info, void*) {
  const int saved = errno;
  signal_seen = signal;
  for (const auto& command_pid : command_pids) {
    const pid_t pid = command_pid;
    // What the kernel sends for a key of the terminal, the whole foreground group gets.
    if (pid > 0 && info->si_code <= 0) kill(pid, signal);
  }
  errno = saved;
}

// While it lives, signals go to the commands instead of ending this process. Those that come before the
// first command runs, or while one is started, wait.
class SignalsPassedOn {
 public:
  SignalsPassedOn() {
    sigemptyset(&passed_on_);
    for (const int signal : kPassedOn) sigaddset(&passed_on_, signal);
    sigprocmask(SIG_BLOCK, &passed_on_, &mask_);
    struct sigaction action = {};
    action.sa_sigaction = pass_on;
    action.sa_flags = SA_SIGINFO | SA_RESTART;
    sigemptyset(&action.sa_mask);
    for (std::size_t i = 0; i < kPassedOn.size(); ++i) sigaction(kPassedOn[i], nullptr, &before_[i]);
    for (std::size_t i = 0; i < kPassedOn.size(); ++i) {
      // What nohup has told us to ignore stays ignored.
      if (before_[i].sa_handler != SIG_IGN) sigaction(kPassedOn[i], &action, nullptr);
    }
  }
  ~SignalsPassedOn() {
    for (std::size_t i = 0; i < kPassedOn.size(); ++i) sigaction(kPassedOn[i], &before_[i], nullptr);
    for (auto& pid : command_pids) pid = 0;
    sigprocmask(SIG_SETMASK, &mask_, nullptr);
  }
  SignalsPassedOn(const SignalsPassedOn&) = delete;
  SignalsPassedOn& operator=(const SignalsPassedOn&) = delete;

  void hold() { sigprocmask(SIG_BLOCK, &passed_on_, nullptr); }
  void to(pid_t pid) {
    *std::find(command_pids.begin(), command_pids.end(), 0) = pid;
    sigprocmask(SIG_SETMASK, &mask_, nullptr);
  }
  void no_more_to(pid_t pid) { *std::find(command_pids.begin(), command_pids.end(), pid) = 0; }
  const sigset_t& mask() const { return mask_; }

 private:
  sigset_t mask_ = {}, passed_on_ = {};
  std::array<struct sigaction, kPassedOn.size()> before_ = {};
};

std::vector<char*> pointers(std::vector<std::string>& texts) {
  std::vector<char*> result;
  for (std::string& text : texts) result.push_back(text.data());
  result.push_back(nullptr);
  return result;
}

std::vector<std::string> environment_with(const std::vector<std::string>& added) {
  std::vector<std::string> all = added;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string_view text(*entry);
    bool replaced = false;
    for (const std::string& other : added) replaced |= text.starts_with(other.substr(0, other.find('=') + 1));
    if (!replaced) all.emplace_back(text);
  }
  return all;
}

// 0, or errno. Where `log` is not empty, it is the command's stdout and stderr.
int spawn(std::vector<std::string> command, const Launch& how, const sigset_t& mask, const std::string& log,
          pid_t& pid) {
  std::vector<std::string> variables = environment_with(how.environment);
  posix_spawnattr_t attributes;
  posix_spawnattr_init(&attributes);
  posix_spawnattr_setsigmask(&attributes, &mask);
  posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGMASK);
  posix_spawn_file_actions_t files;
  posix_spawn_file_actions_init(&files);
  if (how.stdout_to_stderr) posix_spawn_file_actions_adddup2(&files, STDERR_FILENO, STDOUT_FILENO);
  if (!how.directory.empty()) posix_spawn_file_actions_addchdir_np(&files, how.directory.c_str());
  if (!log.empty()) {
    posix_spawn_file_actions_addopen(&files, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
    posix_spawn_file_actions_addopen(&files, STDOUT_FILENO, log.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0666);
    posix_spawn_file_actions_adddup2(&files, STDOUT_FILENO, STDERR_FILENO);
  }
  const int error =
      posix_spawnp(&pid, command[0].c_str(), &files, &attributes, pointers(command).data(), pointers(variables).data());
  posix_spawn_file_actions_destroy(&files);
  posix_spawnattr_destroy(&attributes);
  return error;
}

int wait_for(pid_t pid, const std::function<void()>& on_second) {
  int status = 0;
  for (int ticks = 1;; ++ticks) {
    const pid_t ended = waitpid(pid, &status, on_second ? WNOHANG : 0);
    if (ended == pid) return status;
    if (ended == 0) {
      std::this_thread::sleep_for(std::chrono::milliseconds(50));
      if (ticks % 20 == 0) on_second();
    }
  }
}

Outcome could_not_start(int error) { return {error == ENOENT ? 127 : 126, std::strerror(error), false}; }

Outcome outcome_of(int status) {
  if (WIFSIGNALED(status)) {
    const int signal = WTERMSIG(status);
    return {128 + signal, fmt::format("was killed by signal {} ({})", signal, strsignal(signal))};
  }
  const int code = WEXITSTATUS(status);
  return {code, code == 0 ? "" : fmt::format("exited with code {}", code)};
}

}  // namespace

int interrupted_by() { return signal_seen; }

Outcome run_command(const std::vector<std::string>& command, const Launch& how) {
  SignalsPassedOn signals;
  pid_t pid = 0;
  if (const int error = spawn(command, how, signals.mask(), "", pid); error != 0) return could_not_start(error);
  signals.to(pid);
  return outcome_of(wait_for(pid, how.on_second));
}

void run_side_by_side(const std::vector<LoggedCommand>& commands, std::size_t jobs,
                      const std::function<void(std::size_t, const Outcome&)>& on_end) {
  SignalsPassedOn signals;
  std::map<pid_t, std::size_t> running;  // -> place among `commands`
  bool failed = false;
  const auto end = [&](std::size_t which, const Outcome& outcome) {
    if (failed) return;  // it was stopped
    failed = !outcome.failure.empty();
    on_end(which, outcome);
    if (!failed) return;
    for (const auto& [pid, _] : running) kill(pid, SIGTERM);
  };
  for (std::size_t next = 0; !running.empty() || (!failed && next < commands.size());) {
    if (!failed && next < commands.size() && running.size() < jobs) {
      signals.hold();
      pid_t pid = 0;
      const int error = spawn(commands[next].command, {}, signals.mask(), commands[next].log, pid);
      signals.to(pid);
      if (error == 0) {
        running[pid] = next;
      } else {
        end(next, could_not_start(error));
      }
      ++next;
      continue;
    }
    int status = 0;
    const pid_t pid = waitpid(-1, &status, 0);
    const auto found = running.find(pid);
    if (found == running.end()) continue;
    const std::size_t which = found->second;
    signals.no_more_to(pid);
    running.erase(found);
    end(which, outcome_of(status));
  }
}

}  // namespace ttrace
