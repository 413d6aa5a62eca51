// The MODEL argument that nearly every command has: a file, or a URL of one.
//
// A URL's file is fetched into the models folder unless it is there already (`kvasir pull`).
#ifndef KVASIR_APP_MODEL_PATH_H_
#define KVASIR_APP_MODEL_PATH_H_

#include <string>

#include "base/status.h"
#include "io/download.h"
#include "options.h"

namespace kvasir {

// Registers MODEL, also as --model so that file and environment can name it, and --models-dir.
void AddModelPath(Options& options, std::string* path, std::string* models_dir);
void AddModelsDir(Options& options, std::string* models_dir);

// `models_dir`, or the default one when it is empty.
std::string ModelsFolder(const std::string& models_dir);

// Makes a URL in `path` the file it stands for, fetching it first where needed, with progress on
// standard error; leaves files alone. kCancelled: Ctrl-C, which is caught from here on.
Status FetchModel(std::string* path, const std::string& models_dir);

// Fills in what terminal and environment say (HF_TOKEN, proxies, Ctrl-C, progress) and downloads;
// of a model that was split (NAME-00001-of-00003.gguf) all parts, unless a sum or name is asked
// for. The result is that of the part that was named.
StatusOr<DownloadResult> PullModel(DownloadOptions options, bool quiet);

}  // namespace kvasir

#endif  // KVASIR_APP_MODEL_PATH_H_
