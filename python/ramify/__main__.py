"""``python -m ramify COMMAND …``: the commands of the program. Started by torchrun, ``train`` and ``train-lm`` do
their work together:

    torchrun --nproc-per-node=2 -m ramify train reviews.jsonl --target label --out runs/two
"""

import ctypes
import datetime
import os
import signal
import sys

import torch
import torch.distributed

from . import _library

# Who waits for another process waits for its work, too: the first one alone looks for the schema. One that has ended is
# noticed at once.
_PATIENCE = datetime.timedelta(hours=1)


class _Launch(ctypes.Structure):  # RamifyLaunch of src/cli/command_line.h
    _fields_ = [("group", ctypes.c_char_p), ("rank", ctypes.c_int), ("local_rank", ctypes.c_int),
                ("local_size", ctypes.c_int)]


def _keep_standard_streams():
    """As src/cli/command_line.cc does, but before a socket gets the number of a stream that is closed."""
    for stream in range(3):
        try:
            os.fstat(stream)
        except OSError:
            os.set_inheritable(os.open(os.devnull, os.O_WRONLY if stream == 0 else os.O_RDONLY), True)


def _complain(message):
    """On standard error, if it can be written: Python's is no file where it was closed."""
    try:
        os.write(2, f"ramify: {message}\n".encode())
    except OSError:
        pass


def _run(arguments, launch=None):
    function = ctypes.CDLL(str(_library.path_of("libramify_command_line.so"))).ramify_command_line
    words = [argument.encode(errors="surrogateescape") for argument in ["ramify", *arguments]]
    argv = (ctypes.c_char_p * (len(words) + 1))(*words, None)
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # the commands that can stop in order see to it themselves
    if not launch:
        signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    return function(len(words), argv, ctypes.byref(launch) if launch else None)


def _run_with_others(arguments):
    rank, local_rank = int(os.environ["RANK"]), int(os.environ.get("LOCAL_RANK", 0))
    if not arguments or arguments[0] not in ("train", "train-lm"):
        if rank == 0:
            _complain("only train and train-lm are for several processes; run this command without torchrun")
        return 2
    if os.environ.get("LOCAL_WORLD_SIZE") == os.environ["WORLD_SIZE"]:  # all are here: the machine needs no name
        os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    has_gpus = torch.cuda.is_available() and torch.distributed.is_nccl_available()
    if has_gpus:
        torch.cuda.set_device(local_rank % torch.cuda.device_count())
    torch.distributed.init_process_group("cpu:gloo,cuda:nccl" if has_gpus else "gloo", timeout=_PATIENCE)
    torch.distributed.all_reduce(torch.zeros(1))  # all are there, before one may end with a mistake in its arguments
    group = torch.distributed.group.WORLD.group_name.encode()
    status = _run(arguments, _Launch(group, rank, local_rank, int(os.environ.get("LOCAL_WORLD_SIZE", 1))))
    if status == 0:
        torch.distributed.destroy_process_group()
    return status


def main():
    arguments = sys.argv[1:]
    _keep_standard_streams()
    if "RANK" not in os.environ or "WORLD_SIZE" not in os.environ:
        return _run(arguments)
    status = _run_with_others(arguments)
    if status != 0:  # at once: others wait for this process, and it may wait for messages that never come
        os._exit(status)
    return status


if __name__ == "__main__":
    sys.exit(main())
