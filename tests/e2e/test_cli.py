"""The built `rkv` as its users run it: a process, its streams, signals and exit codes.

  RKV_BIN         the executable
  RKV_TEST_MODEL  a GGUF model with a chat template
"""
import array
import contextlib
import csv
import fcntl
import json
import os
import pathlib
import pty
import re
import signal
import subprocess
import termios
import threading
import time

import pytest

RKV = os.environ.get("RKV_BIN", "")
MODEL = os.environ.get("RKV_TEST_MODEL", "")
for _name, _path in (("RKV_BIN", RKV), ("RKV_TEST_MODEL", MODEL)):
    if not os.path.isfile(_path):
        pytest.skip(f"{_name} names no file: '{_path}'", allow_module_level=True)

TIMEOUT = 120  # seconds; a hang fails, a busy machine does not
SENTENCE = "The lighthouse at Corran was painted white in the spring, and the ferry ran late. "
PATIENCE = 1.0  # seconds from Ctrl-C to the end of the process


def environment(**extra):
    clean = {k: v for k, v in os.environ.items() if not k.startswith(("RKV_", "LLAMA_ARG_"))}
    return {**clean, "TERM": "xterm", **extra}


def rkv(*args, env=None, **options):
    """Runs to the end; text streams."""
    return subprocess.run([RKV, *args], env=env or environment(), capture_output=True, text=True,
                          timeout=TIMEOUT, stdin=options.pop("stdin", subprocess.DEVNULL), **options)


def run(*args, **options):
    return rkv("run", "-m", MODEL, "--temp", "0", *args, **options)


def only_error(result, code):
    """The message of a command that failed with one line and printed nothing else."""
    assert result.returncode == code, result.stderr
    assert result.stdout == ""
    lines = [line for line in result.stderr.splitlines() if not line.startswith("warning: ")]
    assert len(lines) == 1 and lines[0].startswith("rkv: error: "), result.stderr
    return lines[0]


@pytest.fixture
def document(tmp_path):
    path = tmp_path / "document.txt"
    path.write_text(SENTENCE * 20)
    return str(path)


@pytest.fixture
def long_document(tmp_path, document):
    """Fills most of the model's context."""
    report = json.loads(run("-f", document, "-n", "0", "--json").stdout)
    sentences = int(20 * 0.8 * report["settings"]["context"] / report["prompt_tokens"])
    path = tmp_path / "long.txt"
    path.write_text(SENTENCE * sentences)
    return str(path)


# Help and usage.


def test_help_and_version():
    for args in (("--help",), ("help",), ("help", "run"), ("chat", "--help")):
        result = rkv(*args)
        assert result.returncode == 0 and "Usage: rkv" in result.stdout and result.stderr == ""
    assert re.fullmatch(r"rkv \d+\.\d+\.\d+\n", rkv("--version").stdout)
    assert "no effect here" in rkv("run", "--help").stdout  # of -fa


def test_no_command_prints_help_on_stderr():
    result = rkv()
    assert result.returncode == 2 and result.stdout == "" and "Usage: rkv" in result.stderr


@pytest.mark.parametrize("args, words", [
    (("rum",), "did you mean run?"),
    (("run", "--ctx-sise", "5"), "did you mean --ctx-size?"),
    (("run", "-temp", "5"), "did you mean --temp?"),
    (("run", "-p", "hi", "-n", "many"), "--predict: 'many'"),
    (("run", "-p", "hi", "--top-p", "2"), "--top-p: '2'"),
    (("run", "-p", "hi", "-ctk", "q4_0", "-ctv", "q4_0"), "'q4_0'"),
    (("run", "-p", "hi", "-ctk", "bf16"), "--cache-type-v"),
    (("run", "-p", "hi", "--kv", "nosuch:budget=1"), "nosuch"),
    (("run", "-p", "hi", "--kv", "rocketkv:budget=abc"), "abc"),
    (("run", "-p", "hi", "--compare", "nosuch"), "--compare"),
    (("run",), "-p TEXT"),
    (("run", "-p", ""), "-p TEXT"),
    (("run", "-p", "a", "-p", ""), "--prompt: one of several questions is empty"),
    (("chat", "-p", "hi"), "there is no flag -p"),
    (("run", "report.txt"), "-f FILE"),
])
def test_usage_errors_are_one_line_and_exit_2(args, words):
    assert words in only_error(rkv(*args), 2)


def test_usage_is_checked_before_the_model_is_opened():
    assert "nosuch" in only_error(rkv("run", "-m", "/no/model.gguf", "-p", "x", "--kv", "nosuch"), 2)


def test_variables_stand_behind_arguments():
    env = environment(LLAMA_ARG_CTX_SIZE="512", RKV_THREADS="1", LLAMA_ARG_THREADS="2")
    settings = json.loads(rkv("info", MODEL, "--json", env=env).stdout)["settings"]
    assert (settings["context"], settings["threads"]) == (512, 1)
    settings = json.loads(rkv("info", MODEL, "--json", "-c", "256", env=env).stdout)["settings"]
    assert settings["context"] == 256
    bad = rkv("info", MODEL, env=environment(RKV_THREADS="many"))
    assert "RKV_THREADS: 'many'" in only_error(bad, 2)


# Files and the model.


def test_missing_and_broken_files_exit_1(tmp_path, document):
    assert "/no/model.gguf" in only_error(rkv("run", "-m", "/no/model.gguf", "-p", "x"), 1)
    assert "/no/document" in only_error(run("-f", "/no/document"), 1)
    assert "folder" in only_error(run("-f", str(tmp_path)), 1)
    assert document in only_error(rkv("run", "-m", document, "-p", "x"), 1)  # no GGUF
    cut = tmp_path / "cut.gguf"
    cut.write_bytes(pathlib.Path(MODEL).read_bytes()[:100000])
    assert "cut.gguf" in only_error(rkv("run", "-m", str(cut), "-p", "x"), 1)


def test_document_that_is_not_utf8_names_the_byte(tmp_path):
    path = tmp_path / "latin1.txt"
    path.write_bytes(b"caf\xe9")
    assert "offset 3" in only_error(run("-f", str(path), "-p", "x"), 1)


def test_prompt_longer_than_the_context_names_both_numbers(document):
    message = only_error(run("-f", document, "-p", "Why?", "-c", "128"), 1)
    numbers = [int(n) for n in re.findall(r"\d+", message)]
    assert 128 in numbers and any(n > 128 for n in numbers), message


def test_memory_limit_names_what_is_needed_and_what_fits(long_document):
    message = only_error(run("-f", long_document, "--mem-limit", "1M"), 1)
    numbers = [int(n) for n in re.findall(r"(?<![\d.])\d+(?![\d.])", message)]
    assert 1 << 20 in numbers, message  # available
    assert any(n > 1 << 20 for n in numbers), message  # needed
    assert re.search(r"largest (prompt|context)", message), message


# Answers.


def check_report(report):
    assert report["prompt_tokens"] > 0
    assert report["stop_reason"] in ("end_of_generation", "max_tokens")
    assert report["prefill"]["tokens_per_second"] > 0 and report["decode"]["seconds"] > 0
    kv = report["kv"]
    assert 0 < kv["bytes_kept"] <= kv["bytes_peak"]
    assert kv["bytes_layer"] > 0 and kv["tokens_kept"] > 0 and 0 <= kv["dense_share"] <= 1
    assert {"bytes_full", "bytes_index", "bytes_parked", "tokens_read_per_step", "bytes_read_per_step"} <= kv.keys()
    assert report["memory"]["rss_peak_bytes"] >= report["memory"]["rss_bytes"] > 0
    assert report["memory"]["weights_bytes"] == os.path.getsize(MODEL)
    assert report["memory"]["scratch_bytes"] > 0
    assert set(report["settings"]) == {"threads", "context", "kv_type", "compute", "repack",
                                       "piece_tokens", "seed"}
    assert any(name.startswith("prefill.") for name in report["stages"])
    assert isinstance(report["warnings"], list)


def test_json_of_a_run_is_complete_and_alone(document):
    result = run("-f", document, "-p", "What colour is it?", "-n", "8", "--json", "-v", "-s", "3",
                 "--kv", "rocketkv:budget=128")
    assert result.returncode == 0, result.stderr
    report = json.loads(result.stdout)
    check_report(report)
    assert report["policy"].startswith("rocketkv:budget=128,")
    assert report["settings"]["seed"] == 3
    assert report["generated_tokens"] == len(report["tokens"]) <= 8


def test_text_goes_to_stdout_and_statistics_to_stderr(document):
    result = run("-f", document, "-p", "What colour is it?", "-n", "8")
    assert result.returncode == 0 and result.stdout.strip() and result.stdout.endswith("\n")
    assert "KV" not in result.stdout
    for label in ("prompt", "prefill", "decode", "KV full", "KV kept", "KV peak", "tokens kept"):
        assert label in result.stderr
    assert "\x1b" not in result.stderr  # no progress line away from a terminal
    same = json.loads(run("-f", document, "-p", "What colour is it?", "-n", "8", "--json").stdout)
    assert result.stdout.rstrip("\n") == same["text"].rstrip("\n")


def test_a_seed_repeats_the_answer():
    args = ("-m", MODEL, "-p", "Tell me a story.", "-n", "12", "--json")
    texts = {json.loads(rkv("run", *args, "-s", "11").stdout)["text"] for _ in range(2)}
    assert len(texts) == 1


def test_compare_answers_twice_from_one_prefill(document):
    args = ("-f", document, "-p", "What colour?", "-n", "6", "--kv", "rocketkv:budget=64",
            "--compare", "full")
    result = run(*args)
    assert result.returncode == 0, result.stderr
    assert re.match(r"== rocketkv:budget=64 ==\n(.*\n)+== full ==\n", result.stdout)
    assert re.search(r"^method +rocketkv:budget=64 +full$", result.stderr, re.M)
    runs = json.loads(run(*args, "--json").stdout)["runs"]
    assert [r["policy"].split(":")[0] for r in runs] == ["rocketkv", "full"]
    for report in runs:
        check_report(report)
    assert runs[0]["kv"]["tokens_kept"] < runs[1]["kv"]["tokens_kept"]
    assert runs[0]["prompt_tokens"] == runs[1]["prompt_tokens"]


QUESTIONS = ("-p", "What colour is it?", "-p", "Why?", "-p", "And the ferry?")


def test_several_questions_are_turns_of_one_session(document):
    args = ("-f", document, *QUESTIONS, "-n", "6", "--kv", "rocketkv:budget=64")
    result = run(*args)
    assert result.returncode == 0, result.stderr
    answers = json.loads(run(*args, "--json").stdout)["answers"]
    assert [a["prompt"] for a in answers] == ["What colour is it?", "Why?", "And the ferry?"]
    for answer in answers:
        check_report(answer)
    blocks = [f"> {a['prompt']}\n{a['text']}".rstrip("\n") + "\n" for a in answers]
    assert result.stdout == "\n".join(blocks)
    assert answers[0]["prompt_tokens"] > 10 * max(a["prompt_tokens"] for a in answers[1:])
    assert answers[0]["kv"]["bytes_full"] < answers[1]["kv"]["bytes_full"] < answers[2]["kv"]["bytes_full"]
    total = sum(a["prompt_tokens"] for a in answers)
    assert re.search(rf"^prompt +{total} tokens$", result.stderr, re.M)


def test_several_questions_answer_as_chat_does(document):
    args = ("--kv", "rocketkv:budget=64", "-f", document, "--json")
    talked = chat("What colour is it?\nWhy?\nAnd the ferry?\n", *args).stdout.splitlines()
    answers = json.loads(run(*QUESTIONS, "-n", "8", *args).stdout)["answers"]
    assert [a["text"] for a in answers] == [json.loads(line)["text"] for line in talked]


def test_several_questions_compare_methods(document):
    runs = json.loads(run("-f", document, *QUESTIONS, "-n", "4", "--kv", "rocketkv:budget=64", "--compare",
                          "full", "--json").stdout)["runs"]
    alone = json.loads(run("-f", document, *QUESTIONS, "-n", "4", "--kv", "full", "--json").stdout)
    assert [len(r["answers"]) for r in runs] == [3, 3]
    assert [a["text"] for a in runs[1]["answers"]] == [a["text"] for a in alone["answers"]]


def test_several_questions_of_raw_text():
    raw = json.loads(run("--raw", "-p", "One two three", "-p", " four five", "-n", "2", "--json").stdout)
    first, second = raw["answers"]
    alone = [json.loads(run("--raw", "-p", text, "-n", "1", "--json").stdout)["prompt_tokens"]
             for text in ("One two three", " four five")]
    assert (first["prompt_tokens"], second["prompt_tokens"]) == (alone[0], alone[1] - 1)  # no second BOS


def test_a_question_that_does_not_fit_is_named(document):
    first = json.loads(run("-f", document, "-p", "Why?", "-n", "4", "--json").stdout)["prompt_tokens"]
    result = run("-f", document, "-p", "Why?", "-p", "Where?", "-n", "4", "-c", str(first + 6))
    assert result.returncode == 1 and result.stdout.startswith("> Why?\n")
    assert re.search(r"^rkv: error: --prompt 'Where\?': .*context holds", result.stderr, re.M)


def test_document_comes_from_standard_input(document):
    with open(document) as stdin:
        piped = run("-f", "-", "-p", "Why?", "-n", "4", "--json", stdin=stdin)
    named = run("-f", document, "-p", "Why?", "-n", "4", "--json")
    a, b = json.loads(piped.stdout), json.loads(named.stdout)
    assert (a["text"], a["prompt_tokens"]) == (b["text"], b["prompt_tokens"])


def test_stop_string_is_not_printed():
    free = json.loads(run("-p", "Count to five.", "-n", "16", "--json").stdout)["text"]
    stop = free[len(free) // 2:][:4]
    stopped = json.loads(run("-p", "Count to five.", "-n", "16", "-r", stop, "--json").stdout)
    assert stopped["text"] == free[:free.index(stop)]
    assert stopped["stop_reason"] == "stop_string"


def test_raw_has_no_template():
    raw = json.loads(run("--raw", "-p", "One two three", "-n", "1", "--json").stdout)
    chat = json.loads(run("-p", "One two three", "-n", "1", "--json").stdout)
    assert raw["prompt_tokens"] < chat["prompt_tokens"]


def test_more_threads_than_cpus_still_finish():
    result = run("-p", "hi", "-n", "2", "-t", str(4 * os.cpu_count()))
    assert result.returncode == 0 and "warning: " in result.stderr


def test_info_and_policies():
    info = json.loads(rkv("info", MODEL, "--kv", "rocketkv:budget=256", "--json").stdout)
    assert info["plan"]["kv_bytes_kept"] < info["plan"]["kv_bytes_full"]
    assert info["kv_bytes_full"] == info["kv_bytes_per_token"] * info["trained_context"]
    assert "Full-KV" in rkv("info", MODEL).stdout
    names = [p["name"] for p in json.loads(rkv("policies", "--json").stdout)["policies"]]
    assert {"full", "rocketkv"} <= set(names)
    assert all(name in rkv("policies").stdout for name in names)


def test_policies_explain_what_a_run_then_does(document):
    """The numbers of a shape are those that a session of that shape counts."""
    method = "rocketkv:budget=128"
    report = json.loads(run("-f", document, "-p", "What colour is it?", "-n", "8", "--ignore-eos",
                            "--kv", method, "--json").stdout)
    context = report["prompt_tokens"] + 8
    told = json.loads(rkv("policies", "--explain", method, "-m", MODEL, "-c", str(context), "-n", "8",
                          "--json").stdout)
    assert told["policy"] == report["policy"] and told["model"] == MODEL
    assert told["shape"]["context"] == context and told["shape"]["kv_type"] == "f16"
    kv = report["kv"]
    # The prompt's last token comes after the eviction: one row more.
    assert told["rows_held"] == pytest.approx(kv["tokens_kept"], abs=1)
    assert told["rows_read"] == pytest.approx(kv["tokens_read_per_step"], rel=0.01)
    assert told["bytes_read"] == pytest.approx(kv["bytes_read_per_step"], rel=0.01)
    assert told["full"]["bytes_held"] == kv["bytes_full"]
    assert told["rows_read"] < told["full"]["rows_read"]


def test_policies_explain_without_a_model():
    result = rkv("policies", "--explain", "rocketkv:budget=512", "--context", "16384", "-n", "1")
    assert result.returncode == 0 and result.stderr == ""
    assert re.search(r"capacity +2896$", result.stdout, re.M)
    assert re.search(r"KV held +362 MiB \(17.7%\) +2.00 GiB$", result.stdout, re.M)


@pytest.mark.parametrize("args, words", [
    (("--explain", "nosuch"), "--explain: unknown method 'nosuch'"),
    (("--explain", "full", "-c", "100"), "max_new_tokens must be from 1 to 99, got 256"),
    (("--explain", "full", "-n", "0"), "got 0"),
    (("--explain", "full", "-c", "2147483647"), "context must be from 2 to 1073741824"),
    (("--explain", "rocketkv:topr=129"), "from 1 to 128"),
    (("--explain", ""), "--explain: the value is empty"),
])
def test_policies_explain_usage_errors(args, words):
    assert words in only_error(rkv("policies", *args), 2)


# Head tables.


def test_calibrate_makes_a_table_that_duo_takes(tmp_path, document):
    path = tmp_path / "duo.json"
    path.write_text("old")
    result = rkv("calibrate", "duo", "-m", MODEL, "-f", document, "-o", str(path))
    assert result.returncode == 0, result.stderr
    assert result.stdout == "" and str(path) in result.stderr
    assert list(tmp_path.glob("*.tmp")) == []
    table = json.loads(path.read_text())
    assert table["format"] == "rkv-head-table" and table["method"] == "duo"
    assert len(table["scores"]) == table["layers"]
    assert all(len(layer) == table["kv_heads"] for layer in table["scores"])
    text = rkv("calibrate", "duo", "-m", MODEL, "-f", document, "-o", "-").stdout
    assert json.loads(text) == table
    report = json.loads(run("-f", document, "-n", "4", "--json", "--kv",
                            f"duo:budget=64,table={path}").stdout)
    assert report["kv"]["tokens_kept"] <= 64 + 5
    table["model"] = "another"
    path.write_text(json.dumps(table))
    refused = run("-f", document, "--kv", f"duo:budget=64,table={path}")
    assert "head table is of model 'another'" in only_error(refused, 1)


def test_calibrate_errors(tmp_path):
    missing = rkv("calibrate", "duo", "-m", MODEL, "-o", str(tmp_path / "none" / "duo.json"))
    assert "cannot write" in only_error(missing, 1)
    assert "known: duo, catekv" in only_error(rkv("calibrate", "snapkv", "-m", MODEL, "-o", "-"), 1)
    assert "rkv calibrate duo -m MODEL" in only_error(run("-p", "hi", "--kv", "duo"), 2)
    only_error(rkv("calibrate", "-m", MODEL, "-o", "-"), 2)


# Benchmarks.


def bench(*args, **options):
    return rkv("bench", "-m", MODEL, "-r", "2", *args, **options)


def test_bench_takes_turns_with_libllama():
    result = bench("-p", "32", "-n", "4", "-d", "0,200", "--kv", "full,rocketkv:budget=64",
                   "--peer", "llama.cpp", "-o", "json")
    assert result.returncode == 0, result.stderr
    report = json.loads(result.stdout)
    header, rows = report["header"], report["rows"]
    assert header["model"] == MODEL and header["cpu"] and "llama.cpp" in header["peers"][0]
    assert header["weight_bytes_per_token"] > 0 and header["teams"][0]["probe_gb_per_second"]["min"] > 0
    settings = [(row["engine"], row["setting"], row["kv"]) for row in rows[:5]]
    assert settings == [("rkv", "", "full"), ("rkv", "", "rocketkv:budget=64"), ("llama.cpp", "fa0", "f16"),
                        ("llama.cpp", "fa1", "f16"), ("llama.cpp", "fa1-q8_0", "q8_0")]
    tests = list(dict.fromkeys(row["test"] for row in rows))
    assert tests == ["pp32", "tg4", "pp32 @ d200", "tg4 @ d200"] and len(rows) == 20
    for row in rows:
        speed = row["tokens_per_second"]
        assert 0 < speed["min"] <= speed["median"] <= speed["max"]
        assert row["ratio_to_peer"] > 0 and row["ratio_to_peer_default"] > 0
    full, rocket, dense = (next(r for r in rows if r["test"] == "tg4 @ d200" and r["kv"] == kv)
                           for kv in ("full", "rocketkv:budget=64", "f16"))
    assert full["kv_bytes_per_token"] == pytest.approx(dense["kv_bytes_per_token"], rel=0.02)
    assert rocket["kv_bytes_per_token"] < 0.6 * full["kv_bytes_per_token"]
    assert rocket["ratio_to_full"] > 0 and rocket["predicted_ratio_to_full"] > 0
    assert {"linear", "attend", "select", "rest"} <= set(rocket["stages"])
    assert sum(row["peer_default"] for row in rows if row["test"] == "tg4") == 1
    assert max((r for r in rows if r["test"] == "tg4" and r["engine"] == "llama.cpp"),
               key=lambda r: r["tokens_per_second"]["median"])["ratio_to_peer"] == 1


def test_bench_limits_its_peer_to_some_settings():
    result = bench("-p", "0", "-n", "2", "--kv", "full", "--peer", "llama.cpp", "--peer-settings",
                   "default", "-o", "jsonl")
    rows = [json.loads(line) for line in result.stdout.splitlines()]
    assert len(rows) == 3 and rows[2]["peer_default"] and rows[2]["peer_best"]


def test_bench_formats():
    args = ("-p", "8", "-n", "2", "--kv", "full;rocketkv:budget=64,window_size=4")
    table = bench(*args).stdout
    assert "| engine" in table and "rocketkv:budget=64,window_size=4" in table
    assert "Milliseconds of a token by stage" in table
    lines = bench(*args, "-o", "csv").stdout.splitlines()
    rows = list(csv.DictReader(lines))
    assert len(rows) == 4 and rows[3]["kv"] == "rocketkv:budget=64,window_size=4"
    assert float(rows[3]["tokens_per_second_median"]) > 0 and float(rows[3]["stage_linear"]) > 0
    objects = [json.loads(line) for line in bench(*args, "-o", "jsonl").stdout.splitlines()]
    assert "version" in objects[0]["header"] and [o["test"] for o in objects[1:]] == ["pp8", "pp8", "tg2", "tg2"]


def test_bench_times_random_rows_and_shapes():
    result = bench("-p", "0", "-n", "2", "-d", "3000", "--fill", "random", "-o", "json")
    assert result.returncode == 0 and json.loads(result.stdout)["header"]["fill"] == "random"
    result = rkv("bench", "--shape", "smollm2-135m", "-p", "0", "-n", "1", "-d", "64", "-r", "1",
                 "--kv", "full", "-o", "json")
    assert result.returncode == 0, result.stderr
    report = json.loads(result.stdout)
    assert "smollm2-135m" in report["header"]["model"] and len(report["rows"]) == 1


@pytest.mark.parametrize("args, words", [
    (("-p", "5x"), "--n-prompt: '5x'"),
    (("-d", "1,-1"), "--n-depth: '-1'"),
    (("-r", "0"), "--repetitions: '0'"),
    (("-o", "xml"), "md, json, csv or jsonl"),
    (("-p", "0", "-n", "0"), "nothing to time"),
    (("--kv", "full,nosuch"), "nosuch"),
    (("--kv", "full,rocketkv:budget=abc"), "abc"),
    (("--peer", "other"), "llama.cpp or openvino"),
    (("--peer", "llama.cpp", "--peer-settings", "fa2"), "default, fa0, fa1, fa1-q8_0"),
    (("--shape", "smollm2-135m"), "drop -m"),
])
def test_bench_usage_errors(args, words):
    assert words in only_error(bench(*args), 2)


def test_bench_errors_exit_1(tmp_path):
    assert "context of 9009 tokens" in only_error(bench("-d", "9000", "-p", "0", "-n", "8"), 1)
    missing = bench("-p", "8", "--peer", "openvino", "--peer-python", "/no/python")
    assert "/no/python" in only_error(missing, 1)
    script = tmp_path / "peer.py"
    script.write_text("import sys\nsys.exit(3)\n")
    ended = bench("-p", "8", "--peer", "openvino", "--peer-script", str(script))
    assert "ended with code 3" in only_error(ended, 1)


def test_bench_without_openvino_says_what_to_install(tmp_path):
    # -S leaves site-packages out, so that the package is missing everywhere.
    python = tmp_path / "python"
    python.write_text('#!/bin/sh\nexec python3 -S -E "$@"\n')
    python.chmod(0o755)
    result = bench("-p", "8", "--peer", "openvino", "--peer-python", str(python))
    assert "openvino-genai" in only_error(result, 1)


def test_ctrl_c_in_bench_prints_what_was_measured():
    # Tests of a moment, then one that would take minutes.
    process = subprocess.Popen([RKV, "bench", "-m", MODEL, "-p", "16", "-n", "3000", "-r", "1000",
                                "--kv", "full", "-o", "json", "--no-warmup"], env=environment(),
                               stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    time.sleep(3)
    start = time.monotonic()
    process.send_signal(signal.SIGINT)
    out, _ = process.communicate(timeout=TIMEOUT)
    assert process.returncode == 130 and time.monotonic() - start < PATIENCE
    assert json.loads(out)["rows"][0]["test"] == "pp16"


# Chat.


def chat(text, *args):
    return subprocess.run([RKV, "chat", "-m", MODEL, "--temp", "0", "-n", "8", *args], input=text,
                          env=environment(), capture_output=True, text=True, timeout=TIMEOUT)


def test_chat_ends_with_its_input():
    for text in ("", "\n", "/exit\n"):
        result = chat(text)
        assert (result.returncode, result.stdout) == (0, ""), result.stderr


def test_chat_continues_one_session():
    result = chat("Hello there.\nAnd then?\n", "--json")
    assert result.returncode == 0, result.stderr
    first, second = [json.loads(line) for line in result.stdout.splitlines()]
    check_report(first)
    check_report(second)
    # Only the new message was computed in the second turn, on top of everything before.
    assert second["prompt_tokens"] < first["prompt_tokens"] + first["generated_tokens"]
    assert second["kv"]["bytes_full"] > first["kv"]["bytes_full"]


def test_chat_answers_in_text_and_prints_statistics(document):
    result = chat("What colour?\nWhy?\n/stats\n/quit\nnever\n", "-f", document)
    assert result.returncode == 0 and len(result.stdout.splitlines()) >= 2
    assert result.stderr.count("KV kept") == 2  # /stats, and the end


def test_chat_says_when_the_context_is_full():
    result = chat((SENTENCE * 3 + "\n") * 20, "-c", "192")
    assert result.returncode == 1
    assert "context" in result.stderr and "192" in result.stderr


DROPPED = "rocketkv dropped rows of earlier turns"


def test_dropped_rows_are_told_once(document):
    result = chat("What colour?\nWhy?\nWhere?\n", "-f", document, "--kv", "rocketkv:budget=64", "--json")
    turns = [json.loads(line)["warnings"] for line in result.stdout.splitlines()]
    assert [len(warnings) for warnings in turns] == [0, 1, 0] and DROPPED in turns[1][0]
    assert result.stderr.count(f"warning: {DROPPED}") == 1
    result = run("-f", document, *QUESTIONS, "-n", "4", "--kv", "rocketkv:budget=64", "--compare", "full",
                 "--json")
    runs = [[len(a["warnings"]) for a in r["answers"]] for r in json.loads(result.stdout)["runs"]]
    assert runs == [[0, 1, 0], [0, 0, 0]]
    assert result.stderr.count(f"warning: {DROPPED}") == 1
    one = run("-f", document, "-p", "What colour?", "-n", "4", "--kv", "rocketkv:budget=64")
    assert DROPPED not in one.stderr


# Ctrl-C, closed and full outputs.


class Terminal:
    """A pseudo terminal whose output is collected as it comes."""

    def __init__(self):
        self.master, self.slave = pty.openpty()
        self.output = b""
        self._thread = threading.Thread(target=self._collect, daemon=True)
        self._thread.start()

    def _collect(self):
        with contextlib.suppress(OSError):  # the other side is closed
            while data := os.read(self.master, 4096):
                self.output += data

    def wait_for(self, text, times=1):
        deadline = time.monotonic() + TIMEOUT
        while self.output.count(text) < times:
            assert time.monotonic() < deadline, self.output
            time.sleep(0.005)

    def close(self):
        os.close(self.slave)
        self._thread.join(TIMEOUT)
        os.close(self.master)


@pytest.fixture
def terminal():
    opened = Terminal()
    yield opened
    with contextlib.suppress(OSError):
        opened.close()


def wait_until_empty(pipe):
    """Until the other side has read all that was written."""
    deadline = time.monotonic() + TIMEOUT
    count = array.array("i", [1])
    while count[0] > 0:
        assert time.monotonic() < deadline
        time.sleep(0.005)
        fcntl.ioctl(pipe.fileno(), termios.FIONREAD, count)


def interrupt(process):
    start = time.monotonic()
    process.send_signal(signal.SIGINT)
    code = process.wait(TIMEOUT)
    assert time.monotonic() - start < PATIENCE
    return code


def test_ctrl_c_in_prefill_erases_the_progress(long_document, terminal):
    # Pieces of one token: a prefill of many seconds with any model.
    process = subprocess.Popen([RKV, "run", "-m", MODEL, "-f", long_document, "-b", "1", "-t", "1"],
                               env=environment(), stdout=subprocess.PIPE, stderr=terminal.slave)
    terminal.wait_for(b"tok/s  ETA")
    assert interrupt(process) == 130
    assert process.stdout.read() == b""
    terminal.close()
    assert re.search(rb"\r\x1b\[Kprefill +\d+% \[", terminal.output)
    assert terminal.output.endswith(b"\r\x1b[K")


def test_ctrl_c_in_decode_keeps_the_text():
    process = subprocess.Popen([RKV, "run", "-m", MODEL, "-p", "Tell me a long story.", "-n", "4000",
                                "--ignore-eos"], env=environment(), stdout=subprocess.PIPE,
                               stderr=subprocess.PIPE)
    start = process.stdout.read(3)
    assert interrupt(process) == 130
    text = start + process.stdout.read()
    assert text.endswith(b"\n") and text.decode("utf-8")
    assert process.stderr.read() == b""


def test_ctrl_c_at_a_terminal_ends_an_answer_but_not_the_chat(terminal):
    process = subprocess.Popen([RKV, "chat", "-m", MODEL, "-n", "4000", "--ignore-eos"],
                               env=environment(), stdin=terminal.slave, stdout=subprocess.PIPE,
                               stderr=terminal.slave)
    terminal.wait_for(b"> ")
    os.write(terminal.master, b"Tell me a long story.\n")
    assert process.stdout.read(3)
    process.send_signal(signal.SIGINT)
    terminal.wait_for(b"> ", times=2)
    os.write(terminal.master, b"/exit\n")
    assert process.wait(TIMEOUT) == 0


def test_ctrl_c_while_the_document_is_read(tmp_path):
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    with open(os.open(fifo, os.O_RDWR), "wb", buffering=0) as writer:  # and never ends
        process = subprocess.Popen([RKV, "run", "-m", MODEL, "-f", str(fifo)], env=environment(),
                                   stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        writer.write(b"x")
        wait_until_empty(writer)
        assert interrupt(process) == 130
        assert process.stderr.read() == b""


def test_a_reader_that_leaves_ends_the_run():
    process = subprocess.Popen([RKV, "run", "-m", MODEL, "-p", "Tell me a long story.", "-n", "4000",
                                "--ignore-eos"], env=environment(), stdout=subprocess.PIPE,
                               stderr=subprocess.PIPE)
    assert process.stdout.read(1)
    process.stdout.close()
    assert process.wait(TIMEOUT) == 1
    assert process.stderr.read() == b""


def test_a_full_disk_is_reported():
    with open("/dev/full", "w") as full:
        for args in (("--help",), ("run", "-m", MODEL, "-p", "hi", "-n", "4"),
                     ("run", "-m", MODEL, "-p", "hi", "-n", "4", "--json")):
            result = subprocess.run([RKV, *args], env=environment(), stdout=full, text=True,
                                    stderr=subprocess.PIPE, timeout=TIMEOUT)
            assert result.returncode == 1
            assert "cannot write to stdout: No space left on device" in result.stderr


def test_a_closed_stdout_is_reported():
    command = f'exec "{RKV}" --version >&-'
    result = subprocess.run(["sh", "-c", command], env=environment(), capture_output=True, text=True,
                            timeout=TIMEOUT)
    assert result.returncode == 1 and "cannot write to stdout" in result.stderr
