"""Stop a process before each system call that changes a file.

A filter (seccomp) lets only those calls through to the tracer (ptrace), so the rest runs at full speed. Linux
on x86-64; elsewhere `supported` says why not.
"""

from __future__ import annotations

import ctypes
import os
import platform
import signal
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from processes import exit_code_of

_libc = ctypes.CDLL(None, use_errno=True)
_libc.ptrace.argtypes = [ctypes.c_long, ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p]
_libc.ptrace.restype = ctypes.c_long

TRACEME, CONT, SETOPTIONS, GETREGS, SETREGS, GET_SYSCALL_INFO = 0, 7, 0x4200, 12, 13, 0x420E
# fork, vfork, clone, exec, seccomp; and the tracee dies with its tracer
OPTIONS = 0x2 | 0x4 | 0x8 | 0x10 | 0x80 | 0x100000
EVENT_SECCOMP = 7
ALLOW, TRACE = 0x7FFF0000, 0x7FF00000
CREATE_OR_TRUNCATE = os.O_CREAT | os.O_TRUNC

# Name, number, and where its file is: ("fd", argument), ("path", argument) or ("at", argument of the folder).
CALLS = {
    "write": (1, ("fd", 0)),
    "pwrite64": (18, ("fd", 0)),
    "writev": (20, ("fd", 0)),
    "pwritev": (296, ("fd", 0)),
    "sendfile": (40, ("fd", 0)),
    "copy_file_range": (326, ("fd", 2)),
    "fsync": (74, ("fd", 0)),
    "fdatasync": (75, ("fd", 0)),
    "syncfs": (306, ("fd", 0)),
    "ftruncate": (77, ("fd", 0)),
    "fallocate": (285, ("fd", 0)),
    "truncate": (76, ("path", 0)),
    "open": (2, ("path", 0)),
    "openat": (257, ("at", 0)),
    "creat": (85, ("path", 0)),
    "rename": (82, ("path", 0)),
    "renameat": (264, ("at", 0)),
    "renameat2": (316, ("at", 0)),
    "unlink": (87, ("path", 0)),
    "unlinkat": (263, ("at", 0)),
    "rmdir": (84, ("path", 0)),
    "mkdir": (83, ("path", 0)),
    "mkdirat": (258, ("at", 0)),
    "link": (86, ("path", 0)),
    "linkat": (265, ("at", 0)),
    "symlink": (88, ("path", 1)),
    "symlinkat": (266, ("at", 1)),
    "sendto": (44, ("fd", 0)),  # a word to a server, which may change something there
}
# What the path of a socket begins with.
SOCKET = "socket:"
_BY_NUMBER = {number: (name, where) for name, (number, where) in CALLS.items()}
_OPEN_FLAGS = {2: 1, 257: 2}


class _Info(ctypes.Structure):
    _fields_ = [
        ("op", ctypes.c_uint8),
        ("arch", ctypes.c_uint32),
        ("ip", ctypes.c_uint64),
        ("sp", ctypes.c_uint64),
        ("number", ctypes.c_uint64),
        ("arguments", ctypes.c_uint64 * 6),
        ("ret_data", ctypes.c_uint32),
    ]


class _Filter(ctypes.Structure):
    _fields_ = [
        ("code", ctypes.c_uint16),
        ("yes", ctypes.c_uint8),
        ("no", ctypes.c_uint8),
        ("value", ctypes.c_uint32),
    ]


class _Program(ctypes.Structure):
    _fields_ = [("length", ctypes.c_uint16), ("filters", ctypes.POINTER(_Filter))]


class _Registers(ctypes.Structure):
    _fields_ = [(f"r{number}", ctypes.c_ulonglong) for number in range(27)]


_RAX, _ORIG_RAX = "r10", "r15"


@dataclass(frozen=True)
class Call:
    """A system call that is about to change a file.

    Attributes:
        thread: who makes it.
        number: counted from 1 over the whole operation.
        name: of the call.
        path: the file.
        arguments: as given to the system.
    """

    thread: int
    number: int
    name: str
    path: str
    arguments: tuple[int, ...]

    def __str__(self) -> str:
        return f"{self.number}: {self.name} {Path(self.path).name}"


def supported() -> str:
    """Empty where processes can be traced; else the reason why not."""
    if sys.platform != "linux" or platform.machine() != "x86_64":
        return "tracing system calls needs Linux on x86-64"
    try:
        seen: list[Call] = []
        with Path(os.devnull).open("w") as null:
            code = trace(lambda: os.write(null.fileno(), b"x") and None, "/dev/null", seen.append)
    except OSError as error:
        return f"processes may not be traced here: {error}"
    return "" if code == 0 and seen else "processes may not be traced here"


def trace(
    function: Callable[[], object], root: Path | str | tuple[str, ...], visit: Callable[[Call], object]
) -> int:
    """Run a function in a fork; call ``visit`` before each system call that changes a file under ``root``.

    Args:
        function: what to run; its fork ends when it returns.
        root: the files that count; or several beginnings of their paths, of which `SOCKET` may be one.
        visit: what to do while all threads that want to change a file stand still. It may return ``"kill"``,
            which ends the fork as SIGKILL does, or an errno, which fails the call without making it.

    Returns:
        The exit code; a signal counts as its negative number.
    """
    child = os.fork()
    if child == 0:
        _run_traced(function)
    tracer = _Tracer(child, root if isinstance(root, tuple) else (str(root),), visit)
    try:
        return tracer.run()
    except BaseException:
        tracer.kill()
        raise


def _run_traced(function: Callable[[], object]) -> None:
    code = 1
    try:
        _ptrace(TRACEME, 0)
        os.kill(os.getpid(), signal.SIGSTOP)
        _install_filter()
        code = exit_code_of(function)
    finally:
        os._exit(code)


class _Tracer:
    def __init__(self, child: int, roots: tuple[str, ...], visit: Callable[[Call], object]) -> None:
        self.child, self.roots, self.visit = child, roots, visit
        self.threads = {child}
        self.count = 0

    def run(self) -> int:
        _, status = os.waitpid(self.child, 0)
        if not os.WIFSTOPPED(status):
            raise OSError(f"the traced process ended at once: {status}")
        _ptrace(SETOPTIONS, self.child, OPTIONS)
        _ptrace(CONT, self.child)
        result = None
        while self.threads:
            thread, status = self._wait()
            if os.WIFEXITED(status) or os.WIFSIGNALED(status):
                self.threads.discard(thread)
                if thread == self.child:
                    result = os.waitstatus_to_exitcode(status)
                continue
            self._resume(thread, status)
        assert result is not None
        return result

    def _wait(self) -> tuple[int, int]:
        """The next of ours that stopped; other children of this process are ignored."""
        while True:
            for thread in list(self.threads):
                try:
                    found, status = os.waitpid(thread, os.WNOHANG | 0x40000000)
                except ChildProcessError:
                    self.threads.discard(thread)
                    if not self.threads:
                        return thread, 0
                    continue
                if found:
                    return found, status
            # Any child: this one is left in place (WNOWAIT), so that whoever it belongs to can collect it.
            os.waitid(os.P_ALL, 0, os.WEXITED | os.WSTOPPED | os.WNOWAIT | 0x40000000)
            time.sleep(0.0002)

    def _resume(self, thread: int, status: int) -> None:
        event, what = status >> 16, os.WSTOPSIG(status)
        deliver = 0
        if event == EVENT_SECCOMP:
            if self._stopped_at_call(thread) == "killed":
                return
        elif event in (1, 2, 3):  # fork, vfork, clone
            message = ctypes.c_ulong()
            _libc.ptrace(0x4201, thread, None, ctypes.byref(message))
            self.threads.add(message.value)
        elif event == 0 and what not in (signal.SIGSTOP, signal.SIGTRAP):
            deliver = what
        _libc.ptrace(CONT, thread, None, deliver)

    def _stopped_at_call(self, thread: int) -> str:
        info = _Info()
        _libc.ptrace(GET_SYSCALL_INFO, thread, ctypes.sizeof(info), ctypes.byref(info))
        name, where = _BY_NUMBER[info.number]
        arguments = tuple(info.arguments)
        flags = _OPEN_FLAGS.get(info.number)
        if flags is not None and not arguments[flags] & CREATE_OR_TRUNCATE:
            return ""
        path = _file_of(thread, where, arguments)
        if path is None or not path.startswith(self.roots):
            return ""
        self.count += 1
        answer = self.visit(Call(thread, self.count, name, path, arguments))
        if answer == "kill":
            self.kill()
            return "killed"
        if isinstance(answer, int) and not isinstance(answer, bool):
            registers = _Registers()
            _libc.ptrace(GETREGS, thread, None, ctypes.byref(registers))
            setattr(registers, _ORIG_RAX, 2**64 - 1)
            setattr(registers, _RAX, 2**64 - answer)
            _libc.ptrace(SETREGS, thread, None, ctypes.byref(registers))
        return ""

    def kill(self) -> None:
        for thread in self.threads:
            try:
                os.kill(thread, signal.SIGKILL)
            except ProcessLookupError:
                continue


def _file_of(thread: int, where: tuple[str, int], arguments: tuple[int, ...]) -> str | None:
    kind, position = where
    try:
        if kind == "fd":
            return str(Path(f"/proc/{thread}/fd/{ctypes.c_int32(arguments[position]).value}").readlink())
        folder = f"/proc/{thread}/cwd"
        if kind == "at":
            descriptor = ctypes.c_int32(arguments[position]).value
            if descriptor >= 0:
                folder = f"/proc/{thread}/fd/{descriptor}"
            position += 1
        text = _text(thread, arguments[position])
        return text if text.startswith("/") else f"{Path(folder).readlink()}/{text}"
    except OSError:
        return None


def _text(thread: int, address: int) -> str:
    with Path(f"/proc/{thread}/mem").open("rb", buffering=0) as memory:
        memory.seek(address)
        return os.fsdecode(memory.read(4096).partition(b"\0")[0])


def memory_of(call: Call, address: int, size: int) -> bytes:
    """Bytes of the stopped process."""
    with Path(f"/proc/{call.thread}/mem").open("rb", buffering=0) as memory:
        memory.seek(address)
        return memory.read(size)


def _install_filter() -> None:
    load, equal, any_bit, give = 0x20, 0x15, 0x45, 0x06
    lines = [_Filter(load, 0, 0, 0)]
    numbers = [number for number, _ in _BY_NUMBER.items() if number not in _OPEN_FLAGS]
    for position, number in enumerate(numbers):
        # to the line that says TRACE, after the rest of this list and the ones about opening
        lines.append(_Filter(equal, len(numbers) - position - 1 + 3 * len(_OPEN_FLAGS) + 1, 0, number))
    for position, (number, flags) in enumerate(_OPEN_FLAGS.items()):
        rest = 3 * (len(_OPEN_FLAGS) - position - 1)
        lines.append(_Filter(equal, 0, 2, number))
        lines.append(_Filter(load, 0, 0, 16 + 8 * flags))
        lines.append(_Filter(any_bit, rest + 1, rest, CREATE_OR_TRUNCATE))
    lines += [_Filter(give, 0, 0, ALLOW), _Filter(give, 0, 0, TRACE)]
    program = _Program(len(lines), (_Filter * len(lines))(*lines))
    if _libc.prctl(38, 1, 0, 0, 0) or _libc.prctl(22, 2, ctypes.byref(program), 0, 0):
        raise OSError(ctypes.get_errno(), "the system takes no filter of system calls")


def _ptrace(request: int, thread: int, data: int = 0) -> None:
    ctypes.set_errno(0)
    if _libc.ptrace(request, thread, None, data) == -1 and ctypes.get_errno():
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
