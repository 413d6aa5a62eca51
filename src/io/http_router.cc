#include "io/http_router.h"

#include <algorithm>

#include "io/http_reply.h"

namespace kvasir {
namespace {

constexpr std::string_view kParameter = "/{id}";

bool IsPattern(std::string_view path) {
  return path.size() >= kParameter.size() &&
         path.substr(path.size() - kParameter.size()) == kParameter;
}

// The fixed part of a pattern, with the slash that ends it.
std::string_view PrefixOf(std::string_view pattern) {
  return pattern.substr(0, pattern.size() - kParameter.size() + 1);
}

bool Matches(const HttpRoute& route, std::string_view path) {
  if (!IsPattern(route.path)) return path == route.path;
  const std::string_view prefix = PrefixOf(route.path);
  return path.size() > prefix.size() && path.substr(0, prefix.size()) == prefix;
}

Status CheckRoute(const HttpRoute& route) {
  if (!IsHttpToken(route.method)) {
    return InvalidArgument("route {}: method \"{}\" is not a token", route.path, route.method);
  }
  const std::string_view fixed = IsPattern(route.path) ? PrefixOf(route.path) : route.path;
  if (fixed.empty() || fixed[0] != '/' || fixed.find_first_of("{}?#") != std::string_view::npos) {
    return InvalidArgument("route {} {}: want /a/path or /a/path/{{id}}", route.method, route.path);
  }
  if (!route.handler) return InvalidArgument("route {} {}: no handler", route.method, route.path);
  return OkStatus();
}

}  // namespace

StatusOr<HttpRouter> HttpRouter::Create(std::vector<HttpRoute> routes) {
  std::stable_sort(routes.begin(), routes.end(), [](const HttpRoute& a, const HttpRoute& b) {
    if (IsPattern(a.path) != IsPattern(b.path)) return IsPattern(b.path);
    return a.path.size() > b.path.size();
  });
  for (size_t i = 0; i < routes.size(); ++i) {
    KV_RETURN_IF_ERROR(CheckRoute(routes[i]));
    for (size_t j = 0; j < i; ++j) {
      if (routes[i].method == routes[j].method && routes[i].path == routes[j].path) {
        return InvalidArgument("route {} {} is given twice", routes[i].method, routes[i].path);
      }
    }
  }
  HttpRouter router;
  router.routes_ = std::move(routes);
  return router;
}

HttpRouter::Match HttpRouter::Find(std::string_view method, std::string_view path) const {
  Match match;
  const std::string* found =
      nullptr;  // The first path that matches decides: later ones are vaguer.
  for (const HttpRoute& route : routes_) {
    if (found == nullptr ? !Matches(route, path) : route.path != *found) continue;
    found = &route.path;
    if (route.method == method || (method == "HEAD" && route.method == "GET")) {
      match.route = &route;
      if (IsPattern(route.path)) match.parameter = path.substr(PrefixOf(route.path).size());
      if (route.method == method) return match;  // A HEAD route of its own wins over GET.
    }
    if (!match.allow.empty()) match.allow += ", ";
    match.allow += route.method == "GET" ? "GET, HEAD" : route.method;
  }
  return match;
}

}  // namespace kvasir
