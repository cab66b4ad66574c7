#!/usr/bin/env python3
"""Every method at equal budgets on three documents: KL to Full-KV, top-1 agreement, attention recall,
bytes read and held. Runs build/release/bench/method_table and prints the tables of docs/methods.md.

    bench/method_table.py MODEL [--tokens 6000] [--budgets 128,256,512,1024] [--out rows.jsonl]
    bench/method_table.py --show rows.jsonl

The documents are a story, reference text and source code, all of this repository as it was at one
commit, so that a later run sees the same text. Where a document is shorter than --tokens, its prompt is.
"""
import argparse
import collections
import json
import pathlib
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
COMMIT = "68b95d2"
DOCUMENTS = {
    "story": ["examples/chronicle.txt"],
    "reference": ["docs/architecture.md", "docs/methods/rocketkv.md", "docs/cli.md"],
    "code": ["src/engine/prefill.cc", "src/engine/decode.cc", "src/engine/engine_impl.cc",
             "src/engine/prefill_evict.cc"],
}
# bypass=1: no method reads more than the budget where it could.
METHODS = [
    "exact-topk:budget={}", "exact-topk:budget={},heads=query", "rocketkv:budget={},bypass=1",
    "rocketkv-mt:budget={},bypass=1", "hsa:budget={},bypass=1", "quest:budget={},bypass=1",
    "sparq:budget={},bypass=1", "lrqk:budget={},bypass=1", "shadowkv:budget={},bypass=1",
    "snapkv:budget={}", "snapkv:budget={},heads=query", "adakv:budget={}", "pyramid:budget={}",
    "squeeze:budget={}", "chunkkv:budget={}", "catekv:budget={}", "h2o:budget={}",
    "fastgen:budget={}", "streaming:budget={}", "random:budget={},bypass=1",
]
BEYOND = [  # RocketKV with one thing more each
    "rocketkv:budget={},bypass=1,top_p=0.9", "rocketkv:budget={},bypass=1,force_first=4",
    "rocketkv:budget={},bypass=1,force_last=16", "rocketkv:budget={},bypass=1,complete=mean",
    "rocketkv:budget={}",
]


def git_text(paths):
    return "".join(subprocess.run(["git", "-C", ROOT, "show", f"{COMMIT}:{path}"], check=True,
                                  capture_output=True, text=True).stdout for path in paths)


def rows_of(args, methods):
    """Runs the program once a document; yields its rows."""
    with tempfile.TemporaryDirectory() as folder:
        for name in args.documents.split(","):
            document = pathlib.Path(folder) / name
            document.write_text(git_text(DOCUMENTS[name]))
            command = [args.program, args.model, str(args.tokens), str(args.steps), args.budgets,
                       ";".join(methods), str(document)]
            run = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
            for line in run.stdout:
                row = json.loads(line)
                row["document"] = name
                yield row
            if run.wait() != 0:
                sys.exit(run.returncode)


def label(row):
    return row["method"].replace(f"budget={row['budget']}", "").replace(",bypass=1", "").replace(
        ":,", ":").rstrip(":,")


def means(rows):
    """{(method, budget): {field: mean over documents}} and the methods in order."""
    groups = collections.defaultdict(list)
    for row in rows:
        groups[label(row), row["budget"]].append(row)
    fields = ("kl", "top1", "recall", "tokens_read", "tokens_kept")
    table = {}
    for key, group in groups.items():
        table[key] = {f: sum(r[f] for r in group) / len(group) for f in fields}
        for field in ("bytes_read", "bytes_kept", "bytes_index"):
            table[key][field] = sum(r[field] / r["bytes_full"] for r in group) / len(group)
    return table, list(dict.fromkeys(label(row) for row in rows))


def show(rows, out=sys.stdout):
    table, methods = means(rows)
    budgets = sorted({row["budget"] for row in rows})
    def cells(text):
        return " | ".join(text(table[m, b]) if (m, b) in table else "" for b in budgets)
    for title, text in (("mean KL to `full` (nats), top-1 agreement",
                         lambda c: f"{c['kl']:.4f}, {c['top1']:.0%}"),
                        ("attention recall", lambda c: f"{c['recall']:.3f}"),
                        ("rows' worth read a step; rows held, and with the index, of Full-KV",
                         lambda c: f"{c['tokens_read']:.0f}; {c['bytes_kept']:.0%}, "
                                   f"{c['bytes_kept'] + c['bytes_index']:.0%}")):
        print(f"\n{title}\n\n| method | " + " | ".join(f"{b}" for b in budgets) + " |", file=out)
        print("|---" * (len(budgets) + 1) + "|", file=out)
        for m in methods:
            print(f"| `{m}` | {cells(text)} |", file=out)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model", nargs="?")
    parser.add_argument("--tokens", type=int, default=6000)
    parser.add_argument("--steps", type=int, default=64)
    parser.add_argument("--budgets", default="128,256,512,1024")
    parser.add_argument("--documents", default=",".join(DOCUMENTS))
    parser.add_argument("--methods", help="method strings by ';' with {} for the budget")
    parser.add_argument("--beyond", action="store_true", help="RocketKV's own options instead")
    parser.add_argument("--duo", help="head table for duo, made by `rkv calibrate duo`")
    parser.add_argument("--program", default=str(ROOT / "build/release/bench/method_table"))
    parser.add_argument("--out", help="keeps the rows, one JSON object a line")
    parser.add_argument("--show", help="prints the tables of rows kept before")
    args = parser.parse_args()
    if args.show:
        return show([json.loads(line) for line in open(args.show)])
    if not args.model:
        parser.error("a model is needed, or --show")
    methods = args.methods.split(";") if args.methods else BEYOND if args.beyond else METHODS
    if args.duo and not args.methods and not args.beyond:
        methods = methods + [f"duo:budget={{}},table={args.duo}"]
    rows = []
    with open(args.out or "/dev/null", "w") as kept:
        for row in rows_of(args, methods):
            rows.append(row)
            kept.write(json.dumps(row) + "\n")
            kept.flush()
    show(rows)


if __name__ == "__main__":
    main()
