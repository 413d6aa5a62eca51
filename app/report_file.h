// Where a bench leaves its page or JSON: a file that appears whole or not at all, or standard
// output for "-".
#ifndef KVASIR_APP_REPORT_FILE_H_
#define KVASIR_APP_REPORT_FILE_H_

#include <string>
#include <string_view>

#include "base/status.h"

namespace kvasir {

// For Options::Check: empty when it can name a file.
std::string ReportPathProblem(const std::string& path);

// Whether the file could be written now, better known before a load of an hour than after it.
// Leaves what is there as it is, and nothing new.
Status CheckReportFile(const std::string& path);

// Replaces the file in one step: whoever looks at it, and whenever we are stopped, sees the old one
// or the new one. What is no regular file (a pipe, a device) is written to.
Status WriteReportFile(const std::string& path, std::string_view content);

}  // namespace kvasir

#endif  // KVASIR_APP_REPORT_FILE_H_
