#include "cli/launch.h"

#include <fmt/format.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <thread>

namespace ttrace::cli {
namespace {

constexpr std::array kPassedOn = {SIGINT, SIGTERM, SIGHUP};

std::atomic<pid_t> command_pid{0};
std::atomic<int> signal_seen{0};

void pass_on(int signal, siginfo_t* info, void*) {
  const int saved = errno;
  signal_seen = signal;
  const pid_t pid = command_pid;
  // What the kernel sends for a key of the terminal, the whole foreground group gets.
  if (pid > 0 && info->si_code <= 0) kill(pid, signal);
  errno = saved;
}

// While it lives, signals go to the command instead of ending this process. Those that come before the
// command runs wait.
class SignalsPassedOn {
 public:
  SignalsPassedOn() {
    sigset_t blocked;
    sigemptyset(&blocked);
    for (const int signal : kPassedOn) sigaddset(&blocked, signal);
    sigprocmask(SIG_BLOCK, &blocked, &mask_);
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
    command_pid = 0;
    sigprocmask(SIG_SETMASK, &mask_, nullptr);
  }
  SignalsPassedOn(const SignalsPassedOn&) = delete;
  SignalsPassedOn& operator=(const SignalsPassedOn&) = delete;

  void to(pid_t pid) {
    command_pid = pid;
    sigprocmask(SIG_SETMASK, &mask_, nullptr);
  }
  const sigset_t& mask() const { return mask_; }

 private:
  sigset_t mask_ = {};
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

// 0, or errno.
int spawn(std::vector<std::string> command, const Launch& how, const sigset_t& mask, pid_t& pid) {
  std::vector<std::string> variables = environment_with(how.environment);
  posix_spawn_file_actions_t files;
  posix_spawn_file_actions_init(&files);
  if (how.stdout_to_stderr) posix_spawn_file_actions_adddup2(&files, STDERR_FILENO, STDOUT_FILENO);
  if (!how.directory.empty()) posix_spawn_file_actions_addchdir_np(&files, how.directory.c_str());
  posix_spawnattr_t attributes;
  posix_spawnattr_init(&attributes);
  posix_spawnattr_setsigmask(&attributes, &mask);
  posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGMASK);
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

}  // namespace

int interrupted_by() { return signal_seen; }

Outcome run_command(const std::vector<std::string>& command, const Launch& how) {
  SignalsPassedOn signals;
  pid_t pid = 0;
  if (const int error = spawn(command, how, signals.mask(), pid); error != 0) {
    return {error == ENOENT ? 127 : 126, std::strerror(error), false};
  }
  signals.to(pid);
  const int status = wait_for(pid, how.on_second);
  if (WIFSIGNALED(status)) {
    const int signal = WTERMSIG(status);
    return {128 + signal, fmt::format("was killed by signal {} ({})", signal, strsignal(signal))};
  }
  const int code = WEXITSTATUS(status);
  return {code, code == 0 ? "" : fmt::format("exited with code {}", code)};
}

}  // namespace ttrace::cli
