// Times the verification of a recorded product: A, B and C, row-major, are files that another program wrote.
// Usage: abft_verify DIRECTORY DTYPE M K N THREADS ROUNDS; prints JSON.
#include <fcntl.h>
#include <fmt/format.h>
#include <omp.h>
#include <sys/mman.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <span>
#include <string>
#include <vector>

#include "abft/verify.h"

namespace {

using namespace ttrace;

// Read once, so that what is timed is memory and not a disk; to large pages, as those of `memory_read`.
std::span<const std::byte> read_file(const std::string& path, std::int64_t bytes) {
  constexpr std::size_t kPage = std::size_t{2} << 20;
  const std::size_t size = (static_cast<std::size_t>(bytes) + kPage - 1) / kPage * kPage;
  auto* data = static_cast<std::byte*>(std::aligned_alloc(kPage, size));
  if (data == nullptr) std::exit(2);
  ::madvise(data, size, MADV_HUGEPAGE);
  const int file = ::open(path.c_str(), O_RDONLY);
  std::int64_t done = 0;
  while (file >= 0 && done < bytes) {
    const auto got = ::read(file, data + done, static_cast<std::size_t>(bytes - done));
    if (got <= 0) break;
    done += got;
  }
  ::close(file);
  if (done < bytes) {
    fmt::print(stderr, "abft_verify: {}: has not the {} bytes of the matrix\n", path, bytes);
    std::exit(2);
  }
  return {data, static_cast<std::size_t>(bytes)};
}

double seconds_now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 8) return 2;
  const std::string directory = argv[1];
  const auto dtype = dtype_from_name(argv[2]);
  if (!dtype) return 2;
  const std::int64_t m = std::atoll(argv[3]), k = std::atoll(argv[4]), n = std::atoll(argv[5]), width = size_of(*dtype);
  omp_set_num_threads(std::atoi(argv[6]));
  const std::span<const std::byte> a = read_file(directory + "/a", m * k * width),
                                   b = read_file(directory + "/b", k * n * width),
                                   c = read_file(directory + "/c", m * n * width);
  const abft::Product product = {{{abft::row_major(a.data(), *dtype, m, k), abft::row_major(b.data(), *dtype, k, n)}},
                                 abft::row_major(c.data(), *dtype, m, n)};
  std::vector<double> seconds;
  abft::Verification result;
  for (int round = 0; round < std::atoi(argv[7]); ++round) {
    const double start = seconds_now();
    result = abft::verify(product);
    seconds.push_back(seconds_now() - start);
  }
  fmt::print("{{\"seconds\": [{}], \"verified\": {}, \"largest_ratio\": {}}}\n", fmt::join(seconds, ", "),
             result.outcome == abft::Outcome::kVerified, result.largest_ratio);
}
