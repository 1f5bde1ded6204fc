"""Runs a program in a fresh interpreter that finds the same ramify."""

import os
import pathlib
import subprocess
import sys
import textwrap

import ramify


def run(program: str, **environment: str) -> subprocess.CompletedProcess:
    package = str(pathlib.Path(ramify.__file__).resolve().parent.parent)
    path = os.pathsep.join([package, os.environ.get("PYTHONPATH", "")]).rstrip(os.pathsep)
    result = subprocess.run([sys.executable, "-c", textwrap.dedent(program)], capture_output=True, text=True,
                            env={**os.environ, "PYTHONPATH": path, **environment})
    assert result.returncode == 0, result.stderr
    return result
