#!/usr/bin/env python3
"""Counts the cases of ctest's JUnit files and tells why the skipped ones were skipped.

  count_tests.py NAME FILE   prints the reasons, then "<passed> <failed> <skipped>" as the last line

A disabled case counts as failed: nothing may be switched off without a reason that a run prints.
"""
import re
import sys
import xml.etree.ElementTree as ET


def skip_reasons(output):
    """What GoogleTest and pytest (-rs) print about a skipped case."""
    lines = output.splitlines()
    for number, line in enumerate(lines):
        if re.search(r": Skipped$", line) and number + 1 < len(lines):
            yield lines[number + 1].strip()
        elif line.startswith("SKIPPED ["):
            yield line.split(": ", 1)[-1].strip()


def main(name, path):
    counts = {"passed": 0, "failed": 0, "skipped": 0}
    for case in ET.parse(path).getroot().iter("testcase"):
        output = case.findtext("system-out") or ""
        reasons = list(skip_reasons(output))
        if case.get("status") == "run" and case.find("failure") is None:
            counts["passed"] += 1
        elif case.find("skipped") is not None and case.get("status") != "disabled" and reasons:
            counts["skipped"] += 1
        else:
            counts["failed"] += 1
            print(f"{name}: failed: {case.get('name')} ({case.get('status')})")
        for reason in reasons:
            print(f"{name}: skipped: {case.get('name')}: {reason}")
    print(*counts.values())


if __name__ == "__main__":
    main(*sys.argv[1:])
