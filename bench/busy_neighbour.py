#!/usr/bin/env python3
"""Decode speed beside another busy process, as a share of the quiet speed, for rkv and llama.cpp.

  bench/busy_neighbour.py [--rkv build/release/rkv] [-m MODEL] [--rounds 3] [--peer]

Each round times a quiet run, then one while a process of our own keeps one CPU busy. Prints the medians
as a Markdown table. On a machine that is busy anyway the shares mean nothing: rkv bench's warning says so.
"""
import argparse
import json
import pathlib
import statistics
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
SPIN = "while True: pass"


def speeds(options):
    command = [options.rkv, "bench", "-p", "0", "-n", str(options.tokens), "-d", "0", "-r", "1",
               "-t", str(options.threads), "--kv", "full", "-o", "json"]
    command += ["-m", options.model] if options.model else []
    command += ["--peer", "llama.cpp", "--peer-settings", "fa0"] if options.peer else []
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"busy_neighbour: {done.stderr}")
    return {row["engine"]: row["tokens_per_second"]["median"]
            for row in json.loads(done.stdout)["rows"]}


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rkv", default=ROOT / "build/release/rkv")
    parser.add_argument("-m", "--model", default=None)
    parser.add_argument("-t", "--threads", type=int, default=2)
    parser.add_argument("-n", "--tokens", type=int, default=200)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--peer", action="store_true", help="llama.cpp too, flash attention off")
    options = parser.parse_args()

    quiet, busy = {}, {}
    for _ in range(options.rounds):
        for engine, speed in speeds(options).items():
            quiet.setdefault(engine, []).append(speed)
        spinner = subprocess.Popen([sys.executable, "-c", SPIN])
        try:
            for engine, speed in speeds(options).items():
                busy.setdefault(engine, []).append(speed)
        finally:
            spinner.kill()
            spinner.wait()
    print("| engine | quiet tok/s (min-max) | beside a busy process (min-max) | share |\n|---|---|---|---|")
    for engine in quiet:
        a, b = sorted(quiet[engine]), sorted(busy[engine])
        share = statistics.median(b) / statistics.median(a)
        print(f"| {engine} | {statistics.median(a):.1f} ({a[0]:.1f}-{a[-1]:.1f}) | "
              f"{statistics.median(b):.1f} ({b[0]:.1f}-{b[-1]:.1f}) | {share:.0%} |")


if __name__ == "__main__":
    main()
