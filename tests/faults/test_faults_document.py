"""docs/faults.md and the tests say the same: each fault has its tests, and each test its fault."""

from __future__ import annotations

import ast
import re
from pathlib import Path

FOLDER = Path(__file__).parent
LIST = FOLDER.parents[1] / "docs" / "faults.md"


def test_every_fault_of_the_list_has_its_tests_and_every_test_is_in_the_list() -> None:
    listed: dict[str, list[str]] = {}
    for section in LIST.read_text(encoding="utf-8").split("\n## ")[1:]:
        (file,) = re.findall(r"\(`tests/faults/(\w+\.py)`\)", section)
        for number, tests in re.findall(r"^\| (\d+) \|[^|]+\|([^|]+)\|$", section, re.MULTILINE):
            names = re.findall(r"`(test_\w+)`", tests)
            assert names, f"fault {number} has no test"
            assert all(name.startswith(f"test_fault_{int(number):02}_") for name in names)
            listed.setdefault(file, []).extend(names)
    for path in FOLDER.glob("test_*_faults.py"):
        functions = [node for node in ast.parse(path.read_text()).body if isinstance(node, ast.FunctionDef)]
        tests = [function for function in functions if function.name.startswith("test_")]
        assert [test.name for test in tests] == listed.pop(path.name)
        for test in tests:
            assert ast.get_docstring(test), f"{test.name} does not say what it is about"
    assert not listed
