"""A row of malformed input, and how its files are made."""

import os
import shutil
from dataclasses import dataclass, field

FIXTURES = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "fixtures")
SEED = "torch-2.15.0/"

ANY = "any"  # an offset must be told, whichever


@dataclass
class Row:
    """One bad (or good) input and what each command must say of it.

    id        its kind, such as P05; several pieces share one
    name      of the piece
    cls       R refused: verify 1, other commands 3; U unsupported: 4; L limit: 7; W accepted with a warning: 0, under
              `verify --strict` 1; A accepted: 0, under `verify --strict` too; S survived: how it ends depends on a
              library's release, but it ends as R, U, L or A would, with a finding where it fails
    finding   the id that every command that fails must name; of a W the warning; of an A a note, or None
    build     build(folder) makes the piece in an empty folder and returns its path
    at        what finds it: "open" any command; "coverage" what reads the heads of the payloads, so not `inspect`
              and `verify --level structure`; "payload" what reads all bytes; "checksum" and "numeric" those levels
              of `verify` alone
    offset    byte that must be named, ANY, or None
    says      words that must be in what a failing command prints
    also      further ids that `verify` names beside `finding`
    commands  those that are run; None: all
    expect    {command: exit code} where it is not what the class says
    options   further ones, given to every command
    cut       how `reshard` cuts it; SRC stands for the input
    settled   where this is not what such a piece would lead to by itself: why
    wanted    why the program does not yet do so: the row must fail
    strict    whether a good input is run with --strict too, at the last level it is about
    sandbox   True: only in the sandbox; False: only without it; None: both
    seconds   the most that one run may take
    children  copies of itself that the program may start in one run
    env       further variables, as pairs
    converts  whether what verify says is held against planned conversions; not where that takes minutes
    """

    id: str
    name: str
    cls: str
    finding: str
    build: object
    at: str = "open"
    offset: object = None
    says: tuple = ()
    also: tuple = ()
    commands: tuple = None
    expect: dict = field(default_factory=dict)
    options: tuple = ()
    cut: tuple = ("--world-size", "2")
    settled: str = ""
    wanted: str = ""
    strict: bool = True
    sandbox: bool = None
    seconds: float = 10
    children: int = 0
    env: tuple = ()
    converts: bool = True

    @property
    def title(self):
        return f"{self.id}-{self.name}"


def as_file(data, name="input.pt"):
    """A builder of one file; data are bytes, or a function that gives them."""

    def build(folder):
        path = os.path.join(folder, name)
        with open(path, "wb") as f:
            f.write(data() if callable(data) else data)
        return path

    return build


def from_fixture(fixture, change=None, release=SEED):
    """A builder of a copy of a fixture; change(path) bends it."""

    def build(folder):
        source = os.path.join(FIXTURES, release, fixture)
        path = os.path.join(folder, os.path.basename(fixture))
        if os.path.isdir(source):
            shutil.copytree(source, path, symlinks=True, copy_function=shutil.copyfile)  # all of one time
        else:
            shutil.copy(source, path)
        for where, _, names in os.walk(path):
            os.chmod(where, 0o755)
            for name in names:
                if not os.path.islink(os.path.join(where, name)):
                    os.chmod(os.path.join(where, name), 0o644)
        if change is not None:
            path = change(path) or path
        return path

    return build


def fixture_bytes(fixture, release=SEED):
    with open(os.path.join(FIXTURES, release, fixture), "rb") as f:
        return f.read()


def flipped(data, offset, bit=0):
    return data[:offset] + bytes([data[offset] ^ 1 << bit]) + data[offset + 1:]
