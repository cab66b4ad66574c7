#!/usr/bin/env python3
"""Fails when a file under src/ includes a folder its own folder may not know."""
import pathlib
import re
import sys

ALLOWED = {
    "base": set(),
    "kv": {"base"},
    "attention": {"base", "kv"},
    "policy": {"base", "kv", "attention"},
    "model": {"base"},
    "engine": {"base", "kv", "attention", "policy", "model"},
    "server": {"base"},
    "eval": {"base"},
    "bench": {"base"},
    "cli": {"base", "server", "eval", "bench"},
}
THIRD_PARTY = {
    "ggml": {"model"},
    "gguf": {"model", "bench"},
    "llama": {"model", "bench"},
    "hwy": {"attention", "model"},
    "dnnl": {"base"},
    "omp": {"base"},
    "nlohmann": {"policy", "cli", "server", "eval", "bench"},
    "CLI": {"cli"},
    "fmt": {"base", "kv", "policy", "model", "engine", "server", "eval", "bench", "cli"},
    "cuda": {"attention"},
}
# What a library may not do: print or end the process. cli is exempt, and Check ends on our own bugs.
FORBIDDEN = re.compile(r"\b(std::cout|std::cerr|printf|puts|exit|abort|std::terminate)\s*[(<]")
PRINTS = {"cli"}


def problems(path, folder):
    test = path.stem.endswith("_test")
    for number, line in enumerate(path.read_text().splitlines(), 1):
        where = f"{path}:{number}"
        include = re.match(r'\s*#\s*include\s+["<]([A-Za-z0-9_]+)[/.\-]', line)
        ours = re.match(r'\s*#\s*include\s+"([a-z0-9_]+)/', line)
        if ours and ours[1] in ALLOWED and ours[1] != folder and ours[1] not in ALLOWED[folder]:
            yield f"{where}: {folder}/ may not include {ours[1]}/"
        if include and not ours:
            name = re.sub(r"^(ggml|gguf|cuda|llama|dnnl).*", r"\1", include[1])
            if name in THIRD_PARTY and folder not in THIRD_PARTY[name]:
                yield f"{where}: {name} belongs to {sorted(THIRD_PARTY[name])}"
        if not test and folder not in PRINTS and path.name != "check.h":
            if FORBIDDEN.search(line.split("//")[0]):
                yield f"{where}: a library neither prints nor ends the process"


def main(root):
    bad = []
    for path in sorted(p for p in root.rglob("*") if p.suffix in {".h", ".cc", ".cu", ".cuh"}):
        folder = path.relative_to(root).parts[0]
        if folder not in ALLOWED:
            bad.append(f"{path}: folder {folder}/ is not in the layer table")
            continue
        bad.extend(problems(path, folder))
    print("\n".join(bad) or "layers ok")
    return bool(bad)


if __name__ == "__main__":
    sys.exit(main(pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else "src")))
