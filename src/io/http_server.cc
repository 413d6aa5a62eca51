// The one file that includes Asio: sockets, timers and threads under HttpConnection.
#include "io/http_server.h"

#define BOOST_ASIO_NO_DEPRECATED 1
// The thread sanitizer does not know fences (and g++ refuses them then). Asio's are beside its
// mutexes, not instead of them.
#if defined(__SANITIZE_THREAD__)
#define BOOST_ASIO_DISABLE_FENCED_BLOCK 1
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define BOOST_ASIO_DISABLE_FENCED_BLOCK 1
#endif
#endif
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <boost/asio/bind_executor.hpp>
#include <boost/asio/dispatch.hpp>
#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/ip/v6_only.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/strand.hpp>
#include <random>
#include <thread>
#include <unordered_map>
#include <utility>

#include "base/check.h"
#include "base/mutex.h"
#include "io/http_connection.h"

namespace kvasir {
namespace {

namespace asio = boost::asio;
using ErrorCode = boost::system::error_code;
using Tcp = asio::ip::tcp;
using Strand = asio::strand<asio::io_context::executor_type>;
using Socket = asio::basic_stream_socket<Tcp, Strand>;
using Timer = asio::basic_waitable_timer<std::chrono::steady_clock,
                                         asio::wait_traits<std::chrono::steady_clock>, Strand>;

constexpr size_t kReadBytes = 16 << 10;
constexpr size_t kMinHeaderBytes = 256;
// Connections above the limit that are being told so; the next ones are not accepted meanwhile.
constexpr size_t kMaxRefusing = 64;
// How long to leave accept alone when the process has no descriptors left.
constexpr std::chrono::milliseconds kAcceptPause{50};

std::string ToText(const Tcp::endpoint& endpoint) {
  const std::string address = endpoint.address().to_string();
  if (endpoint.address().is_v6()) return fmt::format("[{}]:{}", address, endpoint.port());
  return fmt::format("{}:{}", address, endpoint.port());
}

}  // namespace

// Everything that must outlive the server while an exchange is held somewhere: the io_context with
// its strands first of all.
class HttpServer::Core : public std::enable_shared_from_this<HttpServer::Core> {
 public:
  class TcpConnection;

  explicit Core(std::shared_ptr<HttpService> service)
      : service_(std::move(service)), io_(service_->options.threads) {}

  Status Listen();
  void Start() KV_EXCLUDES(mutex_);
  void BeginDrain() KV_EXCLUDES(mutex_);
  bool WaitDrained(std::chrono::milliseconds timeout) KV_EXCLUDES(mutex_);
  void Stop() KV_EXCLUDES(mutex_);
  HttpServerCounters counters() const KV_EXCLUDES(mutex_);
  const Tcp::endpoint& endpoint() const { return endpoint_; }

  void PostTo(const Strand& strand, std::function<void()> function) KV_EXCLUDES(mutex_);
  void Forget(uint64_t id) KV_EXCLUDES(mutex_);

 private:
  Status TryListen(const Tcp::endpoint& endpoint);
  void Accept();
  void OnAccept(const ErrorCode& error, Socket socket) KV_EXCLUDES(mutex_);
  bool Admit(Socket socket) KV_EXCLUDES(mutex_);
  std::vector<std::shared_ptr<TcpConnection>> Connections() const KV_EXCLUDES(mutex_);

  const std::shared_ptr<HttpService> service_;
  asio::io_context io_;
  const Strand accept_strand_ = asio::make_strand(io_);
  asio::basic_socket_acceptor<Tcp, Strand> acceptor_{accept_strand_};  // On accept_strand_.
  Timer accept_timer_{accept_strand_};
  Tcp::endpoint endpoint_;
  std::optional<asio::executor_work_guard<asio::io_context::executor_type>> work_;
  std::vector<std::thread> workers_;

  mutable Mutex mutex_;
  CondVar changed_;
  std::unordered_map<uint64_t, std::weak_ptr<TcpConnection>> open_ KV_GUARDED_BY(mutex_);
  uint64_t accepted_ KV_GUARDED_BY(mutex_) = 0;  // Also names connections.
  uint64_t refused_ KV_GUARDED_BY(mutex_) = 0;
  bool accept_paused_ KV_GUARDED_BY(mutex_) = false;
  bool draining_ KV_GUARDED_BY(mutex_) = false;
  bool stopped_ KV_GUARDED_BY(mutex_) = false;  // No worker will run anything any more.
};

// Moves the bytes of one HttpConnection. All on its strand but Post.
class HttpServer::Core::TcpConnection final : public HttpConnection {
 public:
  TcpConnection(uint64_t id, Socket socket, std::shared_ptr<Core> core, std::string peer)
      : HttpConnection(core->service_, std::move(peer)),
        core_(std::move(core)),
        id_(id),
        socket_(std::move(socket)),
        timer_(socket_.get_executor()) {}

  ~TcpConnection() override {
    if (!socket_closed_) core_->Forget(id_);
  }

  void Begin(bool refused) {
    Call([refused](TcpConnection* self) { refused ? self->OnOpenRefused() : self->OnOpen(); });
  }
  void BeginDrain() {
    Call([](TcpConnection* self) { self->Drain(); });
  }
  void BeginStop() {
    Call([](TcpConnection* self) { self->Stop(); });
  }

  void Post(std::function<void()> function) override {
    core_->PostTo(strand_, std::move(function));
  }

 private:
  std::shared_ptr<TcpConnection> Self() {
    return std::static_pointer_cast<TcpConnection>(shared_from_this());
  }

  template <typename Function>
  void Call(Function function) {
    Post([self = Self(), function] {
      function(self.get());
      self->Pump();
    });
  }

  TimeUs Now() const override { return SteadyClock().Now(); }

  void Pump() override {
    if (socket_closed_) return;
    if (closed()) {
      CloseSocket();
      return;
    }
    if (!writing_ && has_output()) {
      buffer_ = TakeOutput();
      written_ = 0;
      WriteSome();
    }
    if (!writing_ && wants_shutdown() && !shut_) {
      shut_ = true;
      ErrorCode ignored;  // The client may be gone already.
      socket_.shutdown(Tcp::socket::shutdown_send, ignored);
    }
    if (!reading_ && wants_read()) ReadSome();
    ArmTimer();
  }

  void CloseSocket() {
    socket_closed_ = true;
    ErrorCode ignored;  // The descriptor is gone either way.
    socket_.close(ignored);
    timer_.cancel();
    core_->Forget(id_);
  }

  void ReadSome() {
    reading_ = true;
    socket_.async_read_some(asio::buffer(read_), [self = Self()](ErrorCode error, size_t count) {
      self->reading_ = false;
      if (self->socket_closed_) return;
      if (error) {
        self->OnReadEnd();
      } else {
        self->OnBytes({self->read_.data(), count});
      }
      self->Pump();
    });
  }

  void WriteSome() {
    writing_ = true;
    socket_.async_write_some(
        asio::buffer(buffer_.data() + written_, buffer_.size() - written_),
        [self = Self()](ErrorCode error, size_t count) { self->OnWrite(error, count); });
  }

  void OnWrite(const ErrorCode& error, size_t count) {
    writing_ = false;
    if (socket_closed_) return;
    if (error) {
      OnWriteFailed();
    } else {
      written_ += count;
      if (written_ < buffer_.size()) WriteSome();  // Before OnWritten: that may Pump.
      OnWritten(count);
    }
    Pump();
  }

  // One wait at a time, for the earliest deadline. A deadline that moves away is left alone: the
  // timer then finds nothing to do and is set anew, which is cheaper than at every token.
  void ArmTimer() {
    const TimeUs next = deadline();
    if (next >= armed_for_) return;
    armed_for_ = next;
    timer_.expires_at(std::chrono::steady_clock::time_point(std::chrono::microseconds(next)));
    timer_.async_wait([self = Self()](ErrorCode error) {
      if (error || self->socket_closed_) return;
      self->armed_for_ = kNever;
      self->OnTime();
      self->Pump();
    });
  }

  const std::shared_ptr<Core> core_;
  const uint64_t id_;
  Socket socket_;
  const Strand strand_ = socket_.get_executor();
  Timer timer_;
  TimeUs armed_for_ = kNever;
  std::array<char, kReadBytes> read_;
  std::string buffer_;  // Being written.
  size_t written_ = 0;  // Of buffer_.
  bool reading_ = false;
  bool writing_ = false;
  bool shut_ = false;
  bool socket_closed_ = false;
};

// --- listening ---

Status HttpServer::Core::Listen() {
  const Options& options = service_->options;
  ErrorCode error;
  Tcp::resolver resolver(io_);
  const auto found =
      resolver.resolve(options.host, fmt::format("{}", options.port),
                       Tcp::resolver::passive | Tcp::resolver::numeric_service, error);
  if (error || found.empty()) {
    return InvalidArgument("cannot listen on {}: {}; give an address of this machine", options.host,
                           error ? error.message() : "no such host");
  }
  Status status = OkStatus();
  for (const auto& entry : found) {
    status = TryListen(entry.endpoint());
    if (status.ok()) break;
  }
  return status;
}

Status HttpServer::Core::TryListen(const Tcp::endpoint& endpoint) {
  ErrorCode error;
  acceptor_.open(endpoint.protocol(), error);
  if (!error) acceptor_.set_option(asio::socket_base::reuse_address(true), error);
  if (!error && endpoint.address().is_v6()) {
    acceptor_.set_option(asio::ip::v6_only(false), error);
  }
  if (!error) acceptor_.bind(endpoint, error);
  if (!error) acceptor_.listen(asio::socket_base::max_listen_connections, error);
  if (!error) endpoint_ = acceptor_.local_endpoint(error);
  if (!error) return OkStatus();
  ErrorCode ignored;
  acceptor_.close(ignored);
  return MakeStatus(StatusCode::kUnavailable,
                    fmt::format("cannot listen on {}: {}; choose another address or port",
                                ToText(endpoint), error.message()));
}

void HttpServer::Core::Start() {
  KV_CHECK(workers_.empty());
  work_.emplace(io_.get_executor());
  PostTo(accept_strand_, [self = shared_from_this()] { self->Accept(); });
  for (int i = 0; i < service_->options.threads; ++i) {
    workers_.emplace_back([this] { io_.run(); });
  }
}

void HttpServer::Core::Accept() {
  if (!acceptor_.is_open()) return;
  acceptor_.async_accept(asio::make_strand(io_),
                         asio::bind_executor(accept_strand_, [self = shared_from_this()](
                                                                 ErrorCode error, Socket socket) {
                           self->OnAccept(error, std::move(socket));
                         }));
}

void HttpServer::Core::OnAccept(const ErrorCode& error, Socket socket) {
  if (!acceptor_.is_open()) return;
  if (!error) {
    if (Admit(std::move(socket))) Accept();
    return;
  }
  // Without descriptors accept fails at once, again and again: wait for some to be closed.
  accept_timer_.expires_after(kAcceptPause);
  accept_timer_.async_wait([self = shared_from_this()](ErrorCode aborted) {
    if (!aborted) self->Accept();
  });
}

// False when no further connection is to be accepted for now; Forget goes on then.
bool HttpServer::Core::Admit(Socket socket) {
  ErrorCode ignored;  // A client that has gone already shows when it is read from.
  socket.set_option(Tcp::no_delay(true), ignored);
  const Tcp::endpoint peer = socket.remote_endpoint(ignored);
  std::shared_ptr<TcpConnection> connection;
  bool refused = false, pause = false;
  {
    MutexLock lock(mutex_);
    if (draining_) return false;
    const uint64_t id = ++accepted_;
    refused = open_.size() >= service_->options.max_connections;
    if (refused) ++refused_;
    connection =
        std::make_shared<TcpConnection>(id, std::move(socket), shared_from_this(), ToText(peer));
    open_.emplace(id, connection);
    pause = accept_paused_ = open_.size() >= service_->options.max_connections + kMaxRefusing;
  }
  connection->Begin(refused);
  return !pause;
}

void HttpServer::Core::Forget(uint64_t id) {
  bool resume = false;
  {
    MutexLock lock(mutex_);
    open_.erase(id);
    resume = std::exchange(accept_paused_, false);
    changed_.NotifyAll();
  }
  if (resume) PostTo(accept_strand_, [self = shared_from_this()] { self->Accept(); });
}

// --- the end ---

void HttpServer::Core::PostTo(const Strand& strand, std::function<void()> function) {
  // The lock orders this against Stop: what is queued after the last worker has gone would stay in
  // the io_context, and keep it alive through the connection that it holds.
  MutexLock lock(mutex_);
  if (!stopped_) asio::post(strand, std::move(function));
}

std::vector<std::shared_ptr<HttpServer::Core::TcpConnection>> HttpServer::Core::Connections()
    const {
  std::vector<std::shared_ptr<TcpConnection>> connections;
  MutexLock lock(mutex_);
  for (const auto& [id, weak] : open_) {
    if (auto connection = weak.lock()) connections.push_back(std::move(connection));
  }
  return connections;
}

void HttpServer::Core::BeginDrain() {
  {
    MutexLock lock(mutex_);
    if (std::exchange(draining_, true)) return;
  }
  PostTo(accept_strand_, [self = shared_from_this()] {
    ErrorCode ignored;
    self->acceptor_.close(ignored);
    self->accept_timer_.cancel();
  });
  for (const auto& connection : Connections()) connection->BeginDrain();
}

bool HttpServer::Core::WaitDrained(std::chrono::milliseconds timeout) {
  const auto deadline = std::chrono::steady_clock::now() + timeout;
  MutexLock lock(mutex_);
  while (!open_.empty()) {
    if (!changed_.WaitUntil(mutex_, deadline)) return open_.empty();
  }
  return true;
}

void HttpServer::Core::Stop() {
  BeginDrain();
  for (const auto& connection : Connections()) connection->BeginStop();
  work_.reset();
  // Nothing is left to wait for once all sockets are closed: the workers run dry.
  for (std::thread& worker : workers_) worker.join();
  workers_.clear();
  io_.restart();
  io_.run();  // What was posted since; all of it when Start was never called.
  {
    MutexLock lock(mutex_);
    stopped_ = true;
  }
  io_.restart();
  io_.run();
}

HttpServerCounters HttpServer::Core::counters() const {
  HttpServerCounters counters;
  counters.requests = service_->requests;
  counters.requests_rejected = service_->requests_rejected;
  counters.request_timeouts = service_->request_timeouts;
  counters.hang_ups = service_->hang_ups;
  counters.too_slow = service_->too_slow;
  MutexLock lock(mutex_);
  counters.connections_accepted = accepted_;
  counters.connections_refused = refused_;
  counters.connections_open = open_.size();
  return counters;
}

// --- the public face ---

StatusOr<std::unique_ptr<HttpServer>> HttpServer::Create(Options options,
                                                         std::vector<HttpRoute> routes) {
  // To the resolver it would mean all addresses of the machine.
  if (options.host.empty()) {
    return InvalidArgument("the address to listen on is empty; :: and 0.0.0.0 mean all");
  }
  if (options.threads < 1) {
    return InvalidArgument("{} HTTP threads: want at least 1", options.threads);
  }
  if (options.max_header_bytes < kMinHeaderBytes || options.max_connections < 1) {
    return InvalidArgument("{} header bytes, {} connections: want at least {} and 1",
                           options.max_header_bytes, options.max_connections, kMinHeaderBytes);
  }
  // The characters of an origin are those of a request id.
  if (options.cors_origin && !IsSaneRequestId(*options.cors_origin)) {
    return InvalidArgument("CORS origin \"{}\": want \"*\" or scheme://host[:port]",
                           *options.cors_origin);
  }
  auto service = std::make_shared<HttpService>();
  KV_ASSIGN_OR_RETURN(service->router, HttpRouter::Create(std::move(routes)));
  service->options = std::move(options);
  std::random_device random;
  service->request_id_seed = uint64_t{random()} << 32 | random();
  auto core = std::make_shared<Core>(std::move(service));
  KV_RETURN_IF_ERROR(core->Listen());
  return std::unique_ptr<HttpServer>(new HttpServer(std::move(core)));
}

HttpServer::HttpServer(std::shared_ptr<Core> core) : core_(std::move(core)) {}
HttpServer::~HttpServer() { Stop(); }

uint16_t HttpServer::port() const { return core_->endpoint().port(); }
std::string HttpServer::address() const { return ToText(core_->endpoint()); }
void HttpServer::Start() { core_->Start(); }
void HttpServer::BeginDrain() { core_->BeginDrain(); }
bool HttpServer::WaitDrained(std::chrono::milliseconds timeout) {
  return core_->WaitDrained(timeout);
}
void HttpServer::Stop() { core_->Stop(); }
HttpServerCounters HttpServer::counters() const { return core_->counters(); }

}  // namespace kvasir
