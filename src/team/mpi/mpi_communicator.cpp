// Messages over MPI. A module of its own, which the program loads where a launcher has started several processes: an
// ordinary start does not pay for MPI, and a machine without MPI does not miss it.
#include <mpi.h>

#include <algorithm>
#include <cstdint>
#include <list>
#include <vector>

#include "team/communicator.h"

namespace ttrace {
namespace {

constexpr int kSizeTag = 1, kBytesTag = 2;
constexpr std::size_t kMostAtOnce = std::size_t{1} << 30;  // MPI counts bytes in an int

// A message is its size, and then its bytes in parts of at most `kMostAtOnce`.
class MpiCommunicator : public Communicator {
 public:
  MpiCommunicator() {
    // Whichever thread computes, one talks. Errors of MPI end all processes, with MPI's own message.
    int provided = 0;
    MPI_Init_thread(nullptr, nullptr, MPI_THREAD_FUNNELED, &provided);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank_);
    MPI_Comm_size(MPI_COMM_WORLD, &size_);
  }
  ~MpiCommunicator() override {
    flush();
    MPI_Finalize();
  }
  MpiCommunicator(const MpiCommunicator&) = delete;
  MpiCommunicator& operator=(const MpiCommunicator&) = delete;

  int rank() const override { return rank_; }
  int size() const override { return size_; }
  std::string host() const override {
    char name[MPI_MAX_PROCESSOR_NAME];
    int length = 0;
    MPI_Get_processor_name(name, &length);
    return {name, static_cast<std::size_t>(length)};
  }

  void send(int to, std::string bytes) override {
    Sending& sending = sending_.emplace_back();
    sending.bytes = std::move(bytes);
    sending.size = sending.bytes.size();
    MPI_Isend(&sending.size, 1, MPI_UINT64_T, to, kSizeTag, MPI_COMM_WORLD, &sending.requests.emplace_back());
    for (std::size_t begin = 0; begin < sending.bytes.size(); begin += kMostAtOnce) {
      const auto count = static_cast<int>(std::min(kMostAtOnce, sending.bytes.size() - begin));
      MPI_Isend(sending.bytes.data() + begin, count, MPI_BYTE, to, kBytesTag, MPI_COMM_WORLD,
                &sending.requests.emplace_back());
    }
  }

  void flush() override {
    for (Sending& sending : sending_) {
      MPI_Waitall(static_cast<int>(sending.requests.size()), sending.requests.data(), MPI_STATUSES_IGNORE);
    }
    sending_.clear();
  }

  std::optional<Message> receive() override {
    std::erase_if(sending_, [](Sending& sending) {
      int is_done = 0;
      MPI_Testall(static_cast<int>(sending.requests.size()), sending.requests.data(), &is_done, MPI_STATUSES_IGNORE);
      return is_done != 0;
    });
    int has_come = 0;
    MPI_Status status;
    MPI_Iprobe(MPI_ANY_SOURCE, kSizeTag, MPI_COMM_WORLD, &has_come, &status);
    if (has_come == 0) return std::nullopt;
    Message message;
    message.from = status.MPI_SOURCE;
    std::uint64_t size = 0;
    MPI_Recv(&size, 1, MPI_UINT64_T, message.from, kSizeTag, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    message.bytes.resize(size);
    for (std::size_t begin = 0; begin < size; begin += kMostAtOnce) {
      const auto count = static_cast<int>(std::min(kMostAtOnce, size - begin));
      MPI_Recv(message.bytes.data() + begin, count, MPI_BYTE, message.from, kBytesTag, MPI_COMM_WORLD,
               MPI_STATUS_IGNORE);
    }
    return message;
  }

 private:
  // On its way; stays where it is in memory.
  struct Sending {
    std::string bytes;
    std::uint64_t size = 0;
    std::vector<MPI_Request> requests;
  };
  int rank_ = 0, size_ = 1;
  std::list<Sending> sending_;
};

}  // namespace
}  // namespace ttrace

// The caller owns what it gets.
extern "C" __attribute__((visibility("default"))) ttrace::Communicator* ttrace_start_mpi() {
  return new ttrace::MpiCommunicator;
}
