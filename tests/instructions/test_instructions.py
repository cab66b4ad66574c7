"""Instructions of the decode kernels on a fixed input against recorded counts, by callgrind: times are
noisy, counts are not. valgrind shows programs a CPU with AVX2 and no AVX-512, wherever it runs.

  RKV_DECODE_KERNELS   the program
  RKV_RECORD=1         writes the counts instead of checking them

A count that rose by more than 5 % is a regression; one that fell as much asks for a new record.
"""
import json
import os
import pathlib
import re
import shutil
import subprocess

import pytest

PROGRAM = os.environ.get("RKV_DECODE_KERNELS", "")
RECORD = pathlib.Path(__file__).with_name("recorded.json")
TOLERANCE = 0.05

if not os.path.isfile(PROGRAM):
    pytest.skip(f"RKV_DECODE_KERNELS names no file: '{PROGRAM}'", allow_module_level=True)
if shutil.which("valgrind") is None:
    pytest.skip("valgrind is not installed: run scripts/setup", allow_module_level=True)
if os.uname().machine != "x86_64":
    pytest.skip("counts are recorded for x86-64 only", allow_module_level=True)


def kernels():
    return subprocess.run([PROGRAM], capture_output=True, text=True, check=True).stdout.split()


def count(kernel):
    done = subprocess.run(["valgrind", "--tool=callgrind", "--callgrind-out-file=/dev/null",
                           "--toggle-collect=MeasuredKernel", PROGRAM, kernel],
                          capture_output=True, text=True, timeout=300)
    found = re.search(r"Collected : (\d+)", done.stderr)
    assert done.returncode == 0 and found, done.stderr
    return int(found[1])


@pytest.mark.parametrize("kernel", kernels())
def test_count_is_as_recorded(kernel):
    recorded = json.loads(RECORD.read_text()) if RECORD.exists() else {}
    now = count(kernel)
    if os.environ.get("RKV_RECORD"):
        recorded[kernel] = now
        RECORD.write_text(json.dumps(recorded, indent=2, sort_keys=True) + "\n")
        return
    print(f"{kernel}: {now} instructions, recorded {recorded[kernel]}")
    assert abs(now / recorded[kernel] - 1) <= TOLERANCE
