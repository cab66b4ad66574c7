"""Five facts in a document of 6,000 tokens, asked for in one chat and then in reverse order."""
import json
import os
import pathlib
import subprocess

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
RKV = os.environ.get("RKV_BIN", str(ROOT / "build/release/rkv"))
QWEN = ROOT / ".deps/models/qwen2.5-coder-0.5b-instruct-q4_k_m.gguf"
FACTS = [
    ("The code of the lighthouse door is 4172.", "What is the code of the lighthouse door?", "4172"),
    ("The ferry to Norby leaves from pier 9.", "From which pier does the ferry to Norby leave?", "9"),
    ("The name of the harbour cat is Biscuit.", "What is the name of the harbour cat?", "Biscuit"),
    ("The annual fair takes place on the 23rd of August.",
     "On which date does the annual fair take place?", "23"),
    ("The key of the archive hangs behind the green clock.",
     "Behind what does the key of the archive hang?", "clock"),
]

needs_qwen = pytest.mark.skipif(not QWEN.exists(),
                                reason="no Qwen2.5-Coder-0.5B here (scripts/setup --qwen)")


def document():
    """The chronicle and, as filler that no question is about, tables of made-up measurements; the
    facts at even distances."""
    paragraphs = (ROOT / "examples/chronicle.txt").read_text().split("\n\n")
    paragraphs += ["On day %d of the survey the crew noted a depth of %d fathoms, a wind of %d knots from "
                   "the %s and %d sails in sight, and wrote nothing else into the book." %
                   (day, 20 + day * 7 % 31, 5 + day * 3 % 23, ("north", "east", "south", "west")[day % 4],
                    day * 5 % 9) for day in range(1, 71)]
    for i, (fact, _, _) in reversed(list(enumerate(FACTS))):
        paragraphs.insert(int(len(paragraphs) * (i + 0.5) / len(FACTS)), fact)
    return "\n\n".join(paragraphs)


def ask(tmp_path, method, questions):
    path = tmp_path / "document.txt"
    path.write_text(document())
    prompts = [part for question in questions for part in ("-p", question)]
    done = subprocess.run(
        [RKV, "run", "-m", str(QWEN), "-f", str(path), "--kv", method, "--temp", "0", "-n", "24",
         "--json", *prompts], capture_output=True, text=True, check=True, timeout=600)
    return json.loads(done.stdout)["answers"], done.stderr


@needs_qwen
def test_rocketkv_mt_answers_what_full_answers(tmp_path):
    order = FACTS + FACTS[::-1]
    questions = [question for _, question, _ in order]
    full, _ = ask(tmp_path, "full", questions)
    multi, warnings = ask(tmp_path, "rocketkv-mt:budget=512", questions)
    assert full[0]["prompt_tokens"] > 5500
    known = [word in answer["text"] for (_, _, word), answer in zip(order, full)]
    assert sum(known) >= 8, [answer["text"] for answer in full]
    for (_, question, word), answer, expected in zip(order, multi, known):
        assert not expected or word in answer["text"], (question, answer["text"])
    assert "dropped rows" not in warnings
    assert not any(answer["warnings"] for answer in multi)


@needs_qwen
def test_rocketkv_warns_once_that_it_dropped_rows(tmp_path):
    answers, warnings = ask(tmp_path, "rocketkv:budget=256", [q for _, q, _ in FACTS[:3]])
    assert warnings.count("dropped rows of earlier turns") == 1
    assert [len(answer["warnings"]) for answer in answers] == [0, 1, 0]
    assert "rocketkv-mt" in answers[1]["warnings"][0]
