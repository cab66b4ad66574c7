#!/usr/bin/env python3
"""The rows that our evicting methods keep, beside those of kvpress, an independent implementation.

  python3 -m venv /tmp/kvpress && /tmp/kvpress/bin/pip install kvpress==0.5.5
  cmake --preset release && cmake --build --preset release --target kept_rows
  /tmp/kvpress/bin/python bench/kvpress_check.py [--kept-rows build/release/bench/kept_rows]

For developers: neither the set-up nor the tests need it. Both sides get the same random keys and queries,
with options under which they mean the same thing; docs/kvpress_check.md has the results and says where
they mean different things. Exit code 1 when a difference is not one of those.
"""
import argparse
import math
import pathlib
import sys
from dataclasses import dataclass
from importlib import metadata
from typing import Callable

import torch
from kvpress import (AdaKVPress, BasePress, ChunkKVPress, PyramidKVPress, SnapKVPress,
                     StreamingLLMPress)
from kvpress_rows import (KV_HEADS, LAYERS, WINDOW, Kept, MaxPooledSnapKV, Tensors, press_inputs,
                          random_tensors, rows_of_ours, rows_of_press)

KVPRESS = "0.5.5"
ROOT = pathlib.Path(__file__).resolve().parent.parent
FLOOR = 0.2  # Ada-KV's floor, kvpress's alpha_safeguard
BETA = 20  # PyramidKV
UNEXPLAINED = "UNEXPLAINED"


@dataclass
class Pair:
    """What both kept of one prompt, and kvpress's scores of its rows, each head's [rows]."""
    ours: Kept
    theirs: Kept
    scores: list[torch.Tensor]  # [layers], pooled as we do
    scores_theirs: list[torch.Tensor]

    def heads(self):
        for layer, (mine, others) in enumerate(zip(self.ours, self.theirs, strict=True)):
            for head, (ours, theirs) in enumerate(zip(mine, others, strict=True)):
                yield layer, head, set(ours), set(theirs)

    def overlap(self) -> float:
        """Shared rows, as a share of the larger list; the mean of all heads."""
        shares = [len(a & b) / max(len(a), len(b)) for _, _, a, b in self.heads()]
        return sum(shares) / len(shares)


def best_first(kept: list[list[int]], scores: torch.Tensor) -> torch.Tensor:
    """Scores of all rows before the window that a layer keeps, descending."""
    prefix = scores.shape[1] - WINDOW
    chosen = [scores[head, [row for row in rows if row < prefix]] for head, rows in enumerate(kept)]
    return torch.cat(chosen).double().sort(descending=True).values


def no_less(kept: list[list[int]], others: list[list[int]], scores: torch.Tensor) -> bool:
    """Whether `kept` holds the attention mass of `others`, up to rounding."""
    mass, other = (best_first(rows, scores).sum() for rows in (kept, others))
    return bool(mass >= other * (1 - 1e-6))


# A rule returns "equal", "ties" or another word for an explained difference, or None.
Rule = Callable[[Pair], str | None]


def same(pair: Pair) -> str | None:
    """Equal sets, or rows of equal scores in every layer."""
    if all(a == b for _, _, a, b in pair.heads()):
        return "equal"
    for ours, theirs, scores in zip(pair.ours, pair.theirs, pair.scores):
        mine, others = best_first(ours, scores), best_first(theirs, scores)
        if mine.shape != others.shape or not torch.allclose(mine, others, rtol=1e-5, atol=0):
            return None
    return "ties"


def nested(shares: list[float]) -> Rule:
    """Other counts of the best rows in the same order; ours are the layers' shares, rounded."""
    def rule(pair: Pair) -> str | None:
        heads = list(pair.heads())
        fits = all(abs(len(a) - shares[layer]) < 1 and (a <= b or b <= a) for layer, _, a, b in heads)
        total = sum(len(a) for _, _, a, _ in heads)
        return "nested" if fits and math.isclose(total, KV_HEADS * sum(shares)) else None
    return rule


def nested_chunks(width: int) -> Rule:
    """As nested, of whole chunks before the window; the cut ones may differ."""
    def rule(pair: Pair) -> str | None:
        for layer, _, a, b in pair.heads():
            rows = pair.scores[layer].shape[1]
            whole = set(range((rows - WINDOW) // width * width))
            if not ((a & whole <= b or b & whole <= a) and set(range(rows - WINDOW, rows)) <= a & b
                    and abs(len(a) - len(b)) <= 2 * width):
                return None
        return same(pair) or "whole chunks nested"
    return rule


def each_best_by_its_own(pair: Pair) -> str | None:
    """Other scores: by its own, neither side would gain from the other's rows."""
    for ours, theirs, mine, others in zip(pair.ours, pair.theirs, pair.scores, pair.scores_theirs):
        if not (no_less(ours, theirs, mine) and no_less(theirs, ours, others)):
            return None
    return same(pair) or "each best by its own scores"


def lower_floor_more_mass(pair: Pair) -> str | None:
    """kvpress's floor is lower: its total mass is no less, of as many rows."""
    for ours, theirs, scores in zip(pair.ours, pair.theirs, pair.scores):
        if sum(map(len, ours)) != sum(map(len, theirs)) or not no_less(theirs, ours, scores):
            return None
    return same(pair) or "their floor is lower"


@dataclass
class Check:
    name: str  # of the method, as the tables show it
    options: str
    method: str  # our method string
    press: BasePress
    rule: Rule = same
    kernel: int = 1
    press_tensors: Tensors | None = None
    regroup: Callable[[Kept], Kept] = lambda kept: kept


@dataclass
class Prompt:
    tensors: Tensors
    budget: int
    tied: bool

    def ratio(self, budget: int) -> float:
        """The compression ratio with which kvpress keeps exactly `budget` rows."""
        return 1 - (budget + 0.5) / self.tensors.rows


def snapkv_checks(prompt: Prompt) -> list[Check]:
    budget, group = prompt.budget, prompt.tensors.group
    ours = f"snapkv:budget={budget},window_size={WINDOW},kernel_size="
    ratio = prompt.ratio(budget)
    checks = [
        Check("snapkv", "no pooling", ours + "1", SnapKVPress(ratio, WINDOW, 1)),
        Check("snapkv", "maximum of 7", ours + "7", MaxPooledSnapKV(ratio, WINDOW, 7), kernel=7),
        Check("snapkv", "maximum of 5 / average of 5", ours + "5", SnapKVPress(ratio, WINDOW, 5),
              each_best_by_its_own, kernel=5)]
    if group > 1 and not prompt.tied:
        def union(kept: Kept) -> Kept:
            return [[sorted(set().union(*layer[head:head + group]))
                     for head in range(0, len(layer), group)] for layer in kept]
        share = prompt.ratio(max(budget // group, WINDOW + 1))
        checks.append(Check("snapkv", "heads=query, union of the group", ours + "1,heads=query",
                            SnapKVPress(share, WINDOW, 1), regroup=union,
                            press_tensors=prompt.tensors.per_query_head()))
    return checks


def adakv_checks(prompt: Prompt) -> list[Check]:
    budget, ratio = prompt.budget, prompt.ratio(prompt.budget)
    own = budget - WINDOW  # rows that are not the window's
    sure = int(FLOOR * own)
    theirs_sure = max(0, int(FLOOR * budget) - WINDOW)

    def ours(kernel: int, floor: float) -> str:
        return f"adakv:budget={budget},window_size={WINDOW},kernel_size={kernel},floor={floor}"

    plain = SnapKVPress(ratio, WINDOW, 1)
    alpha = (WINDOW + sure + 0.5) / budget  # their floor counts the window
    return [
        Check("adakv", "floor 0.2 = alpha of as many rows", ours(1, FLOOR), AdaKVPress(plain, alpha)),
        Check("adakv", "the same, maximum of 7", ours(7, FLOOR),
              AdaKVPress(MaxPooledSnapKV(ratio, WINDOW, 7), alpha), kernel=7),
        Check("adakv", "floor 0 = alpha 0", ours(1, 0), AdaKVPress(plain, 0)),
        Check("adakv", "floor of as many rows = alpha 0.2",
              ours(1, (theirs_sure + 0.5) / own if theirs_sure else 0), AdaKVPress(plain, FLOOR)),
        Check("adakv", "floor 0.2 / alpha 0.2", ours(1, FLOOR), AdaKVPress(plain, FLOOR),
              lower_floor_more_mass)]


def pyramid_checks(prompt: Prompt) -> list[Check]:
    rows = prompt.tensors.rows

    def check(what: str, budget: int, beta: float, rule: Rule) -> Check:
        return Check("pyramid", what,
                     f"pyramid:budget={budget},window_size={WINDOW},kernel_size=1,beta={BETA}",
                     PyramidKVPress(1 - budget / rows, WINDOW, 1, beta), rule)

    def ours(budget: int) -> Rule:
        base = budget - WINDOW
        most = min(base * (2 - 1 / BETA), rows - WINDOW)
        return nested([budget + (most - base) * (1 - 2 * layer / (LAYERS - 1)) for layer in range(LAYERS)])

    checks = []
    for budget in (WINDOW + 80, prompt.budget):
        last = WINDOW + (budget - WINDOW) / BETA  # their shares count the window
        if 2 * budget - last < rows - WINDOW:  # else the first layer is limited
            checks.append(check("beta 20 / beta of the same last share", budget, budget / last, same))
    if not prompt.tied:
        checks += [check("first layer limited by the prompt", rows // 2, BETA, ours(rows // 2)),
                   check("beta 20 / beta 20", prompt.budget, BETA, ours(prompt.budget))]
    return checks


def chunkkv_checks(prompt: Prompt) -> list[Check]:
    budget, rows = prompt.budget, prompt.tensors.rows

    def check(what: str, width: int, options: str = "", **changes) -> Check:
        chunks = -(-rows // width)
        ratio = 1 - (budget // width + 0.5) / chunks
        method = f"chunkkv:budget={budget},window_size={WINDOW},chunk_size={width}{options}"
        return Check("chunkkv", what, method,
                     ChunkKVPress(SnapKVPress(ratio, WINDOW, 1), width), **changes)

    def twice(kept: Kept) -> Kept:
        return [kept[layer - layer % 2] for layer in range(len(kept))]

    def layers(kept: Kept) -> Kept:
        return [[head for layer in kept[i:i + KV_HEADS] for head in layer]
                for i in range(0, len(kept), KV_HEADS)]

    return [
        check("chunks of 8, which divide all", 8, ",reuse=1"),
        check("the same, reuse=2 / every other layer twice", 8, ",reuse=2", regroup=twice),
        check("the same, heads=group / each KV head alone", 8, ",reuse=1,heads=group", regroup=layers,
              press_tensors=prompt.tensors.per_kv_head()),
        check("chunks of 10, cut by the window", 10, ",reuse=1", rule=nested_chunks(10))]


def streaming_checks(prompt: Prompt) -> list[Check]:
    return [Check("streaming", f"{sinks} sinks", f"streaming:budget={prompt.budget},sinks={sinks}",
                  StreamingLLMPress(prompt.ratio(prompt.budget), sinks)) for sinks in (4, 0, 11)]


def checks_of(prompt: Prompt) -> list[Check]:
    checks = snapkv_checks(prompt) + adakv_checks(prompt) + pyramid_checks(prompt)
    if not prompt.tied:
        checks += chunkkv_checks(prompt) + streaming_checks(prompt)
    return checks


def compare(program: str, prompt: Prompt, check: Check) -> tuple[str, float]:
    tensors = prompt.tensors
    scores = [[press.score(*press_inputs(tensors, layer))[0]
               for layer in range(tensors.keys.shape[0])]
              for press in (MaxPooledSnapKV(0.5, WINDOW, check.kernel),
                            SnapKVPress(0.5, WINDOW, check.kernel))]
    theirs = check.regroup(rows_of_press(check.press, check.press_tensors or tensors))
    pair = Pair(rows_of_ours(program, tensors, check.method), theirs, *scores)
    return check.rule(pair) or UNEXPLAINED, pair.overlap()


def prompts() -> list[Prompt]:
    out = []
    for group in (1, 2, 4):
        for rows, budget in ((200, 64), (480, 96), (1000, 200)):
            for distinct in (rows, 40):
                tensors = random_tensors(7 * rows + group, group, rows, distinct)
                out.append(Prompt(tensors, budget, distinct < rows))
    return out


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kept-rows", default=str(ROOT / "build/release/bench/kept_rows"))
    parser.add_argument("--only", default="", help="methods whose name begins so")
    options = parser.parse_args()
    torch.set_num_threads(1)
    version = metadata.version("kvpress")
    print(f"kvpress {version}, torch {torch.__version__}, transformers "
          f"{metadata.version('transformers')}\n")
    if version != KVPRESS:
        print(f"warning: written for kvpress {KVPRESS}\n", file=sys.stderr)
    unexplained = 0
    summary: dict[tuple[str, str], list[tuple[str, float]]] = {}
    for prompt in prompts():
        shape = f"group {prompt.tensors.group}, {prompt.tensors.rows} rows" + ", tied" * prompt.tied
        for check in (c for c in checks_of(prompt) if c.name.startswith(options.only)):
            verdict, overlap = compare(options.kept_rows, prompt, check)
            unexplained += verdict == UNEXPLAINED
            print(f"{shape}: {check.name}, {check.options}: {verdict}, overlap {overlap:.3f}  "
                  f"[{check.method}]", flush=True)
            summary.setdefault((check.name, check.options), []).append((verdict, overlap))
    print_summary(summary)
    return 1 if unexplained else 0


def print_summary(summary: dict[tuple[str, str], list[tuple[str, float]]]) -> None:
    print("\n| method | options, ours / theirs | prompts | result | least overlap |\n|---|---|---|---|---|")
    for (name, what), results in summary.items():
        verdicts = [verdict for verdict, _ in results]
        counts = ", ".join(f"{verdict} {verdicts.count(verdict)}" for verdict in dict.fromkeys(verdicts))
        print(f"| {name} | {what} | {len(results)} | {counts} | "
              f"{min(overlap for _, overlap in results):.3f} |")


if __name__ == "__main__":
    sys.exit(main())
