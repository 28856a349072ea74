#include "host/launch.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <netinet/in.h>
#include <signal.h>
#include <spawn.h>
#include <sys/socket.h>
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

#include "base/error.h"

namespace ttrace {
namespace {

constexpr std::array kForwarded = {SIGINT, SIGTERM, SIGHUP};

// What kill(2) takes for each command that runs: its pid, or the negative one of the group it leads; 0: none.
std::array<std::atomic<pid_t>, kMostSideBySide> targets = {};
std::atomic<int> signal_seen{0};

void forward_signal(int signal, siginfo_t* info, void*) {
  const int saved = errno;
  signal_seen = signal;
  for (const pid_t target : targets) {
    // The kernel sends the signal of a terminal's key to the whole foreground group: a command in it has it already.
    if (target < 0 || (target > 0 && info->si_code <= 0)) kill(target, signal);
  }
  errno = saved;
}

// While it lives, signals go to the commands instead of ending this process. Those that come before the first command
// runs, or while one is started, wait.
class SignalForwarding {
 public:
  SignalForwarding() {
    sigemptyset(&forwarded_);
    for (const int signal : kForwarded) sigaddset(&forwarded_, signal);
    sigprocmask(SIG_BLOCK, &forwarded_, &mask_before_);
    struct sigaction action = {};
    action.sa_sigaction = forward_signal;
    action.sa_flags = SA_SIGINFO | SA_RESTART;
    sigemptyset(&action.sa_mask);
    for (std::size_t i = 0; i < kForwarded.size(); ++i) sigaction(kForwarded[i], nullptr, &before_[i]);
    for (std::size_t i = 0; i < kForwarded.size(); ++i) {
      // A signal that nohup has told this process to ignore stays ignored.
      if (before_[i].sa_handler != SIG_IGN) sigaction(kForwarded[i], &action, nullptr);
    }
  }
  ~SignalForwarding() {
    for (std::size_t i = 0; i < kForwarded.size(); ++i) sigaction(kForwarded[i], &before_[i], nullptr);
    for (auto& target : targets) target = 0;
    sigprocmask(SIG_SETMASK, &mask_before_, nullptr);
  }
  SignalForwarding(const SignalForwarding&) = delete;
  SignalForwarding& operator=(const SignalForwarding&) = delete;

  // Lets signals wait, until the next call of `add`.
  void block() { sigprocmask(SIG_BLOCK, &forwarded_, nullptr); }
  // Forwards signals to this command, too, first those that have waited. `target` is 0 where it could not be started.
  void add(pid_t target) {
    *std::find(targets.begin(), targets.end(), 0) = target;
    sigprocmask(SIG_SETMASK, &mask_before_, nullptr);
  }
  void remove(pid_t target) { *std::find(targets.begin(), targets.end(), target) = 0; }
  const sigset_t& mask_before() const { return mask_before_; }

 private:
  sigset_t mask_before_ = {}, forwarded_ = {};
  std::array<struct sigaction, kForwarded.size()> before_ = {};
};

std::vector<char*> pointers(std::vector<std::string>& texts) {
  std::vector<char*> result;
  for (std::string& text : texts) result.push_back(text.data());
  result.push_back(nullptr);
  return result;
}

// This process's variables and the added ones, without the key.
std::vector<std::string> environment_with(const std::vector<std::string>& added) {
  std::vector<std::string> all = added;
  const std::string key = std::string(kSealKeyVariable) + "=";
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string_view text(*entry);
    bool replaced = text.starts_with(key);
    for (const std::string& other : added) replaced |= text.starts_with(other.substr(0, other.find('=') + 1));
    if (!replaced) all.emplace_back(text);
  }
  return all;
}

// Whether the command leads a group of processes, so that a signal reaches what a shell or a launcher has started, too.
// One that may talk to a terminal stays in this process's group: in another it would be stopped when it reads.
bool leads_group(const Launch& launch, const std::string& log) {
  return launch.in_own_group && (!log.empty() || launch.timeout.count() > 0 || isatty(STDIN_FILENO) == 0);
}

struct Spawned {
  pid_t pid = 0;
  pid_t target = 0;  // for kill(2)
  int error = 0;     // of errno; then there is no process
};

// Where `log` is not empty, the command's stdout and stderr go there.
Spawned spawn(std::vector<std::string> command, const Launch& launch, const sigset_t& mask,
              const std::string& log = "") {
  const bool in_group = leads_group(launch, log);
  std::vector<std::string> variables = environment_with(launch.environment);
  posix_spawnattr_t attributes;
  posix_spawnattr_init(&attributes);
  posix_spawnattr_setsigmask(&attributes, &mask);
  posix_spawnattr_setpgroup(&attributes, 0);
  posix_spawnattr_setflags(&attributes,
                           in_group ? POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETPGROUP : POSIX_SPAWN_SETSIGMASK);
  posix_spawn_file_actions_t files;
  posix_spawn_file_actions_init(&files);
  if (launch.stdout_to_stderr) posix_spawn_file_actions_adddup2(&files, STDERR_FILENO, STDOUT_FILENO);
  if (!launch.directory.empty()) {
#if __GLIBC_PREREQ(2, 29)
    posix_spawn_file_actions_addchdir_np(&files, launch.directory.c_str());
#else  // the wheel's, which is to run on RHEL 8
    command.insert(command.begin(), {"env", "--chdir=" + launch.directory});
#endif
  }
  if (!log.empty()) {
    posix_spawn_file_actions_addopen(&files, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
    posix_spawn_file_actions_addopen(&files, STDOUT_FILENO, log.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0666);
    posix_spawn_file_actions_adddup2(&files, STDOUT_FILENO, STDERR_FILENO);
  }
  pid_t pid = 0;
  const int error =
      posix_spawnp(&pid, command[0].c_str(), &files, &attributes, pointers(command).data(), pointers(variables).data());
  posix_spawn_file_actions_destroy(&files);
  posix_spawnattr_destroy(&attributes);
  if (error != 0) return {0, 0, error};
  return {pid, in_group ? -pid : pid, 0};
}

// Waits for the child, or with -1 for any, and returns its id; 0 or less where there was none, or a signal came.
pid_t wait_for(pid_t pid, const std::function<void()>& on_second, int& status) {
  for (int ticks = 1;; ++ticks) {
    const pid_t ended = waitpid(pid, &status, on_second ? WNOHANG : 0);
    if (ended != 0) return ended;
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    if (ticks % 20 == 0) on_second();
  }
}

CommandResult could_not_start(int error) { return {error == ENOENT ? 127 : 126, std::strerror(error), false}; }

CommandResult result_of(int status) {
  if (WIFSIGNALED(status)) {
    const int signal = WTERMSIG(status);
    return {128 + signal, fmt::format("was killed by signal {} ({})", signal, strsignal(signal))};
  }
  const int code = WEXITSTATUS(status);
  return {code, code == 0 ? "" : fmt::format("exited with code {}", code)};
}

CommandResult too_late(std::chrono::seconds limit) {
  return {kExitTimeout, fmt::format("did not end within {} s", limit.count())};
}

// Stops a command that takes too long: politely first, so that a launcher can stop what it has started.
class TimeLimit {
 public:
  TimeLimit(pid_t target, std::chrono::seconds limit) : target_(target), limit_(limit) {}

  void enforce() {
    if (limit_.count() == 0) return;
    constexpr std::chrono::seconds kGrace{10};
    const auto elapsed = std::chrono::steady_clock::now() - start_;
    if (elapsed >= limit_ && !exceeded_) kill(target_, SIGTERM);
    if (elapsed >= limit_ + kGrace) kill(target_, SIGKILL);
    exceeded_ = elapsed >= limit_;
  }
  bool exceeded() const { return exceeded_; }

 private:
  pid_t target_;
  std::chrono::seconds limit_;
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
  bool exceeded_ = false;
};

}  // namespace

int interrupted_by() { return signal_seen; }

CommandResult run_command(const std::vector<std::string>& command, const Launch& launch) {
  SignalForwarding signals;
  const auto [pid, target, error] = spawn(command, launch, signals.mask_before());
  if (error != 0) return could_not_start(error);
  signals.add(target);
  TimeLimit limit(target, launch.timeout);
  std::function<void()> on_second = launch.on_second;
  if (launch.timeout.count() > 0) {
    on_second = [&] {
      limit.enforce();
      if (launch.on_second) launch.on_second();
    };
  }
  int status = 0;
  while (wait_for(pid, on_second, status) != pid) {
  }
  if (limit.exceeded()) return too_late(launch.timeout);
  return result_of(status);
}

CommandResult run_beside(const LoggedCommand& command) {
  sigset_t no_signals;
  sigemptyset(&no_signals);
  Launch launch;
  launch.environment = command.environment;
  const Spawned spawned = spawn(command.command, launch, no_signals, command.log);
  if (spawned.error != 0) return could_not_start(spawned.error);
  TimeLimit limit(spawned.target, command.timeout);
  int status = 0;
  while (wait_for(spawned.pid, [&] { limit.enforce(); }, status) != spawned.pid) {
  }
  return limit.exceeded() ? too_late(command.timeout) : result_of(status);
}

void run_side_by_side(const std::vector<LoggedCommand>& commands, std::size_t jobs, const SideBySideEvents& events) {
  struct Running {
    std::size_t index;  // among `commands`
    pid_t target;       // for kill(2)
    TimeLimit limit;
  };
  SignalForwarding signals;
  std::map<pid_t, Running> running;
  bool stopped = false;
  const auto command_ended = [&](std::size_t index, const CommandResult& result) {
    if (stopped || events.on_end(index, result)) return;
    stopped = true;
    for (const auto& [_, command] : running) kill(command.target, SIGTERM);
  };
  const auto on_second = [&] {
    for (auto& [_, command] : running) command.limit.enforce();
    if (events.on_second) events.on_second();
  };
  for (std::size_t next = 0; !running.empty() || (!stopped && next < commands.size());) {
    if (!stopped && next < commands.size() && running.size() < jobs) {
      const LoggedCommand& command = commands[next];
      signals.block();
      Launch launch;
      launch.environment = command.environment;
      const auto [pid, target, error] = spawn(command.command, launch, signals.mask_before(), command.log);
      signals.add(target);
      if (error == 0) {
        running.emplace(pid, Running{next, target, TimeLimit(target, command.timeout)});
        events.on_start(next);
      } else {
        command_ended(next, could_not_start(error));
      }
      ++next;
      continue;
    }
    int status = 0;
    const auto found = running.find(wait_for(-1, on_second, status));
    if (found == running.end()) continue;
    const auto [index, target, limit] = found->second;
    signals.remove(target);
    running.erase(found);
    command_ended(index, limit.exceeded() ? too_late(commands[index].timeout) : result_of(status));
  }
}

int free_port() {
  const int descriptor = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof(address);
  const bool has_port = descriptor >= 0 && bind(descriptor, reinterpret_cast<sockaddr*>(&address), size) == 0 &&
                        getsockname(descriptor, reinterpret_cast<sockaddr*>(&address), &size) == 0;
  const int error = errno;
  if (descriptor >= 0) close(descriptor);
  if (!has_port)
    throw InputError(fmt::format("no free TCP port: {}; expected one for each command", std::strerror(error)));
  return ntohs(address.sin_port);
}

}  // namespace ttrace
