"""A process without a network: what evaluates a model has nobody to talk to.

Linux gives a process a network of its own, with a loopback interface and nothing else: at once to whoever may
administer the machine, and to everybody else by way of a user namespace, where the machine allows those.
"""

import ctypes
import fcntl
import os
import socket
import struct
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import Final

_NEW_USER: Final = 0x10000000
_NEW_NETWORK: Final = 0x40000000
_SET_FLAGS: Final = 0x8914
_UP_AND_RUNNING: Final = 0x1 | 0x40
_C_LIBRARY: Final = ctypes.CDLL(None, use_errno=True)
_ATTEMPT: Final = "import sys; from mlgitops.adapters.isolation import leave_network; sys.exit(not leave_network())"


def leave_network() -> bool:
    """Give this process, and all that it will start, a network of its own; returns whether that was possible.

    To be called in a process with one thread, before it sets what it does when its parent ends: new credentials make
    the kernel forget that. What was open before stays open.
    """
    user, group = os.geteuid(), os.getegid()
    if _C_LIBRARY.unshare(_NEW_NETWORK):
        if _C_LIBRARY.unshare(_NEW_USER | _NEW_NETWORK):
            return False
        with suppress(OSError):  # without a map the process is nobody, and may still do what it is there for
            Path("/proc/self/setgroups").write_text("deny")
            Path("/proc/self/uid_map").write_text(f"{user} {user} 1")
            Path("/proc/self/gid_map").write_text(f"{group} {group} 1")
    with suppress(OSError), socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as own:
        fcntl.ioctl(own, _SET_FLAGS, struct.pack("16sh14x", b"lo", _UP_AND_RUNNING))
    return True


def can_leave_network() -> bool:
    """Say whether `leave_network` works for this account on this machine; tried in a process that ends at once."""
    done = subprocess.run([sys.executable, "-P", "-c", _ATTEMPT], capture_output=True, timeout=60, check=False)
    return done.returncode == 0
