"""Runs the `ramify` program of the source tree, for tests."""

import json
import os
import pathlib
import subprocess

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
PROGRAM = pathlib.Path(os.environ.get("RAMIFY_PROGRAM", ROOT / "build" / "release" / "ramify"))


def start(*arguments, **options):
    if not PROGRAM.exists():
        pytest.skip(f"{PROGRAM} is not built")
    return subprocess.Popen([str(PROGRAM), *map(str, arguments)], stdin=options.pop("stdin", subprocess.PIPE),
                            stdout=subprocess.PIPE, stderr=options.pop("stderr", subprocess.PIPE), text=True,
                            env={**os.environ, "OMP_NUM_THREADS": "1"}, **options)


def run(*arguments, stdin="", status=0):
    """The program's standard output; its standard error must come with `status`."""
    process = start(*arguments)
    out, err = process.communicate(stdin, timeout=600)
    assert process.returncode == status, f"exit {process.returncode}, expected {status}\n{out}\n{err}"
    return out if status == 0 else err


def write_records(path, records):
    path.write_text("".join(json.dumps(record) + "\n" for record in records))
    return path
