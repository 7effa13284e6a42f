"""The programs of the README run."""

import os
import re
import subprocess
import sys

import pytest
from conftest import ROOT

PROGRAMS = re.findall(r"^```python\n(.*?)^```", (ROOT / "examples/python/README.md").read_text(), re.M | re.S)


@pytest.mark.parametrize("program", PROGRAMS)
def test_program(program: str) -> None:
    result = subprocess.run([sys.executable, "-c", program], cwd=ROOT, env=os.environ, capture_output=True, text=True)
    assert result.returncode == 0, result.stderr
    assert len(result.stdout) > 20
