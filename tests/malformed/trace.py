"""What strace must not see: see complaint()."""

import os
import re
import shutil

SYSTEM = ("/proc/", "/sys/", "/etc/", "/usr/lib/locale/", "/usr/share/locale/", "/usr/share/terminfo/", "/usr/lib/ssl/")
DEVICES = ("/dev/null", "/dev/tty")
SHARED_OBJECT = re.compile(r"\.so(\.[0-9.]+)?$")
PROCESS = re.compile(r"^(execve|execveat|fork|vfork)\(")
CLONE = re.compile(r"^clone3?\(")
# NAME(FIRST, ...: the first path, with the folder it is relative to where the call has one.
OPEN = re.compile(r'^(\w+)\((?:(AT_FDCWD|\d+)<([^>]*)>, )?"((?:[^"\\]|\\.)*)"(\.\.\.)?')
RESULT = re.compile(r"= \d+<([^>]*)>$")
NETWORK = re.compile(r"^(socket|connect|bind|sendto|sendmsg|accept4?|listen)\(")
LOOKERS = ("readlink", "stat", "lstat", "newfstatat", "statx")
WRITERS = ("unlink", "rename", "mkdir", "rmdir", "link", "symlink", "chmod", "chown", "truncate", "mknod", "utime", "creat")


def missing():
    """Why the sandbox cannot run here, or None."""
    if shutil.which("strace") is None:
        return "strace is missing: scripts/install_deps test brings it"
    return None


def words(log):
    calls = "trace=%file,%network,execve,execveat,fork,vfork,clone,clone3"
    return ["strace", "-f", "-qq", "-y", "-s", "8192", "--seccomp-bpf", "-e", "signal=none", "-e", calls, "-o", log]


def unescape(text):
    return text.encode("latin-1").decode("unicode_escape").encode("latin-1").decode("utf-8", "surrogateescape")


def inside(path, folders):
    return any(path == f or path.startswith(f + "/") for f in folders)


def allowed(path, inputs, output):
    return path in DEVICES or inside(path, inputs + [output]) or any((path + "/").startswith(s) for s in SYSTEM)


def copies(lines):
    """Processes, not threads, that the log tells of as made."""
    made, begun = set(), {}
    for line in lines:
        pid, _, call = line.partition(" ")
        call = call.lstrip()
        if CLONE.match(call):
            begun[pid] = "CLONE_THREAD" in call
        elif not re.match(r"<\.\.\. clone3? resumed", call):
            continue
        result = re.search(r"= (\d+)(<[^>]*>)?$", call)
        if result and not begun.get(pid, True):
            made.add(result[1])
    return made


def complaint(log, program, inputs, output, children=0):
    """The first system call of the log that the program has no business making, or None.

    Nothing is started: one execve, the program's own, and threads but no processes, or so many copies of the program
    as `children` says, which ask for no path at all. No shared object once the first
    file that is not one has been opened (what is merely looked for before that is the loader's). No socket. No path but the program's own, and those below `inputs`, below the folder `output` and what is
    the system's own; nothing changed outside `output`.
    """
    inputs = [os.path.realpath(i) for i in inputs]
    output = os.path.realpath(output)
    inputs = inputs + [os.path.realpath(program)]
    started, running = False, False
    forks = 0
    with open(log, encoding="latin-1") as f:
        lines = [line.rstrip("\n") for line in f]
    of_copies = copies(lines)
    for line in lines:
        call = line.split(None, 1)[1] if re.match(r"^\d+ ", line) else line
        if call.startswith("<...") or call.startswith("+++") or call.startswith("---"):
            continue
        if PROCESS.match(call):
            if started or not call.startswith("execve("):
                return f"starts a process: {call[:300]}"
            started = True
            continue
        if CLONE.match(call):
            forks += "CLONE_THREAD" not in call
            if forks > children:
                return f"starts a process: {call[:300]}"
            continue
        if NETWORK.match(call):
            return f"uses the network: {call[:300]}"
        m = OPEN.match(call)
        if not m:
            continue
        name, _, folder, path, _ = m.groups()
        path = unescape(path)
        if path == "":
            continue
        if line.partition(" ")[0] in of_copies and not (path == "/etc/localtime" and " = -1 EPERM " in call):
            # libc asks for that one by itself, for times of old objects, and is refused.
            return f"a copy asks for a path: {call[:300]}"
        whole = os.path.normpath(os.path.join(unescape(folder) if folder else output, path))
        opened = RESULT.search(call)
        real = unescape(opened[1]) if opened else whole
        if not running and (SHARED_OBJECT.search(whole) or whole in ("/etc/ld.so.cache", "/etc/ld.so.preload")):
            continue
        if not running and name in LOOKERS:
            continue # the loader, for folders of libraries: the program has read nothing yet
        if "open" in name:
            running = True
            if SHARED_OBJECT.search(whole) or SHARED_OBJECT.search(real):
                return f"opens a shared object: {call[:300]}"
        writes = name.startswith(WRITERS) or "open" in name and re.search("O_WRONLY|O_RDWR|O_CREAT|O_TRUNC", call)
        if writes and not inside(whole, [output]) and whole not in DEVICES:
            return f"changes something outside: {call[:300]}"
        if name in LOOKERS and inside(output, [whole]) or whole == "/":
            continue # the way to the output
        if name in LOOKERS and whole.endswith("-unfinished") and os.path.dirname(whole) in map(os.path.dirname, inputs):
            continue # NeMo's marker of an unfinished save, beside the folder
        if not allowed(whole, inputs, output) or not allowed(real, inputs, output):
            return f"looks outside: {call[:300]}"
    return None if started else "strace saw nothing"
