// libFuzzer's entry points for all targets; the environment variable TTRACE_FUZZ_TARGET names the one to run. Beside
// crashes it reports inputs that take more memory or time than they may (the bounds are those of
// src/manual/security.md).
#include <sanitizer/allocator_interface.h>
#include <sanitizer/common_interface_defs.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <filesystem>

#include "base/error.h"
#include "target.h"

namespace ttrace::fuzz {
namespace {

constexpr std::int64_t kMostBytes = 64 << 20;  // and four times the input
// Seconds of this processor's time, with sanitizers, which make all several times slower.
constexpr double kMostSeconds = 2, kMostSecondsPerByte = 1e-4;

const Target* target = nullptr;
std::int64_t refused = 0, found = 0, same = 0;
std::atomic<std::int64_t> in_use{0}, peak{0};

void on_malloc(const volatile void*, std::size_t size) {
  const std::int64_t now = in_use += static_cast<std::int64_t>(size);
  if (now > peak) peak = now;
}

void on_free(const volatile void* memory) {
  in_use -= static_cast<std::int64_t>(__sanitizer_get_allocated_size(const_cast<const void*>(memory)));
}

double seconds_of_processor() {
  timespec time{};
  ::clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

[[noreturn]] void fail(const char* word, const std::string& what) {
  std::fprintf(stderr, "\n%s: %s\n", word, what.c_str());
  std::abort();
}

void print_classes() {
  std::fprintf(stderr, "classes: %lld refused, %lld found, %lld same\n", static_cast<long long>(refused),
               static_cast<long long>(found), static_cast<long long>(same));
}

void run(std::string_view input) {
  const std::int64_t before = in_use;
  const double start = seconds_of_processor();
  peak = before;
  try {
    (target->run(input) == Outcome::kSame ? same : found) += 1;
  } catch (const InputError&) {
    ++refused;
  }
  const auto size = static_cast<std::int64_t>(input.size());
  if (peak - before > kMostBytes + 4 * size) fail_promise(std::to_string(peak - before) + " bytes of memory");
  const double seconds = seconds_of_processor() - start;
  if (seconds > kMostSeconds + kMostSecondsPerByte * static_cast<double>(size)) {
    fail("hang", std::to_string(seconds) + " s");
  }
}

}  // namespace

void fail_silent_pass(const std::string& what) { fail("silent pass", what); }
void fail_promise(const std::string& what) { fail("broken promise", what); }

}  // namespace ttrace::fuzz

extern "C" int LLVMFuzzerInitialize(int*, char***) {
  using namespace ttrace::fuzz;
  const char* name = std::getenv("TTRACE_FUZZ_TARGET");
  for (const Target& one : kTargets) {
    if (name == nullptr) std::printf("%.*s\n", static_cast<int>(one.name.size()), one.name.data());
    if (name != nullptr && one.name == name) target = &one;
  }
  if (target == nullptr) std::exit(name == nullptr ? 0 : 2);
  if (std::filesystem::exists("/dev/shm")) ::setenv("TMPDIR", "/dev/shm", /*overwrite=*/0);  // files in memory
  __sanitizer_install_malloc_and_free_hooks(on_malloc, on_free);
  std::atexit(print_classes);
  return 0;
}

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  ttrace::fuzz::run({reinterpret_cast<const char*>(data), size});
  return 0;
}
