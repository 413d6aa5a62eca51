#include "io/tls_stream.h"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <openssl/bio.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <cstring>
#include <utility>

namespace kvasir {
namespace {

// OpenSSL's own socket BIO writes with write(), which raises SIGPIPE when the peer has left; a
// library must not die of that, nor change the process's signals.
int BioWrite(BIO* bio, const char* bytes, int size) {
  const int descriptor = static_cast<int>(reinterpret_cast<intptr_t>(BIO_get_data(bio)));
  BIO_clear_retry_flags(bio);
  const ssize_t sent =
      send(descriptor, bytes, static_cast<size_t>(size), MSG_NOSIGNAL | MSG_DONTWAIT);
  if (sent < 0 && (errno == EAGAIN || errno == EINTR)) BIO_set_retry_write(bio);
  return static_cast<int>(sent);
}

int BioRead(BIO* bio, char* bytes, int size) {
  const int descriptor = static_cast<int>(reinterpret_cast<intptr_t>(BIO_get_data(bio)));
  BIO_clear_retry_flags(bio);
  const ssize_t got = recv(descriptor, bytes, static_cast<size_t>(size), MSG_DONTWAIT);
  if (got < 0 && (errno == EAGAIN || errno == EINTR)) BIO_set_retry_read(bio);
  if (got == 0) BIO_set_flags(bio, BIO_FLAGS_IN_EOF);
  return static_cast<int>(got);
}

long BioControl(BIO* bio, int command, long, void*) {
  if (command == BIO_CTRL_EOF) return BIO_test_flags(bio, BIO_FLAGS_IN_EOF) != 0 ? 1 : 0;
  return command == BIO_CTRL_FLUSH ? 1 : 0;
}

// One for the process: OpenSSL numbers the kinds of BIO.
const BIO_METHOD* SocketMethod() {
  static const BIO_METHOD* const method = [] {
    BIO_METHOD* made = BIO_meth_new(BIO_get_new_index() | BIO_TYPE_SOURCE_SINK, "kvasir socket");
    if (made != nullptr) {
      BIO_meth_set_write(made, BioWrite);
      BIO_meth_set_read(made, BioRead);
      BIO_meth_set_ctrl(made, BioControl);
    }
    return made;
  }();
  return method;
}

std::string LastError() {
  const unsigned long code = ERR_peek_last_error();
  const char* reason = code == 0 ? nullptr : ERR_reason_error_string(code);
  ERR_clear_error();
  return reason == nullptr ? "unknown error" : reason;
}

bool IsAddress(const std::string& host) {
  unsigned char bytes[sizeof(in6_addr)];
  return inet_pton(AF_INET, host.c_str(), bytes) == 1 ||
         inet_pton(AF_INET6, host.c_str(), bytes) == 1;
}

}  // namespace

StatusOr<std::shared_ptr<const TlsContext>> TlsContext::Create() {
  ERR_clear_error();
  SSL_CTX* made = SSL_CTX_new(TLS_client_method());
  if (made == nullptr) return Internal("TLS cannot be set up: {}", LastError());
  std::shared_ptr<const TlsContext> context(new TlsContext(made));
  SSL_CTX_set_min_proto_version(made, TLS1_2_VERSION);
  SSL_CTX_set_verify(made, SSL_VERIFY_PEER, nullptr);
  SSL_CTX_set_mode(made, SSL_MODE_ENABLE_PARTIAL_WRITE | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER);
  if (SSL_CTX_set_default_verify_paths(made) != 1) {
    return MakeStatus(StatusCode::kFailedPrecondition,
                      fmt::format("the trusted certificates cannot be read: {}", LastError()));
  }
  ERR_clear_error();
  return context;
}

TlsContext::~TlsContext() { SSL_CTX_free(context_); }

StatusOr<std::unique_ptr<TlsStream>> TlsStream::Create(std::shared_ptr<const TlsContext> context,
                                                       int descriptor, const std::string& host) {
  ERR_clear_error();
  SSL* ssl = SSL_new(context->context_);
  if (ssl == nullptr) return Internal("TLS cannot be set up: {}", LastError());
  std::unique_ptr<TlsStream> stream(new TlsStream(std::move(context), ssl));
  BIO* bio = SocketMethod() == nullptr ? nullptr : BIO_new(SocketMethod());
  if (bio == nullptr) return Internal("TLS cannot be set up: {}", LastError());
  BIO_set_data(bio, reinterpret_cast<void*>(static_cast<intptr_t>(descriptor)));
  BIO_set_init(bio, 1);
  SSL_set_bio(ssl, bio, bio);
  X509_VERIFY_PARAM* names = SSL_get0_param(ssl);
  X509_VERIFY_PARAM_set_hostflags(names, X509_CHECK_FLAG_NO_PARTIAL_WILDCARDS);
  const bool address = IsAddress(host);
  const int named = address ? X509_VERIFY_PARAM_set1_ip_asc(names, host.c_str())
                            : X509_VERIFY_PARAM_set1_host(names, host.c_str(), host.size());
  // Server Name Indication is for names alone (RFC 6066, 3).
  if (named != 1 || (!address && SSL_set_tlsext_host_name(ssl, host.c_str()) != 1)) {
    return InvalidArgument("{}: not a host name that a certificate could bear", host);
  }
  SSL_set_connect_state(ssl);
  return stream;
}

// Says goodbye if the socket takes it at once; nobody waits for the answer.
TlsStream::~TlsStream() {
  if (SSL_is_init_finished(ssl_) != 0) SSL_shutdown(ssl_);
  ERR_clear_error();
  SSL_free(ssl_);
}

TlsStream::Result TlsStream::Explain(int returned) {
  const int system = errno;
  Result result;
  switch (SSL_get_error(ssl_, returned)) {
    case SSL_ERROR_WANT_READ:
      result.kind = Result::Kind::kWantRead;
      return result;
    case SSL_ERROR_WANT_WRITE:
      result.kind = Result::Kind::kWantWrite;
      return result;
    case SSL_ERROR_ZERO_RETURN:
      result.kind = Result::Kind::kEnd;
      return result;
    case SSL_ERROR_SYSCALL:
      result.problem = std::strerror(system == 0 ? ECONNRESET : system);
      ERR_clear_error();
      return result;
    default:
      break;
  }
  const long verdict = SSL_get_verify_result(ssl_);
  if (verdict != X509_V_OK) {
    result.distrust = true;
    result.problem =
        fmt::format("its certificate is not trusted: {}", X509_verify_cert_error_string(verdict));
    ERR_clear_error();
  } else {
    result.problem = LastError();
  }
  return result;
}

TlsStream::Result TlsStream::Handshake() {
  ERR_clear_error();
  const int returned = SSL_do_handshake(ssl_);
  if (returned != 1) return Explain(returned);
  return {Result::Kind::kDone, 0, {}, false};
}

TlsStream::Result TlsStream::Read(char* bytes, size_t size) {
  ERR_clear_error();
  size_t got = 0;
  const int returned = SSL_read_ex(ssl_, bytes, size, &got);
  if (returned != 1) return Explain(returned);
  return {Result::Kind::kDone, got, {}, false};
}

TlsStream::Result TlsStream::Write(std::string_view bytes) {
  ERR_clear_error();
  size_t sent = 0;
  const int returned = SSL_write_ex(ssl_, bytes.data(), bytes.size(), &sent);
  if (returned != 1) return Explain(returned);
  return {Result::Kind::kDone, sent, {}, false};
}

bool TlsStream::HasPending() const { return SSL_has_pending(ssl_) == 1; }

}  // namespace kvasir
