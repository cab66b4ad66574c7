#!/usr/bin/env python3
"""OpenVINO GenAI as a peer of `rkv bench`: requests and answers are JSON, one a line, on stdin and stdout.

  {"op": "open", "model": FILE, "threads": N, "context": N, "kv_numbers_per_token": X, "settings": [NAME]}
      -> {"version": TEXT, "settings": [{"name", "kv", "default", "weight_bytes"}]}
  {"op": "prompt", "setting": I, "depth": 0, "ids": [..]}          times a prompt
  {"op": "decode", "setting": I, "ids": [..], "tokens": N}         times N tokens behind the ids
      -> {"seconds": X, "kv_bytes_per_token": X}

Any answer may be {"error": TEXT}; with "unsupported": true only this request cannot be done. OpenVINO
reads GGUF files of Q4_1 and Q8_0, not of Q5_0: bench/requantize makes a Q8_0 copy.
"""
import json
import os
import sys

KV_BYTES = {"u8": 1.0, "f16": 2.0}  # of a number; scales and zero points of u8 left out
EVICTION = (32, 128, 672)  # first, most recent and all tokens that stay: 32 + 512 + 128
SETTINGS = {"u8": ("u8", False), "f16": ("f16", False), "u8-evict": ("u8", True)}
DEFAULT = "u8"  # what the CPU plugin takes without flags


def gib_for(request, kv_bytes):
    """Whole GiB that hold the context, with room for blocks of earlier prompts."""
    need = 2 * request["context"] * request["kv_numbers_per_token"] * kv_bytes
    return int(need // 2**30) + 1


class Peer:
    def __init__(self, request):
        import openvino
        import openvino_genai
        self.openvino, self.genai, self.request = openvino, openvino_genai, request
        self.names = [name for name in SETTINGS if name in (request["settings"] or SETTINGS)]
        self.pipes = [self.pipe(*SETTINGS[name]) for name in self.names]
        self.prompts = 0

    def describe(self):
        size = os.path.getsize(self.request["model"])
        return {"version": f"OpenVINO GenAI {self.genai.__version__}",
                "settings": [{"name": name, "kv": SETTINGS[name][0], "default": name == DEFAULT,
                              "weight_bytes": size} for name in self.names]}

    def pipe(self, kv, evicts):
        genai, request = self.genai, self.request
        scheduler = genai.SchedulerConfig()
        scheduler.cache_size = gib_for(request, KV_BYTES[kv])
        scheduler.enable_prefix_caching = not evicts  # repetitions need not compute the depth again
        if evicts:
            scheduler.use_cache_eviction = True
            scheduler.cache_eviction_config = genai.CacheEvictionConfig(
                *EVICTION, genai.AggregationMode.NORM_SUM)
        return genai.LLMPipeline(request["model"], "CPU", scheduler_config=scheduler,
                                 INFERENCE_NUM_THREADS=request["threads"],
                                 KV_CACHE_PRECISION=kv)

    def generate(self, setting, ids, tokens):
        import numpy
        config = self.genai.GenerationConfig()
        config.max_new_tokens = config.min_new_tokens = tokens
        config.ignore_eos, config.do_sample = True, False
        result = self.pipes[setting].generate(
            self.openvino.Tensor(numpy.array([ids], dtype=numpy.int64)), config)
        if len(result.tokens[0]) != tokens:
            raise RuntimeError(f"{len(result.tokens[0])} tokens came instead of {tokens}")
        return result.perf_metrics.raw_metrics

    def prompt(self, request):
        if request["depth"]:
            return {"error": "OpenVINO does not time a prompt behind others", "unsupported": True}
        ids = list(request["ids"])
        self.prompts += 1
        ids[0] = self.prompts  # never one that the prefix cache has seen
        metrics = self.generate(request["setting"], ids, 1)
        return {"seconds": metrics.m_times_to_first_token[0] / 1e6, "kv_bytes_per_token": 0}

    def decode(self, request):
        tokens = request["tokens"]
        metrics = self.generate(request["setting"], request["ids"], tokens + 1)
        kv, evicts = SETTINGS[self.names[request["setting"]]]
        rows = len(request["ids"]) + (tokens + 1) / 2
        rows = min(rows, EVICTION[2]) if evicts else rows
        return {"seconds": sum(list(metrics.m_durations)[-tokens:]) / 1e6,
                "kv_bytes_per_token": rows * self.request["kv_numbers_per_token"] * KV_BYTES[kv]}


def answer(peer, request):
    if request["op"] == "open":
        peer.append(Peer(request))
        return peer[0].describe()
    return getattr(peer[0], {"prompt": "prompt", "decode": "decode"}[request["op"]])(request)


def main():
    if sys.stdin.isatty():
        sys.exit(__doc__)
    # Libraries print to standard output as they like: they get the null device.
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    peer = []
    for line in sys.stdin:
        try:
            reply = answer(peer, json.loads(line))
        except ImportError as error:
            reply = {"error": f"{error} in {sys.executable}: install the package openvino-genai there, or "
                              "name another interpreter with --peer-python"}
        except Exception as error:  # whatever OpenVINO throws
            reply = {"error": f"{type(error).__name__}: {' '.join(str(error).split())[:400]}"}
        print(json.dumps(reply), file=answers, flush=True)


if __name__ == "__main__":
    main()
