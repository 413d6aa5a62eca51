// TlsStream: TLS 1.2 or later over a connected, non-blocking socket, as the client.
//
// The peer must show a certificate that the system's authorities vouch for (OpenSSL's store;
// SSL_CERT_FILE and SSL_CERT_DIR name another) and that bears the host's name or address. There is
// no way to switch that off. Never blocks: who is told to wait polls the socket.
// Thread: a TlsContext any, a stream one at a time.
// Source: RFC 8446; RFC 9525 (names in certificates).
#ifndef KVASIR_IO_TLS_STREAM_H_
#define KVASIR_IO_TLS_STREAM_H_

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>

#include "base/status.h"

struct ssl_st;      // <openssl/ssl.h>
struct ssl_ctx_st;  // <openssl/ssl.h>

namespace kvasir {

// The trusted authorities, read once.
class TlsContext {
 public:
  // kFailedPrecondition when there are none to read.
  static StatusOr<std::shared_ptr<const TlsContext>> Create();
  ~TlsContext();
  TlsContext(const TlsContext&) = delete;
  TlsContext& operator=(const TlsContext&) = delete;

 private:
  friend class TlsStream;
  explicit TlsContext(ssl_ctx_st* context) : context_(context) {}
  ssl_ctx_st* const context_;
};

class TlsStream {
 public:
  struct Result {
    enum class Kind : uint8_t { kDone, kWantRead, kWantWrite, kEnd, kFailed };
    Kind kind = Kind::kFailed;
    size_t bytes = 0;       // kDone of Read and Write.
    std::string problem;    // kFailed.
    bool distrust = false;  // kFailed: the certificate is the problem, trying again is no use.
  };

  // Takes part in the life of `descriptor`, does not own it. kInternal: OpenSSL has no memory.
  static StatusOr<std::unique_ptr<TlsStream>> Create(std::shared_ptr<const TlsContext> context,
                                                     int descriptor, const std::string& host);
  ~TlsStream();
  TlsStream(const TlsStream&) = delete;
  TlsStream& operator=(const TlsStream&) = delete;

  Result Handshake();  // Again until it is kDone or kFailed.
  // kEnd: the peer has said that nothing follows. A connection cut without that is kFailed.
  Result Read(char* bytes, size_t size);
  Result Write(std::string_view bytes);
  bool HasPending() const;  // Decrypted bytes that poll does not know of.

 private:
  TlsStream(std::shared_ptr<const TlsContext> context, ssl_st* ssl)
      : context_(std::move(context)), ssl_(ssl) {}
  Result Explain(int returned);

  const std::shared_ptr<const TlsContext> context_;
  ssl_st* const ssl_;
};

}  // namespace kvasir

#endif  // KVASIR_IO_TLS_STREAM_H_
