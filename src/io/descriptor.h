// Descriptor: an open file's number, closed on every way out of a scope.
//
// Not for files whose close may fail in a way that matters (written, not yet flushed): the result
// of close is not looked at. Thread: one at a time.
#ifndef KVASIR_IO_DESCRIPTOR_H_
#define KVASIR_IO_DESCRIPTOR_H_

#include <unistd.h>

namespace kvasir {

class Descriptor {
 public:
  explicit Descriptor(int fd) : fd_(fd) {}  // Negative: what open gave when it failed.
  ~Descriptor() {
    if (fd_ >= 0) close(fd_);
  }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;

  int get() const { return fd_; }

 private:
  const int fd_;
};

}  // namespace kvasir

#endif  // KVASIR_IO_DESCRIPTOR_H_
