// Bytes between the processes that a launcher has started together. MPI is one implementation (mpi/), which is loaded
// only where there are several processes; threads of a test are another.
#pragma once

#include <optional>
#include <string>

namespace ttrace {

struct Message {
  int from = 0;
  std::string bytes;
};

// Every process has one, and uses it on one thread. Messages from one process to another arrive in order.
class Communicator {
 public:
  virtual ~Communicator() = default;
  virtual int rank() const = 0;
  virtual int size() const = 0;
  virtual std::string host() const = 0;  // the name of the node

  // Returns at once; the bytes are on their way until `flush` has returned.
  virtual void send(int to, std::string bytes) = 0;
  virtual void flush() = 0;
  // Returns a message that has come whole, or nothing.
  virtual std::optional<Message> receive() = 0;
};

}  // namespace ttrace
