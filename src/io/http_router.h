// HttpRouter: which route answers a method and a path.
//
// Exact paths win over patterns; of patterns, the longest. Immutable after Create, so that any
// thread may look up. The table is small (tens of routes): look-ups are linear.
#ifndef KVASIR_IO_HTTP_ROUTER_H_
#define KVASIR_IO_HTTP_ROUTER_H_

#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "io/http_server.h"

namespace kvasir {

class HttpRouter {
 public:
  // kInvalidArgument, naming the route: a method that is no token, a path that does not begin with
  // '/' or holds '{' elsewhere than in a trailing "/{id}", no handler, or a route given twice.
  static StatusOr<HttpRouter> Create(std::vector<HttpRoute> routes);

  struct Match {
    const HttpRoute* route = nullptr;  // nullptr: no route for this method.
    std::string parameter;             // What {id} matched.
    std::string allow;  // With no route: "GET, HEAD"; empty when the path is unknown.
  };
  // `path` is decoded. HEAD finds the GET route.
  Match Find(std::string_view method, std::string_view path) const;

 private:
  std::vector<HttpRoute> routes_;  // Exact ones first, then patterns, longest first.
};

}  // namespace kvasir

#endif  // KVASIR_IO_HTTP_ROUTER_H_
