// The tools of a chat request: whether each is a function as the OpenAI API describes it.
//
// Templates print whatever they find, so that a wrong entry would silently become part of the
// prompt. What functions mean to the model (their schemas above all) is not looked at.
// Thread: pure functions.
// Source: OpenAI API reference, "Create chat completion", tools.
#ifndef KVASIR_API_CHAT_TOOLS_H_
#define KVASIR_API_CHAT_TOOLS_H_

#include <optional>
#include <string>

#include "api/error.h"

namespace kvasir {

// What is wrong with the array, naming the path ("tools[1].function.name"), or nullopt.
// REQUIRES: JSON text of an array without a JsonShapeProblem.
std::optional<ApiError> CheckTools(const std::string& tools_json);

}  // namespace kvasir

#endif  // KVASIR_API_CHAT_TOOLS_H_
